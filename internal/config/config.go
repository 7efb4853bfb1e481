// Package config finds out where a store is and how to get at it. What is said
// closest to the call wins: flag, environment, the nearest tally.toml,
// $XDG_CONFIG_HOME/tally/config.toml, default.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/tallylog/tally/events"
)

// FileName is the file that marks a project.
const FileName = "tally.toml"

// Backends.
const (
	Local  = "local"  // a directory on this machine, served by this process or by the one that owns it
	Memory = "memory" // nothing outlives the process
	NATS   = "nats"   // a server that somebody else runs
)

// Config says where a store is. Every field has a value after Resolve.
type Config struct {
	Backend   string
	Store     string // directory of a local store
	Namespace string
	URL       string // of the server of backend nats
	Project   string // directory of the nearest tally.toml, "" without one
	origins   map[string]string
}

// Origin says where a setting (backend, store, namespace, url) comes from.
func (c Config) Origin(setting string) string { return c.origins[setting] }

// Overrides are settings given in the call; "" is not given.
type Overrides struct {
	Backend   string
	Store     string
	Namespace string
	URL       string
}

// Error says which file or variable is wrong, where, and why.
type Error struct {
	File   string // or the name of a variable or flag
	Line   int    // 0: not of one line
	Field  string // "" if the file as a whole is wrong
	Reason string
}

func (e *Error) Error() string {
	text := e.File
	if e.Line > 0 {
		text += fmt.Sprintf(":%d", e.Line)
	}
	if e.Field != "" {
		text += ": " + e.Field
	}
	return text + ": " + e.Reason
}

// file is what a tally.toml or config.toml may say.
type file struct {
	Namespace string `toml:"namespace"`
	Store     struct {
		Backend string `toml:"backend"`
		Dir     string `toml:"dir"`
	} `toml:"store"`
	NATS *struct {
		URL string `toml:"url"`
	} `toml:"nats"`
}

// Resolve reads the configuration as seen from a directory. getenv is os.Getenv
// but for tests. Problems are *Error.
func Resolve(dir string, call Overrides, getenv func(string) string) (Config, error) {
	c := Config{Backend: Local, Namespace: events.DefaultNamespace, origins: map[string]string{
		"backend": "default", "store": "default", "namespace": "default", "url": "default"}}
	if home := dataHome(getenv); home != "" {
		c.Store = filepath.Join(home, "tally")
	}
	hasNATS := false
	if base := configHome(getenv); base != "" {
		if err := c.read(filepath.Join(base, "tally", "config.toml"), &hasNATS); err != nil {
			return c, err
		}
	}
	path, err := findUp(dir)
	if err != nil {
		return c, err
	}
	if path != "" {
		c.Project = filepath.Dir(path)
		if err := c.read(path, &hasNATS); err != nil {
			return c, err
		}
	}
	c.set(Overrides{getenv("TALLY_BACKEND"), getenv("TALLY_STORE"), getenv("TALLY_NAMESPACE"), getenv("TALLY_SERVER")}, "environment")
	c.set(call, "call")
	hasNATS = hasNATS || c.URL != ""
	return c, c.check(hasNATS)
}

func (c *Config) set(o Overrides, origin string) {
	for _, s := range []struct {
		name string
		to   *string
		from string
	}{{"backend", &c.Backend, o.Backend}, {"store", &c.Store, o.Store}, {"namespace", &c.Namespace, o.Namespace}, {"url", &c.URL, o.URL}} {
		if s.from != "" {
			*s.to, c.origins[s.name] = s.from, origin
		}
	}
	// A store named closer to the call than the backend means a local one, a server
	// an external one.
	switch {
	case o.Backend != "":
	case o.Store != "":
		c.Backend, c.origins["backend"] = Local, origin
	case o.URL != "":
		c.Backend, c.origins["backend"] = NATS, origin
	}
}

// check holds the settings to what they can be.
func (c *Config) check(hasNATS bool) error {
	if err := events.ValidateNamespace(c.Namespace); err != nil {
		return &Error{File: c.origins["namespace"], Field: "namespace", Reason: fmt.Sprintf("%q: want 1 to 64 of [A-Za-z0-9_-]", c.Namespace)}
	}
	switch c.Backend {
	case Memory:
		return nil
	case Local:
		if c.Store == "" {
			return &Error{File: "environment", Field: "HOME", Reason: "not set, and no store directory was given: use --store or TALLY_STORE"}
		}
		abs, err := filepath.Abs(c.Store)
		if err != nil {
			return &Error{File: c.origins["store"], Field: "store", Reason: err.Error()}
		}
		c.Store = abs
		return nil
	case NATS:
		if !hasNATS || c.URL == "" {
			return &Error{File: c.origins["backend"], Field: "nats.url", Reason: "the backend nats needs a section [nats] with a url"}
		}
		return nil
	}
	return &Error{File: c.origins["backend"], Field: "store.backend", Reason: fmt.Sprintf("%q: want local, memory or nats", c.Backend)}
}

// read takes over what a file says; that it does not exist is no error.
func (c *Config) read(path string, hasNATS *bool) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &Error{File: path, Reason: err.Error()}
	}
	var f file
	meta, err := toml.Decode(string(data), &f)
	if err != nil {
		return fileError(path, err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return &Error{File: path, Line: lineOf(string(data), unknown[0]), Field: unknown[0].String(), Reason: "there is no such setting"}
	}
	if f.Store.Dir != "" && !filepath.IsAbs(f.Store.Dir) {
		f.Store.Dir = filepath.Join(filepath.Dir(path), f.Store.Dir)
	}
	o := Overrides{Backend: f.Store.Backend, Store: f.Store.Dir, Namespace: f.Namespace}
	if f.NATS != nil {
		*hasNATS = true
		c.URL, c.origins["url"] = f.NATS.URL, path // alone it does not choose the backend
	}
	c.set(o, path)
	return nil
}

func fileError(path string, err error) error {
	if parse, ok := errors.AsType[toml.ParseError](err); ok {
		return &Error{File: path, Line: parse.Position.Line, Field: parse.LastKey, Reason: parse.Message}
	}
	return &Error{File: path, Reason: err.Error()}
}

// lineOf finds the line that sets a key.
func lineOf(text string, key toml.Key) int {
	last := key[len(key)-1]
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimLeft(line, " \t[")
		if rest, ok := strings.CutPrefix(line, last); ok && strings.HasPrefix(strings.TrimLeft(rest, " \t]"), "=") || strings.HasPrefix(line, last+"]") {
			return i + 1
		}
	}
	return 0
}

// findUp gives the nearest tally.toml at or above a directory, "" if there is
// none.
func findUp(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
	}
	if err != nil {
		return "", &Error{File: dir, Reason: err.Error()}
	}
	for {
		path := filepath.Join(dir, FileName)
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", nil
		}
		dir = parent
	}
}

func dataHome(getenv func(string) string) string {
	return xdg(getenv, "XDG_DATA_HOME", ".local", "share")
}

func configHome(getenv func(string) string) string {
	return xdg(getenv, "XDG_CONFIG_HOME", ".config")
}

func xdg(getenv func(string) string, variable string, below ...string) string {
	if dir := getenv(variable); filepath.IsAbs(dir) {
		return dir
	}
	home := getenv("HOME")
	if home == "" {
		home = getenv("USERPROFILE")
	}
	if home == "" {
		return ""
	}
	return filepath.Join(append([]string{home}, below...)...)
}
