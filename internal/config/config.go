// Package config finds out where a store is and how to get at it. What is said
// closest to the call wins: flag, environment, the nearest tally.toml,
// $XDG_CONFIG_HOME/tally/config.toml, the variables of the nats command, default.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/sealed"
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
	Watch         []Watch        // folders that are followed besides those of the agents themselves
	Redact        Redact         // what is not stored of what is followed
	Daemons       Daemons        // that a process runs which keeps the store open
	Trees         []Tree         // places in which sessions and documents are files
	Notices       []Notice

	home    string // "": not known
	outside string // the namespace as it would be without the project
	said    map[string]string
	origins map[string]origin
	files   []File
}

// origin is a line of a file, or the name of something else with line 0.
type origin struct {
	name string
	line int
}

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

// Resolve reads the configuration as seen from a directory. getenv is os.Getenv
// but for tests. Problems are *Error.
func Resolve(dir string, call Overrides, getenv func(string) string) (Config, error) {
	c := Config{said: map[string]string{"backend": Local, "namespace": events.DefaultNamespace}, origins: make(map[string]origin)}
	for _, s := range settings {
		c.origins[s.name] = origin{name: "default"}
	}
	c.home, c.Daemons.Run = cmp.Or(getenv("HOME"), getenv("USERPROFILE")), daemonNames
	if home := dataHome(getenv); home != "" {
		c.said["store"] = filepath.Join(home, "tally")
	}
	c.takeKeys(dir, getenv)
	if base := configHome(getenv); base != "" {
		if err := c.read(filepath.Join(base, "tally", "config.toml")); err != nil {
			return c, err
		}
	}
	c.outside = c.said["namespace"]
	namespaces := make(map[string]string) // of those that files name
	for _, f := range c.files {
		namespaces[f.Path] = c.outside
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
		namespaces[path] = c.said["namespace"]
	}
	environment := make(map[string]string)
	for _, s := range settings {
		if s.variable != "" {
			environment[s.name] = getenv(s.variable)
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
	if err := c.fill(getenv); err != nil {
		return c, err
	}
	return c, c.fillTrees(namespaces)
}

// setting is something that can be said: by which name, under which key of a file, in
// which variable of tally's own and by which flag, if any. A path in a file is relative to
// its folder. A secret is never shown.
type setting struct {
	name, key, variable, flag string
	path, secret              bool
}

var settings = []setting{
	{name: "backend", key: "store.backend", variable: "TALLY_BACKEND"},
	{name: "store", key: "store.dir", variable: "TALLY_STORE", flag: "--store", path: true},
	{name: "segment", key: "store.segment", variable: "TALLY_SEGMENT"},
	{name: "min_durability", key: "store.min_durability", variable: "TALLY_MIN_DURABILITY", flag: "--min-durability"},
	{name: "namespace", key: "namespace", variable: "TALLY_NAMESPACE", flag: "--namespace"},
	{name: "url", key: "nats.url", variable: "TALLY_SERVER", flag: "--server"},
	{name: "context", key: "nats.context", variable: "TALLY_CONTEXT", flag: "--context"},
	{name: "user", key: "nats.user"},
	{name: "password", key: "nats.password", secret: true},
	{name: "token", key: "nats.token", secret: true},
	{name: "creds", key: "nats.creds", path: true},
	{name: "nkey", key: "nats.nkey", path: true},
	{name: "ca", key: "nats.ca", path: true},
	{name: "cert", key: "nats.cert", path: true},
	{name: "key", key: "nats.key", path: true},
	{name: "inbox_prefix", key: "nats.inbox_prefix"},
	{name: "system_context", key: "nats.system_context"},
	{name: "replicas", key: "nats.replicas"},
}

// settingOf returns a setting by its name, which is one.
func settingOf(name string) setting {
	return settings[slices.IndexFunc(settings, func(s setting) bool { return s.name == name })]
}

func variable(name string) origin { return origin{name: settingOf(name).variable} }

// in returns what a file in a directory says of the setting.
func (s setting) in(dir string, value any) (string, error) {
	if s.name == "replicas" {
		n, ok := value.(int64)
		if !ok || n < 1 || n > 5 {
			return "", errors.New("want a number from 1 to 5")
		}
		return strconv.FormatInt(n, 10), nil
	}
	text, ok := value.(string)
	if !ok {
		return "", errors.New("want a string")
	}
	if s.path && text != "" && !filepath.IsAbs(text) {
		text = filepath.Join(dir, text)
	}
	return text, nil
}

// take takes over what is given; from says where each setting was. Who names
// another server does not mean the credentials of the one before.
func (c *Config) take(given map[string]string, from func(setting string) origin) {
	if given["url"] != "" || given["context"] != "" {
		for _, s := range settings {
			if strings.HasPrefix(s.key, "nats.") && s.name != "replicas" {
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
func (c *Config) wrong(name, format string, args ...any) error {
	at := c.origins[name]
	return &Error{File: at.name, Line: at.line, Field: settingOf(name).key, Reason: fmt.Sprintf(format, args...)}
}

// fill sets the fields to what was said, and holds that to what it can be.
func (c *Config) fill(getenv func(string) string) error {
	c.Backend, c.Store, c.Namespace = c.said["backend"], c.said["store"], c.said["namespace"]
	if err := events.ValidateNamespace(c.Namespace); err != nil {
		return c.wrong("namespace", "%q: want 1 to 64 of [A-Za-z0-9_-]", c.Namespace)
	}
	if d := c.said["min_durability"]; d != "" && c.MinDurability.UnmarshalText([]byte(d)) != nil {
		return c.wrong("min_durability", "%q: want buffered, durable or replicated", d)
	}
	switch c.Backend {
	case Memory:
		return nil
	case Local:
		return c.fillLocal()
	case NATS:
		return c.fillNATS(getenv)
	}
	return c.wrong("backend", "%q: want local, memory or nats", c.Backend)
}

func (c *Config) fillLocal() (err error) {
	if c.Store == "" {
		return &Error{File: "environment", Field: "HOME", Reason: "not set, and no store directory was given: use --store or TALLY_STORE"}
	}
	if c.Store, err = filepath.Abs(c.Store); err != nil {
		return c.wrong("store", "%v", err)
	}
	if c.Segment, err = ParseSize(c.said["segment"]); err != nil {
		return c.wrong("segment", "%q: want a number of bytes, or of KiB, MiB or GiB", c.said["segment"])
	}
	return nil
}

// ParseSize reads a number of bytes such as 8388608 or 8MiB, more than 0; "" is 0.
func ParseSize(s string) (uint64, error) {
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
	c.files = append(c.files, File{path, err == nil})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &Error{File: path, Reason: err.Error()}
	}
	var all map[string]any
	meta, err := toml.Decode(string(data), &all)
	if err != nil {
		parse, _ := errors.AsType[toml.ParseError](err)
		line := max(parse.Position.Line, 1) // it is 0 where a quoted key of the first line does not end
		return &Error{File: path, Line: line, Field: parse.LastKey, Reason: cmp.Or(parse.Message, err.Error())}
	}
	said, lines := make(map[string]string), make(map[string]int)
	for _, key := range meta.Keys() {
		if isList(key) {
			continue
		}
		line := lineOf(string(data), key)
		name, text, err := settingIn(all, key, filepath.Dir(path))
		if _, twice := said[name]; err == nil && twice {
			err = errors.New("is there twice")
		}
		if err != nil {
			return &Error{File: path, Line: line, Field: key.String(), Reason: err.Error()}
		}
		if name != "" {
			said[name], lines[name] = text, line
		}
	}
	if c.isProjects(path) && said["namespace"] == events.PersonalNamespace {
		return &Error{File: path, Line: lines["namespace"], Field: "namespace", Reason: notPersonal}
	}
	c.take(said, func(name string) origin { return origin{path, lines[name]} })
	return c.lists(path, string(data), all)
}

// settingIn returns the setting under a key of a file in a directory, and what it says;
// no name for a section.
func settingIn(file map[string]any, key toml.Key, dir string) (name, text string, err error) {
	table, last := file, len(key)-1
	for _, part := range key[:last] {
		table, _ = table[part].(map[string]any)
	}
	value := table[key[last]]
	if full := key.String(); strings.EqualFold(full, "store") || strings.EqualFold(full, "nats") {
		if _, ok := value.(map[string]any); !ok {
			err = errors.New("want a section")
		}
		return "", "", err
	}
	i := slices.IndexFunc(settings, func(s setting) bool { return strings.EqualFold(s.key, key.String()) })
	if i < 0 {
		return "", "", errors.New("there is no such setting")
	}
	text, err = settings[i].in(dir, value)
	return settings[i].name, text, err
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
	for dir := range upward(dir) {
		if path := filepath.Join(dir, FileName); isFile(path) {
			return path, nil
		}
	}
	return "", nil
}

// upward yields a directory and those above it.
func upward(dir string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for yield(dir) && filepath.Dir(dir) != dir {
			dir = filepath.Dir(dir)
		}
	}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
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
	home := cmp.Or(getenv("HOME"), getenv("USERPROFILE"))
	if home == "" {
		return ""
	}
	return filepath.Join(append([]string{home}, below...)...)
}

// Variables lists the variables that say where a store or a server is, how to get at it,
// and which file has the keys of secrets: tally's own, those of tally-evals, and those of the
// nats command. Besides them the
// product finds its files by HOME and the XDG variables.
func Variables() []string {
	list := []string{pathVariable, backendVariable, sealed.Variable}
	for _, s := range settings {
		if s.variable != "" {
			list = append(list, s.variable)
		}
	}
	return slices.Sorted(slices.Values(slices.AppendSeq(list, maps.Values(foreignVariables))))
}
