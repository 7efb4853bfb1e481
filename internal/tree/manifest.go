package tree

import (
	"context"
	"io/fs"
	"maps"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
)

// fileRecord is the manifest's record of a file that the tree wrote or imported.
type fileRecord struct {
	entry   events.Subject
	at      events.Offset // offset at which the log has this content: the base of an edit
	sum     string        // SHA-256 of its content
	size    int64
	mode    fs.FileMode
	version string // version in the storage: a file with the same version need not be read
}

// entry is the manifest's record of a session or document with files.
type entry struct {
	first  events.Offset // its first record: if two entries want the same name, the lower one gets it
	at     events.Offset // offset that its files show; 0: they must be written again
	path   string        // current path; "": it has no files
	want   string        // path that it would have without other entries
	apart  string        // path that it gets if another entry has the wanted one; for an entry without files: why the layout has none
	folder bool          // it is a folder
	within []string      // names in the folder that no other entry may use
}

// intent is a file that is about to be written. After a crash it identifies the tree's own content.
type intent struct {
	entry events.Subject
	at    events.Offset
	sum   string
}

// state is the content of the manifest.
type state struct {
	cursor  projector.Cursor
	part    string // Config.Part of the files
	files   map[string]*fileRecord
	entries map[events.Subject]*entry
	intents map[string]intent
	out     map[string]*displaced // by current path
	met     bool                  // every file was examined since the manifest was created
	clean   bool                  // the tree stopped regularly, and all notifications were handled
}

func newState() state {
	return state{files: make(map[string]*fileRecord), entries: make(map[events.Subject]*entry),
		intents: make(map[string]intent), out: make(map[string]*displaced)}
}

// changes are the parts of a state that are not saved yet.
type changes struct {
	cursor  *projector.Cursor
	files   map[string]bool
	entries map[events.Subject]bool
	intents map[string]bool
	out     map[string]bool
	met     bool
	clean   bool
}

func (c *changes) isEmpty() bool {
	return c.cursor == nil && len(c.files)+len(c.entries)+len(c.intents)+len(c.out) == 0 && !c.met && !c.clean
}

func (c *changes) file(path string) {
	if c.files == nil {
		c.files = make(map[string]bool)
	}
	c.files[path] = true
}

func (c *changes) entry(sub events.Subject) {
	if c.entries == nil {
		c.entries = make(map[events.Subject]bool)
	}
	c.entries[sub] = true
}

func (c *changes) intent(path string) {
	if c.intents == nil {
		c.intents = make(map[string]bool)
	}
	c.intents[path] = true
}

func (c *changes) displaced(path string) {
	if c.out == nil {
		c.out = make(map[string]bool)
	}
	c.out[path] = true
}

// announces reports whether a new intent is among the changes.
func (c *changes) announces(s *state) bool {
	for path := range c.intents {
		if _, ok := s.intents[path]; ok {
			return true
		}
	}
	return false
}

// manifest stores a state. If it is lost, the tree reads its files again.
type manifest interface {
	// load returns the state, empty if it cannot be read.
	load(ctx context.Context) (state, error)
	// save stores the changes, all or nothing. It clears the clean flag unless c sets it.
	save(ctx context.Context, s *state, c changes) error
	// reset empties the manifest.
	reset(ctx context.Context) error
	close() error
}

// save saves the changes. The caller holds mu.
func (t *Tree) save(ctx context.Context) error {
	if t.changed.isEmpty() {
		return nil
	}
	if err := t.manifest.save(context.WithoutCancel(ctx), &t.state, t.changed); err != nil {
		return err
	}
	t.changed = changes{}
	return nil
}

// set registers a file of the tree at a path. nil removes the path. The caller holds mu.
func (t *Tree) set(path string, f *fileRecord) {
	if old := t.files[path]; old != nil {
		t.indexed(old.entry, func(p *pathSet) { p.remove(path) })
		if key := layouts.FoldedName(path); t.folded[key] == path {
			delete(t.folded, key)
		}
	}
	if f == nil {
		delete(t.files, path)
	} else {
		t.files[path] = f
		t.index(path, f)
	}
	t.changed.file(path)
}

