// Package config finds out where a store is and how to get at it. What is said
// closest to the call wins: flag, environment, the nearest tally.toml,
// $XDG_CONFIG_HOME/tally/config.toml, default.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
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
	Segment   uint64 // bytes of a local store's log in one piece; 0: the default of package embedded
	Project   string // directory of the nearest tally.toml, "" without one
	Base      string // folder of the layout of tally-evals; default .tally in the project
	Notices   []Notice
	segment   string
	origins   map[string]origin
}

// origin is a line of a file, or the name of something else with line 0.
type origin struct {
	name string
	line int
}

// Origin says where a setting (backend, store, namespace, url, segment) comes from: a file,
// a variable, "call" or "default".
func (c Config) Origin(setting string) string { return c.origins[setting].name }

// Overrides are settings given in the call; "" is not given.
type Overrides struct {
	Backend   string
	Store     string
	Namespace string
	URL       string
	Segment   string // with KiB, MiB or GiB behind the number, or bytes
}

// Error says which file or variable is wrong, where, and why.
type Error struct {
	File   string // or the name of a variable; "call" for what was given in the call
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
	Namespace text `toml:"namespace"`
	Store     struct {
		Backend text `toml:"backend"`
		Dir     text `toml:"dir"`
		Segment text `toml:"segment"`
	} `toml:"store"`
	NATS struct {
		URL text `toml:"url"`
	} `toml:"nats"`
}

// text is a string whose absence of one is an error with a place.
type text string

// UnmarshalTOML implements toml.Unmarshaler.
func (t *text) UnmarshalTOML(v any) error {
	s, ok := v.(string)
	if !ok {
		return errors.New("want a string")
	}
	*t = text(s)
	return nil
}

// Resolve reads the configuration as seen from a directory. getenv is os.Getenv
// but for tests. Problems are *Error.
func Resolve(dir string, call Overrides, getenv func(string) string) (Config, error) {
	c := Config{Backend: Local, Namespace: events.DefaultNamespace, origins: make(map[string]origin)}
	for _, setting := range settings {
		c.origins[setting] = origin{name: "default"}
	}
	if home := dataHome(getenv); home != "" {
		c.Store = filepath.Join(home, "tally")
	}
	if base := configHome(getenv); base != "" {
		if err := c.read(filepath.Join(base, "tally", "config.toml")); err != nil {
			return c, err
		}
	}
	path, err := findUp(dir)
	if err != nil {
		return c, err
	}
	if path != "" {
		c.Project = filepath.Dir(path)
		if err := c.read(path); err != nil {
			return c, err
		}
	}
	c.set(Overrides{getenv(variables["backend"]), getenv(variables["store"]), getenv(variables["namespace"]), getenv(variables["url"]), getenv(variables["segment"])},
		func(setting string) origin { return origin{name: variables[setting]} })
	c.set(call, func(string) origin { return origin{name: "call"} })
	if err := c.original(dir, getenv); err != nil {
		return c, err
	}
	return c, c.check()
}

var settings = []string{"backend", "store", "namespace", "url", "segment"}

// variables are those of the environment that say a setting.
var variables = map[string]string{"backend": "TALLY_BACKEND", "store": "TALLY_STORE", "namespace": "TALLY_NAMESPACE", "url": "TALLY_SERVER", "segment": "TALLY_SEGMENT"}

// set takes over what is given; from says where each setting was.
func (c *Config) set(o Overrides, from func(setting string) origin) {
	given := map[string]string{"backend": o.Backend, "store": o.Store, "namespace": o.Namespace, "url": o.URL, "segment": o.Segment}
	for setting, to := range map[string]*string{"backend": &c.Backend, "store": &c.Store, "namespace": &c.Namespace, "url": &c.URL, "segment": &c.segment} {
		if given[setting] != "" {
			*to, c.origins[setting] = given[setting], from(setting)
		}
	}
	// A store named closer to the call than the backend means a local one, a server
	// an external one.
	switch {
	case o.Backend != "":
	case o.Store != "":
		c.Backend, c.origins["backend"] = Local, from("store")
	case o.URL != "":
		c.Backend, c.origins["backend"] = NATS, from("url")
	}
}

// wrong is the error of a setting, at its place.
func (c *Config) wrong(setting, field, format string, args ...any) error {
	at := c.origins[setting]
	return &Error{File: at.name, Line: at.line, Field: field, Reason: fmt.Sprintf(format, args...)}
}

// check holds the settings to what they can be.
func (c *Config) check() error {
	if err := events.ValidateNamespace(c.Namespace); err != nil {
		return c.wrong("namespace", "namespace", "%q: want 1 to 64 of [A-Za-z0-9_-]", c.Namespace)
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
			return c.wrong("store", "store.dir", "%v", err)
		}
		c.Store = abs
		if c.Segment, err = parseSize(c.segment); err != nil {
			return c.wrong("segment", "store.segment", "%q: want a number of bytes, or of KiB, MiB or GiB", c.segment)
		}
		return nil
	case NATS:
		if c.URL == "" {
			return c.wrong("backend", "nats.url", "the backend nats needs a section [nats] with a url")
		}
		return nil
	}
	return c.wrong("backend", "store.backend", "%q: want local, memory or nats", c.Backend)
}

// parseSize reads a number of bytes such as 8388608 or 8MiB; "" is 0.
func parseSize(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	unit := uint64(1)
	for suffix, n := range map[string]uint64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if digits, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = strings.TrimSpace(digits), n
			break
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 || n > math.MaxInt64/unit {
		return 0, errors.New("no size")
	}
	return n * unit, nil
}

// read takes over what a file says; that it does not exist is no error.
func (c *Config) read(path string) error {
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
	dir := string(f.Store.Dir)
	if dir != "" && !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(path), dir)
	}
	from := func(setting string) origin {
		key := map[string]toml.Key{"backend": {"store", "backend"}, "store": {"store", "dir"}, "namespace": {"namespace"}, "url": {"nats", "url"}, "segment": {"store", "segment"}}[setting]
		return origin{path, lineOf(string(data), key)}
	}
	c.set(Overrides{Backend: string(f.Store.Backend), Store: dir, Namespace: string(f.Namespace), Segment: string(f.Store.Segment)}, from)
	if f.NATS.URL != "" { // in a file it does not choose the backend
		c.URL, c.origins["url"] = string(f.NATS.URL), from("url")
	}
	return nil
}

func fileError(path string, err error) error {
	if parse, ok := errors.AsType[toml.ParseError](err); ok {
		return &Error{File: path, Line: parse.Position.Line, Field: parse.LastKey, Reason: parse.Message}
	}
	return &Error{File: path, Reason: err.Error()}
}

// lineOf finds the line that sets a key, or begins its section; 0 if none does.
func lineOf(text string, key toml.Key) int {
	plain := strings.NewReplacer(" ", "", "\t", "", `"`, "", "'", "").Replace
	want, section := plain(key.String()), ""
	for i, line := range strings.Split(text, "\n") {
		line = plain(line)
		if header, ok := strings.CutPrefix(line, "["); ok {
			header, _, _ = strings.Cut(strings.TrimPrefix(header, "["), "]")
			if header == want {
				return i + 1
			}
			section = header + "."
			continue
		}
		if name, _, sets := strings.Cut(line, "="); sets && section+name == want {
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
