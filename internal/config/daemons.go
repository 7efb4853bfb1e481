package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// Daemons configures the background workers of a process that keeps a store open: see package stores/tavern. A
// project's file can only switch workers off. Only the user decides how long data of stopped agents are kept.
type Daemons struct {
	Run     []string      // names of the workers that run; default all
	Archive time.Duration // time from the stop of an agent until it is archived; 0: never
	Purge   time.Duration // time from there until it is purged; 0: never
	Orphans time.Duration // time from the disappearance of an owner until its work is taken away; 0: never

	origins map[string]Origin
}

const daemonsSection = "daemons"

// daemonNames are the names of all workers.
var daemonNames = []string{"delivery", "dispatch", "janitor", "retain"}

func (c *Config) takeDaemons(path, text string, value any) error {
	if value == nil {
		return nil
	}
	table, ok := value.(map[string]any)
	if !ok {
		return &Error{File: path, Line: lineOf(text, toml.Key{daemonsSection}), Field: daemonsSection, Reason: "want a section"}
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		at := Origin{FromFile, path, lineOf(text, toml.Key{daemonsSection, name})}
		if err := c.Daemons.take(name, table[name], c.isProjects(path)); err != nil {
			return &Error{File: path, Line: at.Line, Field: daemonsSection + "." + name, Reason: err.Error()}
		}
		if c.Daemons.origins == nil {
			c.Daemons.origins = make(map[string]Origin)
		}
		c.Daemons.origins[name] = at
	}
	return nil
}

// take applies one setting of a project's file or of the user's own file.
func (d *Daemons) take(name string, value any, project bool) (err error) {
	window := map[string]*time.Duration{"archive": &d.Archive, "purge": &d.Purge, "orphans": &d.Orphans}[name]
	switch {
	case name == "run":
		return d.takeRun(value)
	case window == nil:
		return errors.New("there is no such setting")
	case project:
		return errors.New("only your own config.toml may say how long something is kept")
	}
	text, ok := value.(string)
	if !ok {
		return errWindow
	}
	*window, err = parseWindow(text)
	return err
}

var errWindow = errors.New(`want a time such as "36h" or "30d", or "0" for never`)

// parseWindow parses a duration such as "36h" or "30d".
func parseWindow(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n <= 36500 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
		return 0, errWindow
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errWindow
	}
	return d, nil
}

// takeRun keeps only the workers that are named.
func (d *Daemons) takeRun(value any) error {
	list, ok := value.([]any)
	if !ok {
		return errors.New("want a list of names, such as [\"delivery\"], or [] for none")
	}
	run := []string{}
	for _, item := range list {
		name, _ := item.(string)
		if !slices.Contains(daemonNames, name) {
			return fmt.Errorf("%q: want one of %s", fmt.Sprint(item), strings.Join(daemonNames, ", "))
		}
		if slices.Contains(d.Run, name) && !slices.Contains(run, name) {
			run = append(run, name)
		}
	}
	d.Run = run
	return nil
}

// settings lists the settings that come from a file.
func (d Daemons) settings() (list []Setting) {
	for _, s := range []struct{ name, value string }{
		{"run", strings.Join(d.Run, " ")}, {"archive", d.Archive.String()}, {"purge", d.Purge.String()}, {"orphans", d.Orphans.String()},
	} {
		if at, said := d.origins[s.name]; said {
			list = append(list, Setting{daemonsSection + "." + s.name, s.value, at, true})
		}
	}
	return list
}