func (t *Tree) index(path string, f *fileRecord) {
	t.indexed(f.entry, func(p *pathSet) { p.add(path) })
	t.folded[layouts.FoldedName(path)] = path
}

func (t *Tree) indexed(sub events.Subject, change func(*pathSet)) {
	p := t.ofEntry[sub]
	if change(&p); p.isEmpty() {
		delete(t.ofEntry, sub)
	} else {
		t.ofEntry[sub] = p
	}
}

// pathSet is a set of paths, optimised for one path. A map for each of very many entries would need more memory than all
// their other data.
type pathSet struct {
	one  string // "": more holds the paths
	more map[string]bool
}

func (p *pathSet) isEmpty() bool { return p.one == "" && len(p.more) == 0 }

func (p *pathSet) add(path string) {
	if p.isEmpty() {
		*p = pathSet{one: path}
		return
	}
	if p.more == nil {
		p.one, p.more = "", map[string]bool{p.one: true}
	}
	p.more[path] = true
}

func (p *pathSet) remove(path string) {
	if p.one == path {
		p.one = ""
	}
	delete(p.more, path)
}

func (p *pathSet) sorted() []string {
	if p.one != "" {
		return []string{p.one}
	}
	return slices.Sorted(maps.Keys(p.more))
}

// alias returns the path of the tree's file that a path names, where the storage ignores case. Otherwise it returns the
// path itself. The caller holds mu.
func (t *Tree) alias(ctx context.Context, path string) string {
	if t.files[path] != nil {
		return path
	}
	return t.sameFile(ctx, path)
}

// sameFile returns the path of another file of the tree that is the same file. Otherwise it returns the path itself.
func (t *Tree) sameFile(ctx context.Context, path string) string {
	ours, ok := t.folded[layouts.FoldedName(path)]
	if !ok || ours == path {
		return path
	}
	a, err := t.c.Storage.Stat(ctx, path)
	b, err2 := t.c.Storage.Stat(ctx, ours)
	if err != nil || err2 != nil || a.Version == "" || a.Version != b.Version {
		return path
	}
	return ours
}

// filesOf lists the paths of an entry's files, sorted. The caller holds mu.
func (t *Tree) filesOf(sub events.Subject) []string {
	p := t.ofEntry[sub]
	return p.sorted()
}

// memoryManifest is a manifest that ends with the process.
type memoryManifest struct {
	state
	there bool
}

func (b *memoryManifest) load(context.Context) (state, error) {
	s := newState()
	if !b.there {
		return s, nil
	}
	s.cursor, s.part, s.met, s.clean = b.cursor, b.part, b.met, b.clean
	for path, f := range b.files {
		c := *f
		s.files[path] = &c
	}
	for sub, u := range b.entries {
		c := *u
		s.entries[sub] = &c
	}
	maps.Copy(s.intents, b.intents)
	for path, d := range b.out {
		c := *d
		s.out[path] = &c
	}
	return s, nil
}

func (b *memoryManifest) save(_ context.Context, s *state, c changes) error {
	if !b.there {
		b.state, b.there = newState(), true
	}
	if c.cursor != nil {
		b.cursor = *c.cursor
	}
	b.clean, b.met, b.part = c.clean, s.met, s.part
	for path := range c.files {
		if f := s.files[path]; f != nil {
			kept := *f
			b.files[path] = &kept
		} else {
			delete(b.files, path)
		}
	}
	for sub := range c.entries {
		if u := s.entries[sub]; u != nil {
			kept := *u
			b.entries[sub] = &kept
		} else {
			delete(b.entries, sub)
		}
	}
	for path := range c.intents {
		if i, ok := s.intents[path]; ok {
			b.intents[path] = i
		} else {
			delete(b.intents, path)
		}
	}
	for path := range c.out {
		if d := s.out[path]; d != nil {
			kept := *d
			b.out[path] = &kept
		} else {
			delete(b.out, path)
		}
	}
	return nil
}

func (b *memoryManifest) reset(context.Context) error {
	b.state, b.there = state{}, false
	return nil
}

func (b *memoryManifest) close() error { return nil }
