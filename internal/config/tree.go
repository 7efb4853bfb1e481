package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/tallylog/tally/events"
)

// Tree is a place in which sessions and documents are files, while they change: see package
// tree.
type Tree struct {
	Name      string // for people, files and events
	Layout    string // tavern, tallydir ...
	Target    string // TreeDir, TreeRedis, TreeBucket or TreeS2
	Dir       string // absolute; of TreeDir
	Redis     TreeServer
	Bucket    TreeServer
	S2        TreeServer
	Namespace string // of what is in it: that of the file it is said in, whatever the call says
	Sync      bool   // an append returns when the files show it
	Way       string // both, out or in
	BulkLimit int    // so many files that change at once are asked about; < 0: none are
	Ignore    []string
	MaxFile   int64    // bytes
	Kinds     []string // of what has files; none: all that the layout has files for
	Layer     string   // of what has files; "": that which is usual in the layout
	Origin    Origin
}

// TreeServer is a server that a tree is on.
type TreeServer struct {
	URL    string
	Name   string // of the bucket, or the basin
	Prefix string // of keys
	Token  string
}

// Targets of trees.
const (
	TreeDir    = "dir"
	TreeRedis  = "redis"
	TreeBucket = "bucket"
	TreeS2     = "s2"
)

const treeSection = "tree"

// treeLayouts says what a tree is that says no more than its layout.
var treeLayouts = map[string]struct {
	dir  string
	sync bool
}{"tavern": {dir: ".tavern", sync: true}}

const (
	defaultBulkLimit = 50
	defaultMaxFile   = 64 << 20
	mostBulkLimit    = 1 << 30
)

// treeServers are the settings of each kind of server.
var treeServers = map[string][]string{
	TreeRedis:  {"url", "key_prefix"},
	TreeBucket: {"url", "name"},
	TreeS2:     {"url", "basin", "access_token", "prefix"},
}

// String says it for people.
func (t Tree) String() string {
	place := t.Dir
	if t.Target != TreeDir {
		s := t.server()
		place = strings.Join(strings.Fields(t.Target+" "+s.Name+" "+withoutSecrets(s.URL)), " ")
	}
	mode := "async"
	if t.Sync {
		mode = "sync"
	}
	said := fmt.Sprintf("%s %s layout=%s mode=%s way=%s", t.Name, place, t.Layout, mode, t.Way)
	if len(t.Kinds) > 0 {
		said += " kinds=" + strings.Join(t.Kinds, ",")
	}
	if t.Layer != "" {
		said += " layer=" + t.Layer
	}
	return said
}

// Wrong is the error of one of its settings, at its place.
func (t Tree) Wrong(field, format string, args ...any) *Error {
	return &Error{File: t.Origin.Name, Line: t.Origin.Line, Field: treeSection + "." + field, Reason: fmt.Sprintf(format, args...)}
}

// FileName is what files are called that belong to the tree: two projects have a tree of the
// same name in one store.
func (t Tree) FileName() string { return nameOf(t.Name, t.Place()) }

// Place names where the files are, the same for whoever names it, and without anything secret.
func (t Tree) Place() string {
	if t.Target == TreeDir {
		return realPath(t.Dir)
	}
	s := t.server()
	return t.Target + "\n" + withoutSecrets(s.URL) + "\n" + s.Name + "\n" + s.Prefix
}

func (t Tree) server() TreeServer {
	return map[string]TreeServer{TreeRedis: t.Redis, TreeBucket: t.Bucket, TreeS2: t.S2}[t.Target]
}

func (c *Config) takeTrees(path, text string, value any) error {
	list, err := tablesOf(value)
	if err != nil {
		return &Error{File: path, Line: lineOf(text, toml.Key{treeSection}), Field: treeSection, Reason: "want sections [[tree]]"}
	}
	for i, table := range list {
		t := Tree{Target: TreeDir, Way: "both", BulkLimit: defaultBulkLimit, MaxFile: defaultMaxFile, Origin: Origin{FromFile, path, nthLine(text, "[["+treeSection+"]]", i)}}
		t.Layout, _ = table["layout"].(string) // what others mean may depend on it
		target, elsewhere := table["target"]
		t.Sync = treeLayouts[t.Layout].sync && (!elsewhere || target == TreeDir)
		for _, name := range slices.Sorted(maps.Keys(table)) {
			if err := t.take(c.home, filepath.Dir(path), name, table[name]); err != nil {
				return t.Wrong(name, "%v", err)
			}
		}
		c.Trees = append(c.Trees, t)
	}
	return nil
}

