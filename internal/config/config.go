// Package config finds out where a store is and how to get at it. What is said
// closest to the call wins: flag, environment, the nearest tally.toml,
// $XDG_CONFIG_HOME/tally/config.toml, the variables of the nats command, default.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// FileName is the file that marks a project.
const FileName = "tally.toml"

// Backends.
const (
	Local  = "local"  // a directory on this machine, served by this process or by the one that owns it
	Memory = "memory" // nothing outlives the process
	NATS   = "nats"   // a server that somebody else runs
)

// Config says where a store is. What its backend needs has a value after Resolve.
type Config struct {
	Backend       string
	Store         string // directory of a local store
	Namespace     string
	Server        Server         // of backend nats
	Segment       uint64         // bytes of a local store's log in one piece; 0: the default of package embedded
	MinDurability log.Durability // what an acknowledgement is worth at least
	Project       string         // directory of the nearest tally.toml, "" without one
	Base          string         // folder of the layout of tally-evals; default .tally in the project
	Notices       []Notice

	said    map[string]string
	origins map[string]origin
}

// origin is a line of a file, or the name of something else with line 0.
type origin struct {
	name string
	line int
}

// Origin says where a setting, by its name in a file (backend, store for its dir,
// namespace, url ...), comes from: a file, a variable, "call" or "default".
func (c Config) Origin(setting string) string { return c.origins[setting].name }

// Overrides are settings given in the call; "" is not given.
type Overrides struct {
	Backend       string
	Store         string
	Namespace     string
	URL           string
	Context       string
	MinDurability string
}

func (o Overrides) said() map[string]string {
	return map[string]string{"backend": o.Backend, "store": o.Store, "namespace": o.Namespace, "url": o.URL, "context": o.Context, "min_durability": o.MinDurability}
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
		Backend       text `toml:"backend"`
		Dir           text `toml:"dir"`
		Segment       text `toml:"segment"`
		MinDurability text `toml:"min_durability"`
	} `toml:"store"`
	NATS struct {
		URL         text  `toml:"url"`
		Context     text  `toml:"context"`
		User        text  `toml:"user"`
		Password    text  `toml:"password"`
		Token       text  `toml:"token"`
		Creds       text  `toml:"creds"`
		NKey        text  `toml:"nkey"`
		CA          text  `toml:"ca"`
		Cert        text  `toml:"cert"`
		Key         text  `toml:"key"`
		InboxPrefix text  `toml:"inbox_prefix"`
		System      text  `toml:"system_context"`
		Replicas    count `toml:"replicas"`
	} `toml:"nats"`
}

