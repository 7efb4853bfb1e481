// Package config reads the configuration: where a store is and how to connect to it. A setting is taken from the first
// of these that has it: flag, environment variable, the nearest tally.toml, $XDG_CONFIG_HOME/tally/config.toml, the
// variables of the nats command, default.
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
	Local  = "local"  // a directory on this machine, served by this process or by the process that owns it
	Memory = "memory" // nothing outlives the process
	NATS   = "nats"   // a NATS server
)

// Config is the configuration of a program. After Resolve, every setting that the backend needs has a value.
type Config struct {
	Backend       string
	Store         string // directory of a local store
	Namespace     string
	Server        Server            // for backend nats
	Segment       uint64            // size of a segment of a local store's log, in bytes; 0: the default of package embedded
	MinDurability log.Durability    // minimal durability of an acknowledged event
	Project       string            // directory of the nearest tally.toml, "" without one
	Base          string            // folder of the layout of tally-evals; default .tally in the project
	Watch         []Watch           // folders to follow, besides those of the agents themselves
	Redact        Redact            // text to remove from followed files before it is stored
	Daemons       Daemons           // background workers of a process that keeps the store open
	Retain        map[string]Retain // how long sessions are kept, by namespace; "": of the others
	Trees         []Tree            // folders and servers that hold sessions and documents as files
	Notices       []Notice

	home    string // "": unknown
	outside string // namespace without the project's file
	said    map[string]string
	origins map[string]origin
	files   []File
}

// origin is where a setting comes from: a line of a file, or with line 0 the name of a variable, "call" or "default".
type origin struct {
	name string
	line int
}

// Overrides are settings given by flags; "" means not given.
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

// Error reports an invalid setting: its file or variable, line, name, and the reason.
type Error struct {
	File   string // or the name of a variable; "call" for a flag
	Line   int    // 0: no single line
	Field  string // "" if the whole file is invalid
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

// Resolve reads the configuration for a working directory. getenv is os.Getenv except in tests. All errors are *Error.
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
	namespaces := make(map[string]string) // by file: the namespace that it names
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

// setting describes a setting: its name, its key in a file, and its variable and flag, if any. A relative path in a
// file is relative to the folder of the file. Secrets are never shown.
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

// settingOf returns the setting with a name. The name must exist.
func settingOf(name string) setting {
	return settings[slices.IndexFunc(settings, func(s setting) bool { return s.name == name })]
}

func variable(name string) origin { return origin{name: settingOf(name).variable} }

// in converts the value of the setting in a file of a directory to text.
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

// take applies values from one source; from returns the origin of each. If a source names a server, credentials for
// another server from earlier sources are dropped.
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
	if given["backend"] == "" && given["store"] != "" { // a store overrides a backend from a source of lower rank
		c.said["backend"], c.origins["backend"] = Local, from("store")
	}
}

// choose selects the backend nats if a variable or a flag names a server and no backend. In a file, a server does not
// select the backend.
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

// wrong returns an error about a setting, with its file and line.
func (c *Config) wrong(name, format string, args ...any) error {
	at := c.origins[name]
	return &Error{File: at.name, Line: at.line, Field: settingOf(name).key, Reason: fmt.Sprintf(format, args...)}
}

// fill sets the fields of c and validates them.
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

// ParseSize parses a positive number of bytes such as 8388608 or 8MiB. It returns 0 for "".
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
		return 0, errors.New("want a size")
	}
	return n * unit, nil
}

// read applies the settings of a file. A missing file is not an error.
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
		line := max(parse.Position.Line, 1) // the parser reports 0 for an unterminated key in the first line
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
			err = errors.New("the setting occurs twice")
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

// settingIn returns the name and the value of the setting under a key of a file. For a section it returns no name.
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

// lineOf returns the line that sets a key or begins its section, or 0.
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

// findUp returns the path of the nearest tally.toml in a directory or above it, or "".
func findUp(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		if resolved, err := filepath.EvalSymlinks(dir); err == nil {
			dir = resolved
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

// upward yields a directory and its parents.
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

// SettingsFolder returns the folder of the user's own settings, or "" if the home directory is unknown. It need not
// exist. getenv is os.Getenv except in tests.
func SettingsFolder(getenv func(string) string) string {
	base := configHome(getenv)
	if base == "" {
		return ""
	}
	return filepath.Join(base, "tally")
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

// Variables lists the environment variables that name a store, a server, credentials or the file of keys: those of
// tally, tally-evals and the nats command. In addition, programs find their files by HOME and the XDG variables.
func Variables() []string {
	list := []string{pathVariable, backendVariable, sealed.Variable}
	for _, s := range settings {
		if s.variable != "" {
			list = append(list, s.variable)
		}
	}
	return slices.Sorted(slices.Values(slices.AppendSeq(list, maps.Values(foreignVariables))))
}