// take takes over what one entry says, relative to a directory.
func (t *Tree) take(home, dir, name string, value any) error {
	switch name {
	case "ignore":
		var ok bool
		if t.Ignore, ok = texts(value); !ok {
			return errors.New(`want a list of patterns of names, such as ["*.swp", ".git/"]`)
		}
		for _, pattern := range t.Ignore {
			if _, err := path.Match(pattern, ""); err != nil {
				return fmt.Errorf("%q: no pattern of names", pattern) // nothing would be like it, and what it is for taken in
			}
		}
		return nil
	case "kinds":
		var ok bool
		if t.Kinds, ok = texts(value); !ok || len(t.Kinds) == 0 {
			return errors.New(`want a list of kinds, such as ["doc", "agent"]`)
		}
		return nil
	case "bulk_limit":
		n, ok := value.(int64)
		if !ok || n < 1 || n > mostBulkLimit || t.BulkLimit < 0 {
			return errors.New(`want a number of files, more than 0, and not bulk = "never"`)
		}
		t.BulkLimit = int(n)
		return nil
	case TreeRedis, TreeBucket, TreeS2:
		return t.takeServer(name, value)
	}
	text, ok := value.(string)
	if !ok || text == "" {
		if slices.Contains([]string{"name", "dir", "layout", "mode", "way", "target", "bulk", "max_file", "layer"}, name) {
			return errors.New("want a string")
		}
		return errors.New("there is no such setting")
	}
	choice := func(list ...string) error {
		if !slices.Contains(list, text) {
			return fmt.Errorf("%q: want %s", text, strings.Join(list, " or "))
		}
		return nil
	}
	switch name {
	case "name":
		t.Name = text
		if events.ValidateNamespace(text) != nil {
			return fmt.Errorf("%q: want 1 to 64 of [A-Za-z0-9_-]", text)
		}
	case "layout": // it is taken
	case "dir":
		t.Dir = placeIn(home, dir, text)
	case "mode":
		t.Sync = text == "sync"
		return choice("sync", "async")
	case "way":
		t.Way = text
		return choice("both", "out", "in")
	case "target":
		t.Target = text
		return choice(TreeDir, TreeRedis, TreeBucket, TreeS2)
	case "bulk":
		if text == "never" {
			t.BulkLimit = -1
		}
		return choice("ask", "never")
	case "max_file":
		n, err := ParseSize(text)
		if err != nil {
			return fmt.Errorf("%q: want a number of bytes, or of KiB, MiB or GiB", text)
		}
		t.MaxFile = int64(n)
	case "layer":
		t.Layer = text
	default:
		return errors.New("there is no such setting")
	}
	return nil
}

// placeIn is the folder that a text names in a file of a directory.
func placeIn(home, dir, text string) string {
	below, isHome := strings.CutPrefix(text, "~/")
	switch {
	case isHome && home != "":
		return filepath.Join(home, below)
	case filepath.IsAbs(text):
		return filepath.Clean(text)
	}
	return filepath.Join(dir, text)
}

// texts returns the texts of a list, and whether it is one of texts that say something.
func texts(value any) (all []string, ok bool) {
	list, ok := value.([]any)
	for _, item := range list {
		text, isText := item.(string)
		if !isText || text == "" {
			return nil, false
		}
		all = append(all, text)
	}
	return all, ok
}

// takeServer takes over the section of a target.
func (t *Tree) takeServer(name string, value any) error {
	table, ok := value.(map[string]any)
	if !ok {
		return errors.New("want a section")
	}
	var s TreeServer
	for _, key := range slices.Sorted(maps.Keys(table)) {
		text, ok := table[key].(string)
		if !slices.Contains(treeServers[name], key) {
			return fmt.Errorf("%s: there is no such setting", key)
		}
		if !ok || text == "" {
			return fmt.Errorf("%s: want a string", key)
		}
		*map[string]*string{"url": &s.URL, "key_prefix": &s.Prefix, "prefix": &s.Prefix, "name": &s.Name, "basin": &s.Name, "access_token": &s.Token}[key] = text
	}
	*map[string]*TreeServer{TreeRedis: &t.Redis, TreeBucket: &t.Bucket, TreeS2: &t.S2}[name] = s
	return nil
}

// fillTrees gives each tree what it did not say, once it is known what else was said, and
// holds it to what it can be. namespaces are those of the files.
func (c *Config) fillTrees(namespaces map[string]string) error {
	for i := range c.Trees {
		t := &c.Trees[i]
		t.Namespace = namespaces[t.Origin.Name]
		if t.Layout == "" {
			return t.Wrong("layout", "missing: want the name of a layout, such as tavern")
		}
		t.Name = cmp.Or(t.Name, t.Layout)
		if slices.ContainsFunc(c.Trees[:i], func(o Tree) bool { return o.Name == t.Name }) {
			return t.Wrong("name", "%q is the name of another one", t.Name)
		}
		if err := c.fillTree(t); err != nil {
			return err
		}
		if err := c.CheckNesting(t, c.Trees[:i]); err != nil {
			return err
		}
	}
	return nil
}