// said returns what a file in a directory says. Paths in it are relative to that.
func (f file) said(dir string) map[string]string {
	within := func(t text) string {
		if t == "" || filepath.IsAbs(string(t)) {
			return string(t)
		}
		return filepath.Join(dir, string(t))
	}
	n := f.NATS
	return map[string]string{
		"namespace": string(f.Namespace), "backend": string(f.Store.Backend), "store": within(f.Store.Dir), "segment": string(f.Store.Segment),
		"min_durability": string(f.Store.MinDurability), "url": string(n.URL), "context": string(n.Context), "user": string(n.User),
		"password": string(n.Password), "token": string(n.Token), "creds": within(n.Creds), "nkey": within(n.NKey), "ca": within(n.CA),
		"cert": within(n.Cert), "key": within(n.Key), "inbox_prefix": string(n.InboxPrefix), "system_context": string(n.System), "replicas": string(n.Replicas),
	}
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

// count is a number of one digit, as its text.
type count string

// UnmarshalTOML implements toml.Unmarshaler.
func (n *count) UnmarshalTOML(v any) error {
	i, ok := v.(int64)
	if !ok || i < 1 || i > 5 {
		return errors.New("want a number from 1 to 5")
	}
	*n = count(strconv.FormatInt(i, 10))
	return nil
}

// Resolve reads the configuration as seen from a directory. getenv is os.Getenv
// but for tests. Problems are *Error.
func Resolve(dir string, call Overrides, getenv func(string) string) (Config, error) {
	c := Config{said: map[string]string{"backend": Local, "namespace": events.DefaultNamespace}, origins: make(map[string]origin)}
	for _, setting := range settings {
		c.origins[setting.name] = origin{name: "default"}
	}
	if home := dataHome(getenv); home != "" {
		c.said["store"] = filepath.Join(home, "tally")
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
	environment := make(map[string]string)
	for _, setting := range settings {
		if setting.variable != "" {
			environment[setting.name] = getenv(setting.variable)
		}
	}
	c.take(environment, variable)
	c.choose(environment)
	if call.Backend == "" && call.Store != "" && call.URL+call.Context != "" {
		return c, &Error{File: "call", Field: "store", Reason: "a store directory and a server were given: want one of them"}
	}
	c.take(call.said(), func(string) origin { return origin{name: "call"} })
	c.choose(call.said())
	c.takeForeign(getenv)
	if err := c.original(dir, getenv); err != nil {
		return c, err
	}
	return c, c.fill(getenv)
}

// settings are what can be said: by which name, where in a file, in which variable.
var settings = []struct {
	name     string
	key      toml.Key
	variable string // "": in none of tally's
}{
	{"backend", toml.Key{"store", "backend"}, "TALLY_BACKEND"},
	{"store", toml.Key{"store", "dir"}, "TALLY_STORE"},
	{"segment", toml.Key{"store", "segment"}, "TALLY_SEGMENT"},
	{"min_durability", toml.Key{"store", "min_durability"}, "TALLY_MIN_DURABILITY"},
	{"namespace", toml.Key{"namespace"}, "TALLY_NAMESPACE"},
	{"url", toml.Key{"nats", "url"}, "TALLY_SERVER"},
	{"context", toml.Key{"nats", "context"}, "TALLY_CONTEXT"},
	{"user", toml.Key{"nats", "user"}, ""},
	{"password", toml.Key{"nats", "password"}, ""},
	{"token", toml.Key{"nats", "token"}, ""},
	{"creds", toml.Key{"nats", "creds"}, ""},
	{"nkey", toml.Key{"nats", "nkey"}, ""},
	{"ca", toml.Key{"nats", "ca"}, ""},
	{"cert", toml.Key{"nats", "cert"}, ""},
	{"key", toml.Key{"nats", "key"}, ""},
	{"inbox_prefix", toml.Key{"nats", "inbox_prefix"}, ""},
	{"system_context", toml.Key{"nats", "system_context"}, ""},
	{"replicas", toml.Key{"nats", "replicas"}, ""},
}

func variable(setting string) origin {
	for _, s := range settings {
		if s.name == setting {
			return origin{name: s.variable}
		}
	}
	panic("config: there is no setting " + setting)
}

func keyOf(setting string) toml.Key {
	for _, s := range settings {
		if s.name == setting {
			return s.key
		}
	}
	panic("config: there is no setting " + setting)
}

// take takes over what is given; from says where each setting was. Who names
// another server does not mean the credentials of the one before.
func (c *Config) take(given map[string]string, from func(setting string) origin) {
	if given["url"] != "" || given["context"] != "" {
		for _, s := range settings {
			if s.key[0] == "nats" && s.name != "replicas" {
				delete(c.said, s.name)
			}
		}
	}
	for name, value := range given {
		if value != "" {
			c.said[name], c.origins[name] = value, from(name)
		}
	}
	if given["backend"] == "" && given["store"] != "" { // a store that is named closer than the backend
		c.said["backend"], c.origins["backend"] = Local, from("store")
	}
}

// choose has a server that is named closer than the backend mean one: in a variable
// or the call, as in a file it does not.
func (c *Config) choose(given map[string]string) {
	if given["backend"] != "" || given["store"] != "" {
		return
	}
	for _, name := range []string{"url", "context"} {
		if given[name] != "" {
			c.said["backend"], c.origins["backend"] = NATS, c.origins[name]
		}
	}
}

// wrong is the error of a setting, at its place.
func (c *Config) wrong(setting, field, format string, args ...any) error {
	at := c.origins[setting]
	return &Error{File: at.name, Line: at.line, Field: field, Reason: fmt.Sprintf(format, args...)}
}

// fill sets the fields to what was said, and holds that to what it can be.
func (c *Config) fill(getenv func(string) string) error {
	c.Backend, c.Store, c.Namespace = c.said["backend"], c.said["store"], c.said["namespace"]
	if err := events.ValidateNamespace(c.Namespace); err != nil {
		return c.wrong("namespace", "namespace", "%q: want 1 to 64 of [A-Za-z0-9_-]", c.Namespace)
	}
	if d := c.said["min_durability"]; d != "" && c.MinDurability.UnmarshalText([]byte(d)) != nil {
		return c.wrong("min_durability", "store.min_durability", "%q: want buffered, durable or replicated", d)
	}
	switch c.Backend {
	case Memory:
		return nil
	case Local:
		return c.fillLocal()
	case NATS:
		return c.fillNATS(getenv)
	}
	return c.wrong("backend", "store.backend", "%q: want local, memory or nats", c.Backend)
}

func (c *Config) fillLocal() (err error) {
	if c.Store == "" {
		return &Error{File: "environment", Field: "HOME", Reason: "not set, and no store directory was given: use --store or TALLY_STORE"}
	}
	if c.Store, err = filepath.Abs(c.Store); err != nil {
		return c.wrong("store", "store.dir", "%v", err)
	}
	if c.Segment, err = parseSize(c.said["segment"]); err != nil {
		return c.wrong("segment", "store.segment", "%q: want a number of bytes, or of KiB, MiB or GiB", c.said["segment"])
	}
	return nil
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

// read takes over what a file says; that it does not exist is not an error.
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
	c.take(f.said(filepath.Dir(path)), func(setting string) origin {
		return origin{path, lineOf(string(data), keyOf(setting))}
	})
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

// findUp returns the nearest tally.toml at or above a directory, "" if there is
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

// Variables lists the variables that say where a store or a server is, or how to get at
// it: tally's own, those of tally-evals, and those of the nats command. Besides them the
// product finds its files by HOME and the XDG variables.
func Variables() []string {
	list := []string{pathVariable, backendVariable}
	for _, s := range settings {
		if s.variable != "" {
			list = append(list, s.variable)
		}
	}
	return slices.Sorted(slices.Values(slices.AppendSeq(list, maps.Values(foreignVariables))))
}
