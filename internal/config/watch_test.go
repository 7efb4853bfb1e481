package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/config"
)

// Settings of the user's own file and of the project's file add up.
func TestWatch(t *testing.T) {
	w := newWorld(t)
	mine := w.write(userFile, "[[ watch ]]\nroot = \"~/x/../y\"\nagent = \"pi\"\n[redact]\nenv = [\"MY_TOKEN\"]\npatterns = ['mine-\\d+']\n")
	ours := w.write(projectFile, "[store]\n\n[[watch]]\nroot = \"x/../team\"\nnamespace = \"team\"\nredact = false\n\n[redact]\n"+
		"patterns = [{name = \"ticket\", regexp = \"T-[0-9]{6}\"}]\n")
	c := w.must(config.Overrides{})
	if len(c.Watch) != 2 {
		t.Fatalf("got %v", c.Watch)
	}
	if got, want := c.Watch[0].String(), filepath.Join(w.home, "y")+" agent=pi"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := c.Watch[1].String(), filepath.Join(w.project, "team")+" namespace=team redact=false"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if at := c.Watch[1].Origin; at != (config.Origin{Kind: config.FromFile, Name: ours, Line: 3}) {
		t.Errorf("the position of the second pattern is %v", at)
	}
	if r := c.Redact; len(r.Env) != 1 || r.Env[0] != "MY_TOKEN" || len(r.Patterns) != 2 || r.Patterns[0] != (config.Pattern{Name: "pattern-1", Regexp: `mine-\d+`}) || r.Patterns[1].Name != "ticket" {
		t.Errorf("got %+v", r)
	}
	var shown []string
	for _, s := range c.Settings() {
		if s.Name == "watch" || strings.HasPrefix(s.Name, "redact.") {
			shown = append(shown, s.Name+" "+s.Origin.Name)
		}
	}
	if got, want := strings.Join(shown, "\n"), strings.Join([]string{"redact.patterns " + ours, "redact.env " + mine, "watch " + mine, "watch " + ours}, "\n"); got != want {
		t.Errorf("the settings shown are\n%s, want\n%s", got, want)
	}
}

func TestWrongWatch(t *testing.T) {
	for text, want := range map[string]config.Error{
		"\n[[watch]]\nagent = \"pi\"\n":                            {Line: 2, Field: "watch.root"},
		"[[watch]]\nroot = \"a\"\n[[watch]]\nroot = 5\n":           {Line: 3, Field: "watch.root"},
		"[[watch]]\nroot = \"a\"\nnamespace = \"a b\"\n":           {Line: 1, Field: "watch.namespace"},
		"[[watch]]\nroot = \"a\"\nredact = \"off\"\n":              {Line: 1, Field: "watch.redact"},
		"[[watch]]\nroot = \"a\"\nroots = \"b\"\n":                 {Line: 1, Field: "watch.roots"},
		"[[watch]]\nroot = \"~/.claude\"\nredact = false\n":        {Line: 1, Field: "watch.root"},
		"[[watch]]\nroot = \"../project-2\"\n":                     {Line: 1, Field: "watch.root"},
		"\n[[watch]]\nroot = \"link/later\"\n":                     {Line: 2, Field: "watch.root"},
		"[watch]\nroot = \"a\"\n":                                  {Line: 1, Field: "watch"},
		"[redact]\n\npatterns = \"a\"\n":                           {Line: 3, Field: "redact.patterns"},
		"[redact]\npatterns = [{name = \"a\", regex = \"b\"}]\n":   {Line: 2, Field: "redact.patterns"},
		"[redact]\npatterns = []\nenv = [\"TOKEN=clear text\"]\n":  {Line: 3, Field: "redact.env"},
		"[redact]\nvalues = [\"a secret that stood in a file\"]\n": {Line: 2, Field: "redact.values"},
	} {
		w := newWorld(t)
		path := w.write(projectFile, text)
		if err := os.Symlink(w.home, filepath.Join(w.project, "link")); err != nil {
			t.Fatal(err)
		}
		_, err := w.resolve(config.Overrides{})
		got, ok := errors.AsType[*config.Error](err)
		if !ok || got.File != path || got.Line != want.Line || got.Field != want.Field || got.Reason == "" || strings.Contains(err.Error(), "clear text") {
			t.Errorf("%q: %v, want line %d, %s", text, err, want.Line, want.Field)
		}
	}
}
