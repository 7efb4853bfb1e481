package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/config"
)

// Defaults of a tree come from its layout and from the settings of tally-evals. Flags do not change the namespace of a
// tree.
func TestTree(t *testing.T) {
	w := newWorld(t)
	w.write(userFile, "[[tree]]\nname = \"far\"\nlayout = \"tallydir\"\nlayer = \"all\"\ntarget = \"redis\"\n[tree.redis]\nurl = \"redis://ann:geheim@far:6379/1\"\nkey_prefix = \"x:\"\n")
	w.write(projectFile, "namespace = \"ours\"\n[[tree]]\nlayout = \"tavern\"\nkinds = [\"doc\", \"agent\"]\nlayer = \"project\"\n[[tree]]\nname = \"runs\"\nlayout = \"tallydir\"\nbulk_limit = 7\nignore = [\"*.swp\"]\nmax_file = \"1MiB\"\nmode = \"sync\"\nway = \"out\"\n")
	c := w.must(config.Overrides{Namespace: "other"})
	if len(c.Trees) != 3 {
		t.Fatalf("got %v", c.Trees)
	}
	for i, want := range []string{
		"far redis xxxxx@far:6379/1 layout=tallydir mode=async way=both layer=all",
		"tavern " + filepath.Join(w.project, ".tavern") + " layout=tavern mode=sync way=both kinds=doc,agent layer=project",
		"runs " + filepath.Join(w.project, ".tally") + " layout=tallydir mode=sync way=out",
	} {
		if got := c.Trees[i].String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got, want := c.Trees[i].Namespace, []string{"default", "ours", "ours"}[i]; got != want {
			t.Errorf("tree %d has the namespace %q, want %q", i, got, want)
		}
	}
	if tr := c.Trees[1]; tr.BulkLimit != 50 || tr.MaxFile != 64<<20 {
		t.Errorf("got %+v", tr)
	}
	if tr := c.Trees[2]; tr.BulkLimit != 7 || tr.MaxFile != 1<<20 || len(tr.Ignore) != 1 {
		t.Errorf("got %+v", tr)
	}
	if tr := c.Trees[0]; tr.Redis.Prefix != "x:" || !strings.Contains(tr.Redis.URL, "geheim") || strings.Contains(tr.Location()+tr.FileName(), "geheim") {
		t.Errorf("the tree is %+v at %s", tr, tr.Location())
	}
	for _, s := range c.Settings() {
		if strings.Contains(s.Value, "geheim") {
			t.Errorf("%s shows a password: %s", s.Name, s.Value)
		}
	}

	t.Run("T-36 TALLY_STORAGE_PATH is where the files of tally-evals are", func(t *testing.T) {
		w.env["TALLY_STORAGE_PATH"] = filepath.Join(w.home, "elsewhere")
		if tr := w.must(config.Overrides{}).Trees[2]; tr.Dir != w.env["TALLY_STORAGE_PATH"] {
			t.Errorf("got %+v", tr)
		}
	})
}

// Trees of the same name in two projects have different file names. A folder has one name, whatever path leads to it.
func TestTreeFileName(t *testing.T) {
	w := newWorld(t)
	a, b := config.Tree{Name: "tavern", Target: config.TreeDir, Dir: filepath.Join(w.project, "a")}, config.Tree{Name: "tavern", Target: config.TreeDir, Dir: filepath.Join(w.project, "b")}
	if a.FileName() == b.FileName() || !strings.HasPrefix(a.FileName(), "tavern-") {
		t.Errorf("two trees have the names %s and %s, want different names", a.FileName(), b.FileName())
	}
	if err := os.Symlink(w.project, filepath.Join(w.home, "link")); err != nil {
		t.Fatal(err)
	}
	if same := (config.Tree{Name: "tavern", Target: config.TreeDir, Dir: filepath.Join(w.home, "link", "a")}); same.FileName() != a.FileName() {
		t.Errorf("one tree has the names %s and %s, want one name", a.FileName(), same.FileName())
	}
}

