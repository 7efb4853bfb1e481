package config

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
)

// StateFolder returns the folder of state that programs of tally can afford to lose, or "" if the home directory is
// unknown. It need not exist. getenv is os.Getenv except in tests.
func StateFolder(getenv func(string) string) string {
	base := xdg(getenv, "XDG_STATE_HOME", ".local", "state")
	if base == "" {
		return ""
	}
	return filepath.Join(base, "tally")
}

// StoreName returns a name for files that belong to the store. It is the same for all spellings of the store's
// location, differs between stores, and contains no secret. For a store in memory it is "".
func (c Config) StoreName() string {
	switch c.Backend {
	case Local:
		path := c.Store
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			path = resolved
		}
		return nameOf(filepath.Base(path), path)
	case NATS:
		url := withoutSecrets(c.Server.URL)
		_, host, _ := strings.Cut(url, "://")
		return nameOf(host[strings.LastIndex(host, "@")+1:], url)
	}
	return ""
}

// nameOf returns a valid file name: a readable part, and a hash of the whole location.
func nameOf(known, location string) string {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, known)
	sum := sha256.Sum256([]byte(location))
	return plain[:min(len(plain), 40)] + "-" + hex.EncodeToString(sum[:4])
}
