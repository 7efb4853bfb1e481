package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tallylog/tally/internal/sealed"
)

// Setting is something that can be said, what counts of it, and who said that.
type Setting struct {
	Name   string `json:"name"`  // as in a file: store.dir
	Value  string `json:"value"` // "": nobody said anything; of a secret, that there is one
	Origin Origin `json:"origin"`
	Used   bool   `json:"used"` // by the backend
}

// Origin is where a setting was said.
type Origin struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name,omitempty"` // the flag, the variable, or the path of the file
	Line int    `json:"line,omitempty"` // of the file; 0: not known, or no file
}

// String says it for people.
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

// Kinds, the closest to the call first.
const (
	FromFlag     Kind = "flag"
	FromVariable Kind = "variable"
	FromFile     Kind = "file" // tally.toml, config.toml, or a context of the nats command
	FromDefault  Kind = "default"
)

// File is a file that was looked for.
type File struct {
	Path string `json:"path"`
	Read bool   `json:"read"` // else it is not there
}

// hidden stands for a secret.
const hidden = "(set, not shown)"

// Settings lists what can be said, with what counts and who said it. Secrets are left out
// of it. After an error of Resolve it is what was known until then.
func (c Config) Settings() []Setting {
	var list []Setting
	add := func(s setting, value string) {
		if s.secret && value != "" {
			value = hidden
		}
		from := Origin{Kind: FromDefault} // also of what was said of another server
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
			add(s, cmp.Or(c.Store, value)) // which is absolute
		case "base":
			add(s, c.Base)
		case "keys":
			s.secret = sealed.IsKey(value) // somebody took it for the variable of the key
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

// elsewhere are settings that no file of tally's has.
var elsewhere = []setting{
	{name: "jwt", key: "nats.user_jwt", secret: true},
	{name: "seed", key: "nats.user_seed", secret: true},
	{name: "base", key: "base"},
	{name: "keys", key: "secrets.key_file"},
}

// Files lists the files of settings that were looked for, the one that counts most last; a
// context of the nats command is named where something of it counts.
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

// flag names the flag by which a setting was given: its own, or that of the store or the
// server that a backend follows from.
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

// withoutSecrets returns URLs without what they say of who connects: that may be a token.
func withoutSecrets(urls string) string {
	list := strings.Split(urls, ",")
	for i, text := range list {
		at := strings.LastIndex(text, "@")
		if at < 0 {
			continue
		}
		scheme, _, ok := strings.Cut(text, "://")
		if !ok || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, scheme) {
			list[i] = "xxxxx" + text[at:] // nobody knows what is in front
			continue
		}
		list[i] = scheme + "://xxxxx" + text[at:]
	}
	return strings.Join(list, ",")
}