// An invalid tree is refused with its line and field. Its folder lies in the project, outside of .git, and contains
// neither the store nor another tree.
func TestWrongTree(t *testing.T) {
	const tavern = "[[tree]]\nlayout = \"tavern\"\n"
	for text, want := range map[string]config.Error{
		"\n[[tree]]\nname = \"a\"\n":                                           {Line: 2, Field: "tree.layout"},
		tavern + "\n[[tree]]\nlayout = 5\n":                                    {Line: 4, Field: "tree.layout"},
		"[store]\ndir = \".tavern/store\"\n" + tavern:                          {Line: 3, Field: "tree.dir"},
		"[store]\ndir = \".tavern\"\n" + tavern:                                {Line: 3, Field: "tree.dir"},
		"[store]\ndir = \".\"\n" + tavern:                                      {Line: 3, Field: "tree.dir"},
		tavern + "dir = \"a/b\"\n[[tree]]\nlayout = \"errata\"\ndir = \"a\"\n": {Line: 4, Field: "tree.dir"},
		tavern + tavern:                                          {Line: 3, Field: "tree.name"},
		tavern + "name = \"../x\"\n":                             {Line: 1, Field: "tree.name"},
		tavern + "dir = \"..\"\n":                                {Line: 1, Field: "tree.dir"},
		tavern + "dir = \"~/.ssh\"\n":                            {Line: 1, Field: "tree.dir"},
		tavern + "dir = \"link/later\"\n":                        {Line: 1, Field: "tree.dir"},
		"[[tree]]\nlayout = \"errata\"\n":                        {Line: 1, Field: "tree.dir"},
		tavern + "mode = \"later\"\n":                            {Line: 1, Field: "tree.mode"},
		tavern + "way = \"back\"\n":                              {Line: 1, Field: "tree.way"},
		tavern + "bulk = \"yes\"\n":                              {Line: 1, Field: "tree.bulk"},
		tavern + "bulk_limit = 0\n":                              {Line: 1, Field: "tree.bulk_limit"},
		tavern + "bulk = \"never\"\nbulk_limit = 5\n":            {Line: 1, Field: "tree.bulk_limit"},
		tavern + "max_file = \"much\"\n":                         {Line: 1, Field: "tree.max_file"},
		tavern + "ignore = \"*.swp\"\n":                          {Line: 1, Field: "tree.ignore"},
		tavern + "ignore = [\"*.swp\", \"[a-\"]\n":               {Line: 1, Field: "tree.ignore"},
		tavern + "kinds = \"doc\"\n":                             {Line: 1, Field: "tree.kinds"},
		tavern + "kinds = []\n":                                  {Line: 1, Field: "tree.kinds"},
		tavern + "kinds = [\"\"]\n":                              {Line: 1, Field: "tree.kinds"},
		tavern + "layer = \"all\"\n":                             {Line: 1, Field: "tree.layer"},
		tavern + "layer = 1\n":                                   {Line: 1, Field: "tree.layer"},
		tavern + "dir = \".git/hooks\"\n":                        {Line: 1, Field: "tree.dir"},
		tavern + "dir = \"sub/.GIT\"\n":                          {Line: 1, Field: "tree.dir"},
		tavern + "folder = \"a\"\n":                              {Line: 1, Field: "tree.folder"},
		tavern + "Dir = [\"a\"]\n":                               {Line: 1, Field: "tree.Dir"},
		tavern + "target = \"s3\"\n":                             {Line: 1, Field: "tree.target"},
		tavern + "redis = 5\n":                                   {Line: 1, Field: "tree.redis"},
		tavern + "[tree.redis]\nhost = \"h\"\n":                  {Line: 1, Field: "tree.redis"},
		tavern + "target = \"redis\"\nredis = {url = \"h:1\"}\n": {Line: 1, Field: "tree.target"},
		"[tree]\nlayout = \"tavern\"\n":                          {Line: 1, Field: "tree"},
	} {
		w := newWorld(t)
		path := w.write(projectFile, text)
		if err := os.Symlink(w.home, filepath.Join(w.project, "link")); err != nil {
			t.Fatal(err)
		}
		_, err := w.resolve(config.Overrides{})
		got, ok := errors.AsType[*config.Error](err)
		if !ok || got.File != path || got.Line != want.Line || got.Field != want.Field || got.Reason == "" {
			t.Errorf("%q: %v, want line %d, %s", text, err, want.Line, want.Field)
		}
	}
	const server = "[[tree]]\nname = \"a\"\nlayout = \"tallydir\"\n"
	for text, field := range map[string]string{
		"[[tree]]\nlayout = \"tavern\"\n":                                                                                   "tree.dir",
		server + "target = \"redis\"\n":                                                                                     "tree.redis",
		server + "target = \"redis\"\nmode = \"sync\"\nredis = {url = \"redis://h\"}\n":                                     "tree.mode",
		server + "target = \"bucket\"\nbucket = {url = \"nats://h\"}\n":                                                     "tree.bucket",
		server + "target = \"s2\"\ns2 = {basin = \"b\"}\n":                                                                  "tree.way",
		server + "target = \"s2\"\nway = \"out\"\ns2 = {basin = \"b\"}\n":                                                   "tree.s2",
		server + "target = \"redis\"\nredis = {url = \"redis://ann:geheim@[\"}\n":                                           "tree.redis",
		server + "target = \"redis\"\nredis = {url = \"redis://h\", password = \"geheim\"}\n":                               "tree.redis",
		server + "dir = \"/a\"\n[[tree]]\nname = \"b\"\nlayout = \"errata\"\ndir = \"/b\"\n[[tree]]\nlayout = \"a\"\ndir=5": "tree.dir",
	} {
		w := newWorld(t)
		path := w.write(userFile, text)
		_, err := w.resolve(config.Overrides{})
		got, ok := errors.AsType[*config.Error](err)
		if !ok || got.File != path || got.Field != field || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: got %v, want %s", text, err, field)
		}
	}
}
