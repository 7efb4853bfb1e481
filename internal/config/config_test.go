package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tallylog/tally/internal/config"
)

// world is a home directory, a project below it, and an environment.
type world struct {
	t       *testing.T
	home    string
	project string
	env     map[string]string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t, home, filepath.Join(home, "code", "project"), map[string]string{"HOME": home}}
	if err := os.MkdirAll(filepath.Join(w.project, "src", "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) write(name, content string) string {
	w.t.Helper()
	path := filepath.Join(w.home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *world) resolve(call config.Overrides) (config.Config, error) {
	return config.Resolve(filepath.Join(w.project, "src", "deep"), call, func(name string) string { return w.env[name] })
}

func (w *world) must(call config.Overrides) config.Config {
	w.t.Helper()
	c, err := w.resolve(call)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

const (
	userFile    = ".config/tally/config.toml"
	outerFile   = "code/tally.toml"
	projectFile = "code/project/tally.toml"
)

func TestDefaults(t *testing.T) {
	w := newWorld(t)
	c := w.must(config.Overrides{})
	if c.Backend != config.Local || c.Store != filepath.Join(w.home, ".local/share/tally") || c.Namespace != "default" || c.Server.URL != "" || c.Project != "" {
		t.Errorf("got %+v", c)
	}
	for _, setting := range []string{"backend", "store", "namespace", "url"} {
		if c.Origin(setting) != "default" {
			t.Errorf("the origin of %s is %s", setting, c.Origin(setting))
		}
	}
	w.env["XDG_DATA_HOME"] = "relative" // the specification treats a relative path as unset
	if c := w.must(config.Overrides{}); c.Store != filepath.Join(w.home, ".local/share/tally") {
		t.Errorf("store %s", c.Store)
	}
	w.env["XDG_DATA_HOME"] = filepath.Join(w.home, "data")
	if c := w.must(config.Overrides{}); c.Store != filepath.Join(w.home, "data/tally") {
		t.Errorf("store %s", c.Store)
	}
	w.env = map[string]string{"USERPROFILE": w.home}
	if c := w.must(config.Overrides{}); c.Store != filepath.Join(w.home, ".local/share/tally") {
		t.Errorf("store %s", c.Store)
	}
}

// For each setting, the source of highest precedence wins.
func TestPrecedence(t *testing.T) {
	w := newWorld(t)
	must := func(call config.Overrides, namespace, store, origin string) {
		t.Helper()
		c := w.must(call)
		if c.Namespace != namespace || c.Store != store || c.Origin("namespace") != origin || c.Backend != config.Local {
			t.Errorf("namespace %s from %s, store %s, backend %s; want %s from %s, store %s", c.Namespace, c.Origin("namespace"), c.Store, c.Backend, namespace, origin, store)
		}
	}
	user := w.write(userFile, "namespace = \"user\"\n[store]\ndir = \"user-store\"\n")
	must(config.Overrides{}, "user", filepath.Join(w.home, ".config/tally/user-store"), user)
	outer := w.write(outerFile, "namespace = \"outer\"\n")
	must(config.Overrides{}, "outer", filepath.Join(w.home, ".config/tally/user-store"), outer)
	project := w.write(projectFile, "namespace = \"project\"\n[store]\ndir = \"store\"\n") // only the nearest file is read
	must(config.Overrides{}, "project", filepath.Join(w.project, "store"), project)
	if c := w.must(config.Overrides{}); c.Project != w.project {
		t.Errorf("the project's file is %s", c.Project)
	}
	w.env["TALLY_NAMESPACE"] = "environment"
	must(config.Overrides{}, "environment", filepath.Join(w.project, "store"), "TALLY_NAMESPACE")
	w.env["TALLY_STORE"] = filepath.Join(w.home, "env")
	must(config.Overrides{}, "environment", filepath.Join(w.home, "env"), "TALLY_NAMESPACE")
	must(config.Overrides{Namespace: "call", Store: "/call"}, "call", "/call", "call")
	t.Chdir(w.home)
	must(config.Overrides{Store: "x"}, "environment", filepath.Join(w.home, "x"), "TALLY_NAMESPACE")
	w.env["XDG_CONFIG_HOME"] = filepath.Join(w.home, "elsewhere")
	delete(w.env, "TALLY_NAMESPACE")
	w.write(projectFile, "")
	must(config.Overrides{}, "default", filepath.Join(w.home, "env"), "default")
}

// A store or a server selects the backend, if its source has higher precedence than that of the backend.
func TestBackends(t *testing.T) {
	const url = "nats://example.com"
	for name, c := range map[string]struct {
		user, project string
		env           map[string]string
		call          config.Overrides
		backend, url  string
	}{
		"memory":                             {project: "[store]\nbackend = \"memory\"", backend: "memory"},
		"nats":                               {project: "[store]\nbackend = \"nats\"\n[nats]\nurl = \"" + url + "\"", backend: "nats", url: url},
		"a url in a file alone":              {project: "[nats]\nurl = \"" + url + "\"", backend: "local"},
		"the url of another file":            {user: "[nats]\nurl = \"" + url + "\"", project: "[store]\nbackend = \"nats\"\n[nats]\n", backend: "nats", url: url},
		"a server in the environment":        {env: map[string]string{"TALLY_SERVER": url}, backend: "nats", url: url},
		"a server in the call":               {call: config.Overrides{URL: url}, env: map[string]string{"TALLY_STORE": "/x"}, backend: "nats", url: url},
		"a store in the call":                {call: config.Overrides{Store: "/x"}, env: map[string]string{"TALLY_SERVER": url}, backend: "local"},
		"a store in the project":             {user: "[store]\nbackend = \"nats\"\n[nats]\nurl = \"" + url + "\"", project: "[store]\ndir = \"x\"", backend: "local"},
		"a backend in the environment":       {env: map[string]string{"TALLY_BACKEND": "memory"}, project: "[store]\ndir = \"x\"", backend: "memory"},
		"a backend beside a store and a url": {call: config.Overrides{Backend: "memory", Store: "/x", URL: url}, backend: "memory"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.write(userFile, c.user)
			w.write(projectFile, c.project)
			for name, value := range c.env {
				w.env[name] = value
			}
			if got := w.must(c.call); got.Backend != c.backend || got.Server.URL != c.url {
				t.Errorf("%s at %q, want %s at %q", got.Backend, got.Server.URL, c.backend, c.url)
			}
		})
	}
}

// Errors name file, line and field.
func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		file, content string
		env           map[string]string
		call          config.Overrides
		want          config.Error // File "" means the file of the test; the reason is not compared
	}{
		"syntax":                 {file: projectFile, content: "namespace = \"a\"\nstore = [\n", want: config.Error{Line: 2, Field: "store"}},
		"no TOML":                {file: userFile, content: "# fine\nwhat is this\n", want: config.Error{Line: 2}},
		"a key twice":            {file: projectFile, content: "namespace = \"a\"\nnamespace = \"b\"\n", want: config.Error{Line: 2, Field: "namespace"}},
		"no UTF-8":               {file: projectFile, content: "namespace = \"\xff\"\n", want: config.Error{Line: 1, Field: "namespace"}},
		"unknown key":            {file: projectFile, content: "# a comment\n\nnamspace = \"a\"\n", want: config.Error{Line: 3, Field: "namspace"}},
		"unknown key below":      {file: projectFile, content: "[store]\nbackend = \"local\"\n[nats]\nbackend = \"x\"\n", want: config.Error{Line: 4, Field: "nats.backend"}},
		"unknown key, quoted":    {file: projectFile, content: "[ store ]\n \"dirr\"=\"x\"\n", want: config.Error{Line: 2, Field: "store.dirr"}},
		"unknown key, dotted":    {file: projectFile, content: "namespace=\"a\"\nstore.dirr = \"x\"\n", want: config.Error{Line: 2, Field: "store.dirr"}},
		"unknown section":        {file: userFile, content: "namespace = \"a\"\n[natss]\nurl = \"x\"\n", want: config.Error{Line: 2, Field: "natss"}},
		"a number":               {file: projectFile, content: "\nnamespace = 5\n", want: config.Error{Line: 2, Field: "namespace"}},
		"a list":                 {file: projectFile, content: "[store]\ndir = [\"a\"]\n", want: config.Error{Line: 2, Field: "store.dir"}},
		"no section":             {file: projectFile, content: "namespace = \"a\"\nstore = 5\n", want: config.Error{Line: 2, Field: "store"}},
		"a setting twice":        {file: projectFile, content: "namespace = \"a\"\nNamespace = \"b\"\n", want: config.Error{Line: 2, Field: "Namespace"}},
		"bad namespace":          {file: projectFile, content: "\n\nnamespace = \"a.b\"\n", want: config.Error{Line: 3, Field: "namespace"}},
		"bad namespace of user":  {file: userFile, content: "namespace = \" \"\n", want: config.Error{Line: 1, Field: "namespace"}},
		"personal":               {file: projectFile, content: "\nnamespace = \"_personal\"\n", want: config.Error{Line: 2, Field: "namespace"}},
		"personal to watch":      {file: projectFile, content: "[[watch]]\nroot = \".\"\nnamespace = \"_personal\"\n", want: config.Error{Line: 1, Field: "watch.namespace"}},
		"unknown backend":        {file: projectFile, content: "namespace = \"a\"\n[store]\nbackend = \"postgres\"\n", want: config.Error{Line: 3, Field: "store.backend"}},
		"nats without section":   {file: projectFile, content: "[store]\nbackend = \"nats\"\n", want: config.Error{Line: 2, Field: "nats.url"}},
		"bad replicas":           {file: projectFile, content: "[nats]\nreplicas = 9\n", want: config.Error{Line: 2, Field: "nats.replicas"}},
		"bad durability":         {file: projectFile, content: "[store]\nmin_durability = \"safe\"\n", want: config.Error{Line: 2, Field: "store.min_durability"}},
		"nats without url":       {file: projectFile, content: "[store]\nbackend = \"nats\"\n[nats]\n", want: config.Error{Line: 2, Field: "nats.url"}},
		"namespace of variable":  {env: map[string]string{"TALLY_NAMESPACE": "a b"}, want: config.Error{File: "TALLY_NAMESPACE", Field: "namespace"}},
		"backend of variable":    {env: map[string]string{"TALLY_BACKEND": "x"}, want: config.Error{File: "TALLY_BACKEND", Field: "store.backend"}},
		"namespace of the call":  {call: config.Overrides{Namespace: "é"}, want: config.Error{File: "call", Field: "namespace"}},
		"a store and a server":   {call: config.Overrides{Store: "/x", URL: "nats://x"}, want: config.Error{File: "call", Field: "store"}},
		"a store and a context":  {call: config.Overrides{Store: "/x", Context: "x"}, want: config.Error{File: "call", Field: "store"}},
		"nowhere to put a store": {env: map[string]string{"HOME": ""}, want: config.Error{File: "environment", Field: "HOME"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			path := ""
			if c.file != "" {
				path = w.write(c.file, c.content)
			}
			for name, value := range c.env {
				w.env[name] = value
			}
			if c.want.File == "" {
				c.want.File = path
			}
			_, err := w.resolve(c.call)
			got, ok := errors.AsType[*config.Error](err)
			if !ok || got.File != c.want.File || got.Line != c.want.Line || got.Field != c.want.Field || got.Reason == "" {
				t.Errorf("%v\n got %+v\nwant %+v", err, got, c.want)
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	for want, err := range map[string]*config.Error{
		"tally.toml:3: namespace: wrong": {"tally.toml", 3, "namespace", "wrong"},
		"TALLY_STORE: wrong":             {"TALLY_STORE", 0, "", "wrong"},
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}

// A directory named tally.toml is ignored. A file that cannot be read is an error.
func TestOddFiles(t *testing.T) {
	w := newWorld(t)
	if err := os.Mkdir(filepath.Join(w.project, "tally.toml"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.write(outerFile, "namespace = \"outer\"")
	if c := w.must(config.Overrides{}); c.Namespace != "outer" {
		t.Errorf("namespace %s", c.Namespace)
	}
	if err := os.MkdirAll(filepath.Join(w.home, userFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := w.resolve(config.Overrides{}); err == nil {
		t.Error("a directory was read as a file")
	}
	// Through a symbolic link a project has the same file and settings.
	w = newWorld(t)
	link := filepath.Join(w.home, "link")
	if err := os.Symlink(w.project, link); err != nil {
		t.Fatal(err)
	}
	w.write(outerFile, "namespace = \"outer\"")
	c, err := config.Resolve(link, config.Overrides{}, func(name string) string { return w.env[name] })
	if err != nil || c.Namespace != "outer" {
		t.Errorf("got %+v, error %v", c, err)
	}
}

func TestSegmentSizes(t *testing.T) {
	for text, want := range map[string]uint64{"": 0, "8388608": 8 << 20, "8MiB": 8 << 20, "64 KiB": 64 << 10, "2GiB": 2 << 30} {
		w := newWorld(t)
		w.env["TALLY_SEGMENT"] = text
		if c := w.must(config.Overrides{}); c.Segment != want {
			t.Errorf("%q is %d, want %d", text, c.Segment, want)
		}
	}
	for _, text := range []string{"0", "-1", "many", "1MiBKiB", "8M", "99999999999GiB"} {
		w := newWorld(t)
		w.write(outerFile, "[store]\nsegment = \""+text+"\"\n")
		_, err := w.resolve(config.Overrides{})
		wrong, ok := errors.AsType[*config.Error](err)
		if !ok || wrong.Line != 2 || wrong.Field != "store.segment" {
			t.Errorf("%q: got the error %v", text, err)
		}
	}
}
