package config_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/config"
)

// How long sessions are kept is the user's to say, for each namespace. A project's file cannot.
func TestRetain(t *testing.T) {
	w := newWorld(t)
	if c := w.must(config.Overrides{}); len(c.Retain) > 0 {
		t.Errorf("got %+v", c.Retain)
	}
	w.write(userFile, "[retain]\nsessions = \"400d\"\njobs = \"36h\"\n[retain.acme]\nsessions = \"0\"\n")
	c := w.must(config.Overrides{})
	if r := c.Retain[""]; r.Sessions != 400*24*time.Hour || r.Jobs != 36*time.Hour {
		t.Errorf("got %+v", r)
	}
	if r, ok := c.Retain["acme"]; !ok || r.Sessions+r.Jobs != 0 || len(c.Retain) != 2 {
		t.Errorf("got %+v", c.Retain)
	}
	shown := make(map[string]string)
	for _, s := range c.Settings() {
		shown[s.Name] = s.Value
	}
	if shown["retain.jobs"] != "36h0m0s" || shown["retain.acme.sessions"] != "0s" {
		t.Errorf("got %v", shown)
	}
	for text, want := range map[string]config.Error{
		"retain = 1\n":                           {Line: 1, Field: "retain"},
		"[retain]\nsession = \"1d\"\n":           {Line: 2, Field: "retain.session"},
		"[retain]\nsessions = 5\n":               {Line: 2, Field: "retain.sessions"},
		"[retain.acme]\nsessions = \"1 week\"\n": {Line: 2, Field: "retain.acme.sessions"},
		"[retain.\"a b\"]\njobs = \"1d\"\n":      {Line: 1, Field: `retain."a b"`},
	} {
		w := newWorld(t)
		want.File = w.write(userFile, text)
		_, err := w.resolve(config.Overrides{})
		if wrong, ok := errors.AsType[*config.Error](err); !ok || wrong.File != want.File || wrong.Line != want.Line || wrong.Field != want.Field {
			t.Errorf("%q: got the error %v", text, err)
		}
	}
	p := newWorld(t)
	p.write(projectFile, "[retain]\nsessions = \"1d\"\n")
	if _, err := p.resolve(config.Overrides{}); err == nil {
		t.Error("a project's file says how long sessions are kept")
	}
}
