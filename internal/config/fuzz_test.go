package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"github.com/tallylog/tally/internal/config"
)

// known are the settings of a file and its sections.
var known = strings.Fields(`namespace store store.backend store.dir store.segment store.min_durability
	nats nats.url nats.context nats.user nats.password nats.token nats.creds nats.nkey nats.ca nats.cert nats.key
	nats.inbox_prefix nats.system_context nats.replicas watch redact redact.patterns redact.env
	daemons daemons.run daemons.archive daemons.purge daemons.orphans tree`)

// For any tally.toml: an error names a position in the file, an unknown setting is an error, and the accepted settings
// mean the same when they are written again.
func FuzzFile(f *testing.F) {
	for _, text := range []string{
		"", "# nothing", "namespace = \"a\"", "namespace = 5", "NameSpace = \"a\"", "namespace = \"a\"\nNAMESPACE = \"b\"", "namspace = \"a\"",
		"[store]\nbackend = \"local\"\ndir = \"a/../b\"\nsegment = \"64 KiB\"\nmin_durability = \"durable\"",
		"store = 5", "store = [\n", "[[store]]\ndir = \"x\"",
		"store.dir = \"x\"\n[nats]\n",
		"store = {dir = \"x\", \"backend\" = \"memory\"}", "[store.dir]\n", "[store.sub]\n", "[store]\n[nats.\"u\\u0072l\"]",
		"[store]\nbackend = \"nats\"\n[nats]\nurl = \"nats://a,nats://b\"\nuser = \"u\"\npassword = '''p\n[store]\ndir = 1'''\nreplicas = 3",
		"[store]\nbackend = \"nats\"\n[nats]\ncontext = \"../x\"\n",
		"[store]\nbackend = \"nats\"\n[nats]\nurl = \"x\"\nsystem_context = \"gone\"\nreplicas = 6",
		"[store]\nbackend = \"nats\"\n[nats]\nurl = \"x\"\ntoken = \"t\"\ncreds = \"/c\"\n" +
			"nkey = \"n\"\nca = \"a\"\ncert = \"c\"\nkey = \"k\"\ninbox_prefix = \"i\"",
		"\ufeffnamespace = \"a\"", "\xff", "a = 1e400", "\"shore]\n", "[store]\r\ndir = \"\\u0000\"\r\n",
		"[[watch]]\nroot = \"~/a\"\nagent = \"claude\"\n[[watch]]\nroot = \"b\"\nnamespace = \"n\"\nredact = false", "watch = [{root = \"/x\"}, {}]", "watch = [1]", "[watch]\n",
		"[redact]\npatterns = [\"a+\", {name = \"b\", regexp = \"c\"}]\nenv = [\"D\"]", "[redact]\npatterns = 1", "[redact]\nenv = [\"a=b\"]", "[redact]\nother = 1", "redact = []",
		"[daemons]\nrun = [\"delivery\", \"janitor\"]\narchive = \"7d\"\npurge = \"1h\"\norphans = \"0\"", "[daemons]\nrun = [\"postman\"]", "[daemons]\nrun = 1", "[daemons]\npurge = \"-1h\"", "daemons = 1",
		"[[tree]]\nlayout = \"tavern\"\n[[tree]]\nname = \"x\"\nlayout = \"errata\"\ndir = \"y\"\nmode = \"sync\"\nway = \"in\"\nbulk = \"never\"\nignore = [\"*.x\"]\nmax_file = \"1MiB\"\nkinds = [\"doc\"]\nlayer = \"project\"",
		"[[tree]]\nlayout = \"tallydir\"\nbulk_limit = 7\ntarget = \"redis\"\n[tree.redis]\nurl = \"redis://h\"", "tree = [{layout = 1}]", "[tree]\n", "[[tree]]\nlayout = \"x\"\ns2 = 1",
	} {
		f.Add([]byte(text))
	}
	dir, err := filepath.EvalSymlinks(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(dir, config.FileName)
	resolve := func(t *testing.T, text []byte) (config.Config, error) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return config.Resolve(dir, config.Overrides{}, func(name string) string { return map[string]string{"HOME": dir}[name] })
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := resolve(t, text)
		if err != nil {
			lines := strings.Count(string(text), "\n") + 1
			wrong, ok := errors.AsType[*config.Error](err)
			if !ok || wrong.File != path || wrong.Line < 0 || wrong.Line > lines || wrong.Line == 0 && wrong.Field == "" || wrong.Reason == "" {
				t.Fatalf("%v: %+v of %d lines", err, wrong, lines)
			}
			return
		}
		for _, key := range keys(t, text) {
			if !slices.ContainsFunc(known, func(name string) bool { return strings.EqualFold(name, key) }) {
				t.Fatalf("the unknown setting %s was accepted", key)
			}
		}
		again, err := toml.Marshal(written(c))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range [][]byte{text, again} {
			if c2, err := resolve(t, text); err != nil || spelled(c2) != spelled(c) {
				t.Fatalf("%s\nread again, error %v\ngot  %s\nwant %s", text, err, spelled(c2), spelled(c))
			}
		}
	})
}

