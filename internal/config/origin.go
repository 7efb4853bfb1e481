package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tallylog/tally/internal/sealed"
)

// Setting is a setting with its value and origin.
type Setting struct {
	Name   string `json:"name"`  // as in a file, for example store.dir
	Value  string `json:"value"` // "" if not set; a fixed text for a secret
	Origin Origin `json:"origin"`
	Used   bool   `json:"used"` // the backend uses the setting
}

// Origin is where a setting comes from.
type Origin struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name,omitempty"` // the flag, the variable, or the path of the file
	Line int    `json:"line,omitempty"` // in the file; 0 if unknown or not a file
}

// String returns the origin as text for people.
func (o Origin) String() string {
	switch {
	case o.Kind == FromDefault:
		return "default"
	case o.Kind == FromVariable:
		return "$" + o.Name
	case o.Line > 0:
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	}
	return o.Name
}

// Kind is a kind of origin.
type Kind string

// The kinds, in order of precedence.
const (
	FromFlag     Kind = "flag"
	FromVariable Kind = "variable"
	FromFile     Kind = "file" // tally.toml, config.toml, or a context of the nats command
	FromDefault  Kind = "default"
)

// File is a configuration file that Resolve looked for.
type File struct {
	Path string `json:"path"`
	Read bool   `json:"read"` // false if the file does not exist
}

// hidden is shown in place of a secret.
const hidden = "(set, not shown)"

// Settings lists all settings with their values and origins. Secrets are not shown. After an error of Resolve, the list
// has the settings read so far.
func (c Config) Settings() []Setting {
	var list []Setting
	add := func(s setting, value string) {
		if s.secret && value != "" {
			value = hidden
		}
		from := Origin{Kind: FromDefault} // also for a value that belongs to another server
		if value != "" {
			from = c.origin(s)
		}
		list = append(list, Setting{s.key, value, from, c.uses(s)})
	}
	for _, s := range slices.Concat(settings, elsewhere) {
		switch value := c.said[s.name]; s.name {
		case "url":
			add(s, withoutSecrets(value))
		case "store":
			add(s, cmp.Or(c.Store, value)) // c.Store is absolute
		case "base":
			add(s, c.Base)
		case "keys":
			s.secret = sealed.IsKey(value) // the user mistook the variable for that of the key
			add(s, value)
		default:
			add(s, value)
		}
	}
	return append(list, c.listed()...)
}

// uses reports whether the backend uses a setting.
func (c Config) uses(s setting) bool {
	switch {
	case strings.HasPrefix(s.key, "nats."):
		return c.said["backend"] == NATS
	case s.name == "store" || s.name == "segment":
		return c.said["backend"] == Local
	}
	return true
}

// elsewhere are settings without a key in tally's own files.
var elsewhere = []setting{
	{name: "jwt", key: "nats.user_jwt", secret: true},
	{name: "seed", key: "nats.user_seed", secret: true},
	{name: "base", key: "base"},
	{name: "keys", key: "secrets.key_file"},
}

// Files lists the configuration files that Resolve looked for, those of higher precedence last. It includes a context
// of the nats command if a setting comes from there.
func (c Config) Files() []File { return slices.Clone(c.files) }

func (c Config) origin(s setting) Origin {
	at := c.origins[s.name]
	switch {
	case at.name == "" || at.name == "default":
		return Origin{Kind: FromDefault}
	case at.name == "call":
		return Origin{Kind: FromFlag, Name: c.flag(s)}
	case strings.ContainsAny(at.name, `/\`):
		return Origin{FromFile, at.name, at.line}
	}
	return Origin{Kind: FromVariable, Name: at.name}
}

// flag returns the flag that gave a setting. A backend may follow from the flag of the store or of the server.
func (c Config) flag(s setting) string {
	if s.name != "backend" {
		return s.flag
	}
	for _, name := range []string{"store", "url", "context"} {
		if c.origins[name].name == "call" {
			return settingOf(name).flag
		}
	}
	return ""
}

// withoutSecrets returns URLs without user names, passwords and tokens.
func withoutSecrets(urls string) string {
	list := strings.Split(urls, ",")
	for i, text := range list {
		at := strings.LastIndex(text, "@")
		if at < 0 {
			continue
		}
		scheme, _, ok := strings.Cut(text, "://")
		if !ok || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, scheme) {
			list[i] = "xxxxx" + text[at:] // the part before @ may contain anything
			continue
		}
		list[i] = scheme + "://xxxxx" + text[at:]
	}
	return strings.Join(list, ",")
}