// CheckNesting refuses a folder in which a store or another tree is, or that is in one: what
// one writes there would be an edit for the other.
func (c *Config) CheckNesting(t *Tree, others []Tree) error {
	if t.Target != TreeDir {
		return nil
	}
	dir := realPath(t.Dir)
	nested := func(other string) bool { return isWithin(realPath(other), dir) || isWithin(dir, other) }
	if c.Backend == Local && nested(c.Store) {
		return t.Wrong("dir", "%s and the store in %s are one in the other", t.Dir, c.Store)
	}
	for _, o := range others {
		if o.Target == TreeDir && nested(o.Dir) {
			return t.Wrong("dir", "%s and %s of tree %s are one in the other", t.Dir, o.Dir, o.Name)
		}
	}
	return nil
}

// TreeIn returns the tree of a layout in a folder that a program names: the one that is said
// to be there, or another one, both ways and in mode sync.
func (c *Config) TreeIn(namespace, layout, dir string) (Tree, error) {
	t := Tree{Layout: layout, Target: TreeDir, Dir: dir, Namespace: namespace, Sync: true, Way: "both", BulkLimit: defaultBulkLimit, MaxFile: defaultMaxFile, Origin: Origin{Kind: FromFlag, Name: "the call"}}
	for _, have := range c.Trees {
		if have.Place() != t.Place() {
			continue
		}
		if have.Layout != layout || have.Namespace != namespace {
			return t, t.Wrong("dir", "%s shows %s of namespace %s", dir, have.Layout, have.Namespace)
		}
		return have, nil
	}
	t.Name = nameOf(layout, t.Place())
	return t, c.CheckNesting(&t, c.Trees)
}

// baseLayout is the layout of [Config.Base].
const baseLayout = "tallydir"

func (c *Config) fillTree(t *Tree) error {
	projects := c.isProjects(t.Origin.Name)
	if projects && t.Layer != "" && t.Layer != "project" {
		return t.Wrong("layer", "%q: only your own config.toml may have files made of what is not the project's", t.Layer)
	}
	if t.Target != TreeDir {
		return c.checkServer(t)
	}
	if dir := treeLayouts[t.Layout].dir; t.Dir == "" && projects && dir != "" {
		t.Dir = filepath.Join(c.Project, dir)
	}
	if t.Dir == "" && projects && t.Layout == baseLayout {
		t.Dir, projects = c.Base, false // only a variable of the caller's puts it elsewhere
	}
	if t.Dir == "" {
		return t.Wrong("dir", "missing: want a folder")
	}
	if projects && !isWithin(c.Project, t.Dir) {
		return t.Wrong("dir", "%s is outside of the project: only your own config.toml may name it", t.Dir)
	}
	if projects && isInVCS(c.Project, t.Dir) {
		return t.Wrong("dir", "%s belongs to a version control system: only your own config.toml may name it", t.Dir)
	}
	return nil
}

// isInVCS reports whether a folder of a project is one in which git or the like keeps what is its own.
// A clone has nothing of its author's there, such as programs that it runs by itself; a tree could
// bring it.
func isInVCS(project, dir string) bool {
	rel, err := filepath.Rel(project, realPath(dir))
	if err != nil {
		return true
	}
	for part := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		if slices.ContainsFunc([]string{".git", ".hg", ".svn", ".jj", ".bzr"}, func(name string) bool { return strings.EqualFold(name, part) }) {
			return true
		}
	}
	return false
}

// checkServer holds a tree to a server that is named, by whom it may be.
func (c *Config) checkServer(t *Tree) error {
	s := t.server()
	if c.isProjects(t.Origin.Name) {
		// It would be sent what the store has: whoever wrote the file of a repository shall not
		// have others send it.
		return t.Wrong("target", "only your own config.toml may name a server that files are sent to")
	}
	switch {
	case s == TreeServer{}:
		return t.Wrong(t.Target, "missing: want a section with %s", strings.Join(treeServers[t.Target], ", "))
	case t.Sync:
		return t.Wrong("mode", "a tree on a server is async")
	case t.Target == TreeS2 && t.Way != "out":
		return t.Wrong("way", `a tree in S2 is written, and not read: want way = "out"`)
	case t.Target != TreeRedis && s.Name == "":
		return t.Wrong(t.Target, "%s: missing: want a name", treeServers[t.Target][1])
	case t.Target != TreeS2 && s.URL == "":
		return t.Wrong(t.Target, "url: missing: want the server")
	case t.Target == TreeS2 && s.Token == "":
		return t.Wrong(t.Target, "access_token: missing: want that of the basin")
	}
	if _, err := url.Parse(s.URL); err != nil {
		return t.Wrong(t.Target, "url: want a URL") // and not the error, which repeats what may be secret
	}
	return nil
}
