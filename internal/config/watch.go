package config

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/tallylog/tally/events"
)

// Watch is a folder to follow, besides those in which agents keep their sessions.
type Watch struct {
	Root      string // absolute
	Agent     string // "": detected from the content
	Namespace string // "": as for other sessions
	Redact    *bool  // nil: the default of the command
	Origin    Origin
}

// String returns the folder and its settings as text for people.
func (w Watch) String() string {
	text := w.Root
	for _, part := range []struct{ name, value string }{{"agent", w.Agent}, {"namespace", w.Namespace}} {
		if part.value != "" {
			text += " " + part.name + "=" + part.value
		}
	}
	if w.Redact != nil {
		text += fmt.Sprintf(" redact=%t", *w.Redact)
	}
	return text
}

// Pattern is a regular expression that matches text which must not be stored.
type Pattern struct{ Name, Regexp string }

// Redact is the text to remove from lines, besides the known formats of secrets. Settings of several files add up, so a
// project cannot remove those of the user.
type Redact struct {
	Patterns []Pattern
	Env      []string // names of variables whose values are secrets

	patterns, env Origin // origins of the last settings
}

// Sections of a file that contain lists.
const (
	watchSection  = "watch"
	redactSection = "redact"
)

// isList reports whether lists reads the section of a key.
func isList(key toml.Key) bool {
	return key[0] == watchSection || key[0] == redactSection || key[0] == daemonsSection || key[0] == retainSection || key[0] == treeSection
}

// lists applies the sections that contain lists.
func (c *Config) lists(path, text string, all map[string]any) error {
	if err := c.takeWatch(path, text, all[watchSection]); err != nil {
		return err
	}
	if err := c.takeRetain(path, text, all[retainSection]); err != nil {
		return err
	}
	if err := c.takeDaemons(path, text, all[daemonsSection]); err != nil {
		return err
	}
	if err := c.takeTrees(path, text, all[treeSection]); err != nil {
		return err
	}
	return c.takeRedact(path, text, all[redactSection])
}

func (c *Config) takeWatch(path, text string, value any) error {
	list, err := tablesOf(value)
	if err != nil {
		return &Error{File: path, Line: lineOf(text, toml.Key{watchSection}), Field: watchSection, Reason: err.Error()}
	}
	for i, table := range list {
		w := Watch{Origin: Origin{FromFile, path, nthLine(text, "[["+watchSection+"]]", i)}}
		for _, name := range slices.Sorted(maps.Keys(table)) {
			if err := w.take(c.home, filepath.Dir(path), name, table[name]); err != nil {
				return &Error{File: path, Line: w.Origin.Line, Field: watchSection + "." + name, Reason: err.Error()}
			}
		}
		if w.Root == "" {
			return &Error{File: path, Line: w.Origin.Line, Field: watchSection + ".root", Reason: "missing: want a folder"}
		}
		if c.isProjects(path) && !isWithin(c.Project, w.Root) {
			return &Error{File: path, Line: w.Origin.Line, Field: watchSection + ".root",
				Reason: w.Root + " is outside of the project: only your own config.toml may name it, or the call"}
		}
		if c.isProjects(path) && w.Namespace == events.PersonalNamespace {
			return &Error{File: path, Line: w.Origin.Line, Field: watchSection + ".namespace", Reason: notPersonal}
		}
		c.Watch = append(c.Watch, w)
	}
	return nil
}

// take applies one setting of an entry. Paths are relative to dir.
func (w *Watch) take(home, dir, name string, value any) error {
	if name == "redact" {
		on, ok := value.(bool)
		if !ok {
			return errors.New("want true or false")
		}
		w.Redact = &on
		return nil
	}
	text, ok := value.(string)
	if !ok || text == "" {
		return errors.New("want a string")
	}
	switch name {
	case "root":
		w.Root = pathIn(home, dir, text)
	case "agent":
		w.Agent = text
	case "namespace":
		w.Namespace = text
		if events.ValidateNamespace(text) != nil {
			return fmt.Errorf("%q: want 1 to 64 of [A-Za-z0-9_-]", text)
		}
	default:
		return errors.New("there is no such setting")
	}
	return nil
}

