package config

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
)

// StateFolder is where programs of tally remember what they may lose, "" if there is no
// home for it. It need not be there. getenv is os.Getenv but for tests.
func StateFolder(getenv func(string) string) string {
	base := xdg(getenv, "XDG_STATE_HOME", ".local", "state")
	if base == "" {
		return ""
	}
	return filepath.Join(base, "tally")
}

// StoreName returns a name for files that belong to the store: the same for whoever names
// the store, another for each store, and without anything secret. It is "" of a store that
// ends with the process.
func (c Config) StoreName() string {
	switch c.Backend {
	case Local:
		place := c.Store
		if real, err := filepath.EvalSymlinks(place); err == nil {
			place = real
		}
		return nameOf(filepath.Base(place), place)
	case NATS:
		url := withoutSecrets(c.Server.URL)
		_, host, _ := strings.Cut(url, "://")
		return nameOf(host[strings.LastIndex(host, "@")+1:], url)
	}
	return ""
}

// nameOf makes a name that a file can have, of what people know a place by and the place.
func nameOf(known, place string) string {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, known)
	sum := sha256.Sum256([]byte(place))
	return plain[:min(len(plain), 40)] + "-" + hex.EncodeToString(sum[:4])
}
