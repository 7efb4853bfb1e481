package config

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/tallylog/tally/events"
)

// Retain says how long sessions are kept after their last record. Only the user decides it: a project's file cannot.
type Retain struct {
	Sessions time.Duration // conversations and transcripts; 0: for ever
	Jobs     time.Duration // jobs; 0: for ever

	origins map[string]Origin
}

const retainSection = "retain"

func (c *Config) takeRetain(path, text string, value any) error {
	if value == nil {
		return nil
	}
	wrong := func(key toml.Key, err error) error {
		return &Error{File: path, Line: lineOf(text, key), Field: key.String(), Reason: err.Error()}
	}
	table, ok := value.(map[string]any)
	switch {
	case !ok:
		return wrong(toml.Key{retainSection}, errors.New("want a section"))
	case c.isProjects(path):
		return wrong(toml.Key{retainSection}, errors.New("only your own config.toml may say how long something is kept"))
	}
	rules := make(map[string]Retain)
	take := func(namespace, name string, value any, key toml.Key) error {
		r := rules[namespace]
		window := map[string]*time.Duration{"sessions": &r.Sessions, "jobs": &r.Jobs}[name]
		text1, isText := value.(string)
		switch {
		case window == nil:
			return wrong(key, errors.New("there is no such setting"))
		case !isText:
			return wrong(key, errWindow)
		}
		var err error
		if *window, err = parseWindow(text1); err != nil {
			return wrong(key, err)
		}
		r.origins = maps.Clone(r.origins)
		if r.origins == nil {
			r.origins = make(map[string]Origin)
		}
		r.origins[name] = Origin{FromFile, path, lineOf(text, key)}
		rules[namespace] = r
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		own, isTable := table[name].(map[string]any)
		if !isTable {
			if err := take("", name, table[name], toml.Key{retainSection, name}); err != nil {
				return err
			}
			continue
		}
		if err := events.ValidateNamespace(name); err != nil {
			return wrong(toml.Key{retainSection, name}, err)
		}
		rules[name] = Retain{}
		for _, field := range slices.Sorted(maps.Keys(own)) {
			if err := take(name, field, own[field], toml.Key{retainSection, name, field}); err != nil {
				return err
			}
		}
	}
	c.Retain = rules
	return nil
}

// retained lists the settings of the section.
func (c Config) retained() (list []Setting) {
	for _, namespace := range slices.Sorted(maps.Keys(c.Retain)) {
		r, prefix := c.Retain[namespace], retainSection+"."
		if namespace != "" {
			prefix += namespace + "."
		}
		for _, s := range []struct {
			name  string
			value time.Duration
		}{{"sessions", r.Sessions}, {"jobs", r.Jobs}} {
			if at, said := r.origins[s.name]; said {
				list = append(list, Setting{prefix + s.name, s.value.String(), at, true})
			}
		}
	}
	return list
}
