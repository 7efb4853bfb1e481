package config_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/config"
)

// All workers run by default. A project's file can switch them off, not on, and cannot set how long data are kept.
func TestDaemons(t *testing.T) {
	w := newWorld(t)
	if d := w.must(config.Overrides{}).Daemons; !slices.Equal(d.Run, []string{"delivery", "dispatch", "janitor", "retain"}) || d.Archive+d.Purge+d.Orphans != 0 {
		t.Errorf("got %+v", d)
	}
	w.write(userFile, "[daemons]\nrun = [\"janitor\", \"delivery\", \"janitor\"]\narchive = \"36h\"\npurge = \"30d\"\n")
	w.write(projectFile, "[daemons]\nrun = [\"dispatch\", \"janitor\"]\n")
	c := w.must(config.Overrides{})
	if d := c.Daemons; !slices.Equal(d.Run, []string{"janitor"}) || d.Archive != 36*time.Hour || d.Purge != 720*time.Hour || d.Orphans != 0 {
		t.Errorf("got %+v", d)
	}
	shown := make(map[string]string)
	for _, s := range c.Settings() {
		shown[s.Name] = s.Value
	}
	if shown["daemons.run"] != "janitor" || shown["daemons.purge"] != "720h0m0s" {
		t.Errorf("got %v", shown)
	}
	w.write(projectFile, "[daemons]\nrun = []\n")
	if d := w.must(config.Overrides{}).Daemons; len(d.Run) > 0 {
		t.Errorf("got %+v", d)
	}
}

// An invalid section of daemons is refused with its line and field.
func TestWrongDaemons(t *testing.T) {
	for text, want := range map[string]config.Error{
		"daemons = 1\n":                                 {Line: 1, Field: "daemons"},
		"[daemons]\nrun = \"janitor\"\n":                {Line: 2, Field: "daemons.run"},
		"[daemons]\nrun = [\"janitor\", \"postman\"]\n": {Line: 2, Field: "daemons.run"},
		"[daemons]\nrun = []\nwindows = \"1h\"\n":       {Line: 3, Field: "daemons.windows"},
		"[daemons]\npurge = \"1h\"\n":                   {Line: 2, Field: "daemons.purge"}, // in a project's file
		"\n[daemons]\nrun = [1]\n":                      {Line: 3, Field: "daemons.run"},
	} {
		w := newWorld(t)
		want.File = w.write(projectFile, text)
		_, err := w.resolve(config.Overrides{})
		if wrong, ok := errors.AsType[*config.Error](err); !ok || wrong.File != want.File || wrong.Line != want.Line || wrong.Field != want.Field {
			t.Errorf("%q: got the error %v", text, err)
		}
	}
	for _, window := range []string{"1 week", "-1h", "-1d", "99999999d", ""} {
		w := newWorld(t)
		w.write(userFile, "[daemons]\norphans = \""+window+"\"\n")
		if _, err := w.resolve(config.Overrides{}); err == nil {
			t.Errorf("%q was accepted as a time", window)
		}
	}
}
