package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/config"
)

// Sessions go to the namespace of the project in which they work, wherever the program runs.
func TestRouting(t *testing.T) {
	w := newWorld(t)
	w.write(projectFile, "namespace = \"shop\"\n")
	w.write("other/tally.toml", "namespace = \"desk\"\n[[watch]]\nnobody = \"reads\"\n")
	w.write("none/tally.toml", "[store]\ndir = \"there\"\n")
	w.write("wrong/tally.toml", "namespace = \"a b\"\n")
	w.write("mine/tally.toml", "namespace = \"_personal\"\n")
	w.write("long/tally.toml", "namespace = \"long\"\n#"+strings.Repeat("-", 1<<20))
	if err := os.Symlink(filepath.Join(w.home, "other"), filepath.Join(w.home, "code", "linked")); err != nil {
		t.Fatal(err)
	}
	r := w.must(config.Overrides{}).Routing()
	if r.Namespace != "default" || r.Only != "" {
		t.Fatalf("%+v: want the default namespace for all projects", r)
	}
	for dir, want := range map[string]string{
		"code/project": "shop", "code/project/src/deep": "shop", "code/project/was/here": "shop",
		"other": "desk", "other/x/../y": "desk", "code/linked/x": "desk",
		"none": "default", "nowhere": "default", "": "default",
	} {
		if dir != "" {
			dir = filepath.Join(w.home, dir)
		}
		if got, taken, err := r.Of(dir); got != want || !taken || err != nil {
			t.Errorf("%s: %s, %v, %v; want %s", dir, got, taken, err, want)
		}
	}
	for _, dir := range []string{"wrong", "mine", "long"} {
		got, taken, err := r.Of(filepath.Join(w.home, dir))
		if got != "default" || !taken || err == nil || !strings.Contains(err.Error(), filepath.Join(dir, config.FileName)) {
			t.Errorf("%s: %s, %v, %v; want an error that names the file", dir, got, taken, err)
		}
	}
	for _, dir := range []string{"relative", `\\\\server\share`, "//server/share", "/a\x00b"} {
		if got, taken, err := r.Of(dir); got != "default" || !taken || err != nil {
			t.Errorf("%q: %s, %v, %v; want that no file is read", dir, got, taken, err)
		}
	}
}

// Flags apply to all sessions. The user's own file applies to sessions whose project names no namespace.
func TestRoutingSaid(t *testing.T) {
	w := newWorld(t)
	w.write(projectFile, "namespace = \"shop\"\n")
	w.write(userFile, "namespace = \"mine\"\n")
	for _, c := range []struct {
		call        config.Overrides
		variable    string
		here, there string
	}{
		{here: "shop", there: "mine"},
		{call: config.Overrides{Namespace: "one"}, here: "one", there: "one"},
		{variable: "two", here: "two", there: "two"},
	} {
		w.env["TALLY_NAMESPACE"] = c.variable
		r := w.must(c.call).Routing()
		here, _, _ := r.Of(w.project)
		there, _, _ := r.Of(w.home)
		if here != c.here || there != c.there || r.Namespace != c.there {
			t.Errorf("%+v: %s, %s and %s; want %s and %s", c, here, there, r.Namespace, c.here, c.there)
		}
	}
}

// If a project's file names the store, only sessions of that project go there, unless the caller names the store, too.
func TestRoutingOnly(t *testing.T) {
	for text, called := range map[string]config.Overrides{
		"[store]\ndir = \"data\"\n":                                         {Store: "mine"},
		"[store]\nbackend = \"nats\"\n[nats]\nurl = \"nats://evil:4222\"\n": {URL: "nats://mine:4222"},
	} {
		w := newWorld(t)
		w.write(projectFile, text)
		r := w.must(config.Overrides{}).Routing()
		if r.Only != w.project {
			t.Errorf("%q: %+v, want only %s", text, r, w.project)
		}
		for dir, want := range map[string]bool{w.project: true, filepath.Join(w.project, "src", "deep"): true, filepath.Join(w.project, "gone"): true,
			w.home: false, w.project + "-2": false, filepath.Join(w.project, "..", "secret"): false, "": false, "project": false} {
			if _, taken, err := r.Of(dir); taken != want || err != nil {
				t.Errorf("%q: %s is accepted: %v, error %v; want %v", text, dir, taken, err, want)
			}
		}
		if r := w.must(called).Routing(); r.Only != "" {
			t.Errorf("%q and %+v: %+v, want all", text, called, r)
		}
		w.write(userFile, text)
		w.write(projectFile, "")
		if r := w.must(config.Overrides{}).Routing(); r.Only != "" {
			t.Errorf("%q as the user's own: %+v, want all", text, r)
		}
	}
}