func (c *Config) takeRedact(path, text string, value any) error {
	if value == nil {
		return nil
	}
	table, ok := value.(map[string]any)
	if !ok {
		return &Error{File: path, Line: lineOf(text, toml.Key{redactSection}), Field: redactSection, Reason: "want a section"}
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		value := table[name]
		at := Origin{FromFile, path, lineOf(text, toml.Key{redactSection, name})}
		var err error
		switch name {
		case "patterns":
			c.Redact.patterns = at
			err = c.Redact.takePatterns(value)
		case "env":
			c.Redact.env = at
			err = c.Redact.takeEnv(value)
		default:
			err = errors.New("there is no such setting")
		}
		if err != nil {
			return &Error{File: path, Line: at.Line, Field: redactSection + "." + name, Reason: err.Error()}
		}
	}
	return nil
}

// takePatterns applies the list of expressions. An expression without a name is named by its number.
func (r *Redact) takePatterns(value any) error {
	list, ok := value.([]any)
	if tables, isTables := value.([]map[string]any); isTables {
		for _, t := range tables {
			list = append(list, t)
		}
		ok = true
	}
	if !ok {
		return errPatterns
	}
	for _, item := range list {
		p := Pattern{Name: fmt.Sprintf("pattern-%d", len(r.Patterns)+1)}
		switch v := item.(type) {
		case string:
			p.Regexp = v
		case map[string]any:
			name, named := v["name"].(string)
			text, said := v["regexp"].(string)
			if !named || !said || len(v) != 2 {
				return errPatterns
			}
			p = Pattern{name, text}
		}
		if p.Regexp == "" {
			return errPatterns
		}
		r.Patterns = append(r.Patterns, p)
	}
	return nil
}

var errPatterns = errors.New(`want a list of regular expressions, each a string or {name = "...", regexp = "..."}`)

func (r *Redact) takeEnv(value any) error {
	list, ok := value.([]any)
	for _, item := range list {
		name, isText := item.(string)
		if ok = ok && isText && name != "" && !strings.Contains(name, "="); ok {
			r.Env = append(r.Env, name)
		}
	}
	if !ok {
		return errors.New("want a list of names of variables")
	}
	return nil
}

// tablesOf returns the tables of a list, which may be missing.
func tablesOf(value any) (list []map[string]any, err error) {
	switch v := value.(type) {
	case nil:
	case []map[string]any:
		return v, nil
	case []any:
		for _, item := range v {
			table, ok := item.(map[string]any)
			if !ok {
				return nil, errTables
			}
			list = append(list, table)
		}
	default:
		return nil, errTables
	}
	return list, nil
}

var errTables = errors.New("want sections [[watch]]")

// nthLine returns the number of the nth line that begins with a header, or 0.
func nthLine(text, header string, n int) int {
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.NewReplacer(" ", "", "\t", "").Replace(line), header) {
			if n == 0 {
				return i + 1
			}
			n--
		}
	}
	return 0
}

// listed returns the settings that are lists, for Settings.
func (c Config) listed() (list []Setting) {
	var patterns []string
	for _, p := range c.Redact.Patterns {
		patterns = append(patterns, p.Name+"="+p.Regexp)
	}
	if len(patterns) > 0 {
		list = append(list, Setting{"redact.patterns", strings.Join(patterns, " "), c.Redact.patterns, true})
	}
	if len(c.Redact.Env) > 0 {
		list = append(list, Setting{"redact.env", strings.Join(c.Redact.Env, " "), c.Redact.env, true})
	}
	for _, w := range c.Watch {
		list = append(list, Setting{watchSection, w.String(), w.Origin, true})
	}
	for _, t := range c.Trees {
		list = append(list, Setting{treeSection, t.String(), t.Origin, true})
	}
	return append(append(list, c.Daemons.settings()...), c.retained()...)
}
