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

// Tree configures a tree: a folder or server that holds sessions and documents as files, kept up to date both ways. See
// package tree.
type Tree struct {
	Name      string // for messages, names of files, and events
	Layout    string // tavern, tallydir ...
	Target    string // TreeDir, TreeRedis, TreeBucket or TreeS2
	Dir       string // absolute; of TreeDir
	Redis     TreeServer
	Bucket    TreeServer
	S2        TreeServer
	Namespace string // of the sessions and documents; from the file that configures the tree, not from flags
	Sync      bool   // an append waits until the files are written
	Way       string // both, out or in
	BulkLimit int    // files that may change at once; more stop the tree until the user decides. < 0: no limit
	Ignore    []string
	MaxFile   int64    // bytes
	Kinds     []string // kinds of documents with files; empty: all that the layout supports
	Layer     string   // layer of documents with files; "": the default of the layout
	Origin    Origin
}

// TreeServer is the location of a tree on a server.
type TreeServer struct {
	URL    string
	Name   string // of the bucket or the basin
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

// treeLayouts has the defaults of trees by layout.
var treeLayouts = map[string]struct {
	dir  string
	sync bool
}{"tavern": {dir: ".tavern", sync: true}}

const (
	defaultBulkLimit = 50
	defaultMaxFile   = 64 << 20
	maxBulkLimit     = 1 << 30
)

// treeServers are the settings of each kind of server.
var treeServers = map[string][]string{
	TreeRedis:  {"url", "key_prefix"},
	TreeBucket: {"url", "name"},
	TreeS2:     {"url", "basin", "access_token", "prefix"},
}

// String returns the tree as text for people.
func (t Tree) String() string {
	location := t.Dir
	if t.Target != TreeDir {
		s := t.server()
		location = strings.Join(strings.Fields(t.Target+" "+s.Name+" "+withoutSecrets(s.URL)), " ")
	}
	mode := "async"
	if t.Sync {
		mode = "sync"
	}
	said := fmt.Sprintf("%s %s layout=%s mode=%s way=%s", t.Name, location, t.Layout, mode, t.Way)
	if len(t.Kinds) > 0 {
		said += " kinds=" + strings.Join(t.Kinds, ",")
	}
	if t.Layer != "" {
		said += " layer=" + t.Layer
	}
	return said
}

// Wrong returns an error about a setting of the tree, with its file and line.
func (t Tree) Wrong(field, format string, args ...any) *Error {
	return &Error{File: t.Origin.Name, Line: t.Origin.Line, Field: treeSection + "." + field, Reason: fmt.Sprintf(format, args...)}
}

// FileName returns a name for state files of the tree. It differs for two projects that have a tree of the same name in
// one store.
func (t Tree) FileName() string { return nameOf(t.Name, t.Location()) }

// Location returns where the files are. It is the same for all spellings of the location, and contains no secret.
func (t Tree) Location() string {
	if t.Target == TreeDir {
		return realPath(t.Dir)
	}
	s := t.server()
	return t.Target + "\n" + withoutSecrets(s.URL) + "\n" + s.Name + "\n" + s.Prefix
}

func (t Tree) server() TreeServer {
	return map[string]TreeServer{TreeRedis: t.Redis, TreeBucket: t.Bucket, TreeS2: t.S2}[t.Target]
}

func (c *Config) takeTrees(file, text string, value any) error {
	list, err := tablesOf(value)
	if err != nil {
		return &Error{File: file, Line: lineOf(text, toml.Key{treeSection}), Field: treeSection, Reason: "want sections [[tree]]"}
	}
	for i, table := range list {
		t := Tree{Target: TreeDir, Way: "both", BulkLimit: defaultBulkLimit, MaxFile: defaultMaxFile, Origin: Origin{FromFile, file, nthLine(text, "[["+treeSection+"]]", i)}}
		t.Layout, _ = table["layout"].(string) // defaults of other settings depend on the layout
		target, elsewhere := table["target"]
		t.Sync = treeLayouts[t.Layout].sync && (!elsewhere || target == TreeDir)
		for _, name := range slices.Sorted(maps.Keys(table)) {
			if err := t.take(c.home, filepath.Dir(file), name, table[name]); err != nil {
				return t.Wrong(name, "%v", err)
			}
		}
		c.Trees = append(c.Trees, t)
	}
	return nil
}

// take applies one setting. Paths are relative to dir.
func (t *Tree) take(home, dir, name string, value any) error {
	switch name {
	case "ignore":
		var ok bool
		if t.Ignore, ok = texts(value); !ok {
			return errors.New(`want a list of patterns of names, such as ["*.swp", ".git/"]`)
		}
		for _, pattern := range t.Ignore {
			if _, err := path.Match(pattern, ""); err != nil {
				return fmt.Errorf("%q: invalid pattern of names", pattern) // an invalid pattern would match nothing, and files that should be ignored would be read
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
		if !ok || n < 1 || n > maxBulkLimit || t.BulkLimit < 0 {
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
	case "layout": // set by the caller
	case "dir":
		t.Dir = pathIn(home, dir, text)
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

// pathIn returns the absolute path of a folder named in a file of a directory.
func pathIn(home, dir, text string) string {
	below, isHome := strings.CutPrefix(text, "~/")
	switch {
	case isHome && home != "":
		return filepath.Join(home, below)
	case filepath.IsAbs(text):
		return filepath.Clean(text)
	}
	return filepath.Join(dir, text)
}

// texts returns the elements of a list. ok is false unless all are nonempty strings.
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

// takeServer applies the section of a target.
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

// fillTrees sets defaults of the trees and validates them, once all files are read. namespaces are by file.
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

// CheckNesting returns an error if the folder of a tree contains a store or another tree, or is inside one. Files
// written by one would be edits for the other.
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

// TreeIn returns the tree of a layout in a folder named by a program: the configured tree there, or else a new one with
// both directions in mode sync.
func (c *Config) TreeIn(namespace, layout, dir string) (Tree, error) {
	t := Tree{Layout: layout, Target: TreeDir, Dir: dir, Namespace: namespace, Sync: true, Way: "both", BulkLimit: defaultBulkLimit, MaxFile: defaultMaxFile, Origin: Origin{Kind: FromFlag, Name: "the call"}}
	for _, have := range c.Trees {
		if have.Location() != t.Location() {
			continue
		}
		if have.Layout != layout || have.Namespace != namespace {
			return t, t.Wrong("dir", "%s shows %s of namespace %s", dir, have.Layout, have.Namespace)
		}
		return have, nil
	}
	t.Name = nameOf(layout, t.Location())
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
		t.Dir, projects = c.Base, false // only a variable of the user can move it
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

// isInVCS reports whether a folder of a project belongs to a version control system. A clone contains nothing of its
// author there, such as hooks that run automatically, and a tree must not add that.
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

// checkServer validates a tree on a server. Only the user's own file may configure such a tree.
func (c *Config) checkServer(t *Tree) error {
	s := t.server()
	if c.isProjects(t.Origin.Name) {
		// The tree sends the content of the store to the server. The author of a repository must not be able to make
		// others send it.
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
		return t.Wrong(t.Target, "url: want a URL") // without the error, which may repeat a secret
	}
	return nil
}