// keys lists the keys of a file, including those in tables.
func keys(t *testing.T, text []byte) (list []string) {
	var all map[string]any
	if err := toml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	var walk func(prefix string, table map[string]any)
	walk = func(prefix string, table map[string]any) {
		for name, value := range table {
			list = append(list, prefix+name)
			if below, ok := value.(map[string]any); ok {
				walk(prefix+name+".", below)
			}
		}
	}
	walk("", all)
	return list
}

// written returns a configuration as a file.
func written(c config.Config) map[string]any {
	store := map[string]any{"backend": c.Backend, "dir": c.Store}
	if c.Segment > 0 {
		store["segment"] = fmt.Sprint(c.Segment)
	}
	if c.MinDurability > 0 {
		store["min_durability"] = c.MinDurability.String()
	}
	s := c.Server
	nats := map[string]any{"url": s.URL, "user": s.User, "password": s.Password, "token": s.Token, "creds": s.Creds, "nkey": s.NKey,
		"ca": s.CA, "cert": s.Cert, "key": s.Key, "inbox_prefix": s.InboxPrefix}
	if s.Replicas > 0 {
		nats["replicas"] = s.Replicas
	}
	var watch, patterns, trees []map[string]any
	for _, w := range c.Watch {
		entry := map[string]any{"root": w.Root}
		if w.Agent != "" {
			entry["agent"] = w.Agent
		}
		if w.Namespace != "" {
			entry["namespace"] = w.Namespace
		}
		if w.Redact != nil {
			entry["redact"] = *w.Redact
		}
		watch = append(watch, entry)
	}
	for _, p := range c.Redact.Patterns {
		patterns = append(patterns, map[string]any{"name": p.Name, "regexp": p.Regexp})
	}
	for _, t := range c.Trees {
		entry := map[string]any{"name": t.Name, "layout": t.Layout, "dir": t.Dir, "mode": map[bool]string{true: "sync", false: "async"}[t.Sync], "way": t.Way, "max_file": fmt.Sprint(t.MaxFile)}
		if entry["bulk_limit"] = t.BulkLimit; t.BulkLimit < 0 {
			delete(entry, "bulk_limit")
			entry["bulk"] = "never"
		}
		if t.Ignore != nil {
			entry["ignore"] = t.Ignore
		}
		if t.Kinds != nil {
			entry["kinds"] = t.Kinds
		}
		if t.Layer != "" {
			entry["layer"] = t.Layer
		}
		trees = append(trees, entry)
	}
	return map[string]any{"tree": trees, "namespace": c.Namespace, "store": store, "nats": nats, "watch": watch, "redact": map[string]any{"patterns": patterns, "env": c.Redact.Env},
		"daemons": map[string]any{"run": c.Daemons.Run}}
}

// spelled returns a configuration as text, without origins.
func spelled(c config.Config) string {
	var trees []config.Tree
	for _, t := range c.Trees {
		t.Origin = config.Origin{}
		trees = append(trees, t)
	}
	return fmt.Sprintf("%q %q %q %+v %d %v %q %q %v %v %q %q %q %+v",
		c.Backend, c.Store, c.Namespace, c.Server, c.Segment, c.MinDurability, c.Project, c.Base, c.Notices, c.Watch, c.Redact.Patterns, c.Redact.Env, c.Daemons.Run, trees)
}
