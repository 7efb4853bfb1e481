package tree

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
)

// How long nothing happens to a path before it is looked at: programs write in pieces, and
// editors empty a file, or put another in its place, before they write.
const (
	settle      = 100 * time.Millisecond
	settleLarge = 500 * time.Millisecond // above large bytes
	settleGone  = time.Second            // of what is empty or gone
	large       = 1 << 20
)

// notice is a path that may have changed.
type notice struct {
	last   time.Time // that somebody said so
	settle time.Duration
	found  bool // nobody said so: the tree met it, and remembers nothing
	unread bool // it cannot be read, and is tried again: nothing waits for that
}

// edit is a change that somebody made to a file.
type edit struct {
	path    string
	unit    events.Subject
	gone    bool
	sum     string
	size    int64
	mode    fs.FileMode
	modTime time.Time
	version string
	data    []byte    // nil of a large one
	found   bool      // the tree met it, and remembers nothing: it may be its own
	dropped bool      // somebody decided that it goes
	since   time.Time // when it was found to be one
	asked   bool      // it is a part of what the tree asks about
	isBack  bool      // its file has again what it had before
	kept    string    // id of the conflict that has its text meanwhile; "": none has
}

// Changed says that a path may have changed, "" that anything may have.
func (t *Tree) Changed(p string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.loaded || t.c.Way == Out {
		return
	}
	if p == "" {
		t.audited = false
	} else {
		t.note(p, t.c.Now())
	}
	t.stir()
}

// note has a path be looked at when nothing more happens to it. The caller holds mu.
func (t *Tree) note(p string, now time.Time) {
	if t.isIgnored(p) {
		return
	}
	n := t.noticed[p]
	if n == nil {
		n = &notice{settle: settle}
		t.noticed[p] = n
	}
	n.last, n.found = now, false
}

// ignored are names that editors and other programs use beside a file.
var ignored = []string{"*~", ".*.sw?", "4913", ".#*", "#*#", "*___jb_*", ".DS_Store", "Thumbs.db", "sed??????", ".git"}

// isIgnored reports whether a path is not looked at.
func (t *Tree) isIgnored(p string) bool {
	if t.files[p] != nil {
		return false
	}
	for name := range strings.SplitSeq(p, "/") {
		if layouts.IsTemporary(name) {
			return true
		}
		for _, pattern := range ignored {
			if ok, _ := path.Match(pattern, name); ok {
				return true
			}
		}
		for _, pattern := range t.c.Ignore {
			if ok, _ := path.Match(strings.TrimSuffix(pattern, "/"), name); ok {
				return true
			}
		}
	}
	for ; p != "."; p = path.Dir(p) { // or a folder that it is in
		for _, pattern := range t.c.Ignore {
			if ok, _ := path.Match(strings.TrimSuffix(pattern, "/"), p); ok {
				return true
			}
		}
	}
	return false
}

// settled finds out what of the paths that nothing happened to any more is an edit, and says
// when the next one has settled. The caller holds mu.
func (t *Tree) settled(ctx context.Context, now time.Time) (next time.Time) {
	spelled := make(map[string]int)
	for p := range t.noticed {
		spelled[layouts.FoldedName(p)]++
	}
	for p, n := range t.noticed {
		due := n.last.Add(n.settle)
		if due.After(now) {
			next = sooner(next, due)
			continue
		}
		e, longer := t.examine(ctx, p, n)
		if longer > 0 {
			n.settle = longer
			next = sooner(next, n.last.Add(longer))
			continue
		}
		delete(t.noticed, p)
		at := p
		if e != nil {
			at = e.path
		}
		old := t.edits[at]
		delete(t.edits, p)
		if old != nil {
			delete(t.edits, at)
			t.overtaken(ctx, old, e)
		}
		if e != nil && (spelled[layouts.FoldedName(p)] < 2 || t.isCalled(ctx, e.path)) {
			t.edits[e.path] = e
			if e.since.IsZero() {
				e.since = now
			}
		}
	}
	return next
}

// pending is how many paths are about to be looked at. The caller holds mu.
func (t *Tree) pending() (count int) {
	for _, n := range t.noticed {
		if !n.unread {
			count++
		}
	}
	return count
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// examine looks at a path. The result is nil if it is as the tree knows it; longer says that
// it must not have changed for as long. The caller holds mu.
func (t *Tree) examine(ctx context.Context, p string, n *notice) (e *edit, longer time.Duration) {
	p = t.alias(ctx, p)
	have := t.files[p]
	delete(t.skipped, p)
	n.unread = false
	info, err := t.c.Storage.Stat(ctx, p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if have == nil {
			t.folderGone(p)
			return nil, 0
		}
		if n.settle < settleGone {
			return nil, settleGone
		}
		return &edit{path: p, unit: have.unit, gone: true}, 0
	case err != nil:
		return t.unread(p, n, err)
	case info.Dir:
		t.scan(ctx, p)
		return nil, 0
	case info.Size < 0:
		t.skipped[p] = "it is neither a file nor a folder: it is neither followed nor read"
		return nil, 0
	case info.Size > t.c.MaxFile:
		t.skipped[p] = "it is larger than the tree reads"
		return nil, 0
	case info.Size > large && n.settle < settleLarge:
		return nil, settleLarge
	case info.Size == 0 && (have == nil || have.size > 0) && n.settle < settleGone:
		return nil, settleGone
	}
	e, err = t.read(ctx, p, info)
	if err == nil {
		e.found = n.found
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errChanging) {
		n.last = t.c.Now()
		return nil, n.settle
	}
	if err != nil {
		return t.unread(p, n, err)
	}
	if meant, ok := t.intents[p]; ok && e.sum == meant.sum { // nobody said that it was put there
		have = &file{unit: meant.unit, at: meant.at, sum: e.sum, size: e.size, mode: e.mode, version: e.version}
		t.set(p, have)
		t.writeAgain(meant.unit) // it may have been meant to be something else since
		if t.again.IsZero() {
			t.again = t.c.Now()
		}
	}
	if have != nil && e.sum == have.sum && layouts.ModeOf(e.mode) == layouts.ModeOf(have.mode) {
		if have.version != e.version {
			have.version = e.version
			t.changed.file(p)
		}
		return nil, 0
	}
	return e, 0
}

// unread has a path be looked at again that cannot be.
func (t *Tree) unread(p string, n *notice, err error) (e *edit, longer time.Duration) {
	t.skipped[p] = err.Error()
	n.last, n.unread = t.c.Now(), true
	return nil, settleGone
}

// isCalled reports whether a file has the name by which it was found, and not another spelling
// of it, where the storage takes names for one that differ in case.
func (t *Tree) isCalled(ctx context.Context, p string) bool {
	if t.files[p] != nil {
		return true
	}
	list, err := t.c.Storage.List(ctx, folder(p))
	return err != nil || slices.ContainsFunc(list, func(e layouts.FileInfo) bool { return e.Name == path.Base(p) })
}

// folderGone has the files of a folder be looked at that is not there. The caller holds mu.
func (t *Tree) folderGone(p string) {
	for q := range t.files {
		if strings.HasPrefix(q, p+"/") && t.noticed[q] == nil {
			t.note(q, t.c.Now())
		}
	}
}

// errChanging says that a file is written to right now.
var errChanging = errors.New("it changed while it was read")

// read reads a file that does not change meanwhile.
func (t *Tree) read(ctx context.Context, p string, info layouts.FileInfo) (*edit, error) {
	reached("way back: before read")
	r, err := t.c.Storage.Read(ctx, p)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	e := &edit{path: p, mode: info.Mode, modTime: info.ModTime, version: info.Version}
	h := sha256.New()
	if info.Size <= t.heldEdit {
		var b bytes.Buffer
		if _, err := b.ReadFrom(io.LimitReader(r, t.heldEdit+1)); err != nil {
			return nil, err
		}
		e.data, e.size = b.Bytes(), int64(b.Len())
		if e.data == nil {
			e.data = []byte{}
		}
		h.Write(e.data)
	} else if e.size, err = io.Copy(h, r); err != nil {
		return nil, err
	}
	e.sum = hex.EncodeToString(h.Sum(nil))
	after, err := t.c.Storage.Stat(ctx, p)
	if err != nil {
		return nil, err
	}
	if after.Size != e.size || after.Version != info.Version {
		return nil, errChanging
	}
	return e, nil
}

// scan has every file of a folder be looked at that is not known to be as it was, and each
// that is not there any more. The caller holds mu.
func (t *Tree) scan(ctx context.Context, dir string) {
	seen := make(map[string]bool)
	t.walk(ctx, dir, func(p string, e layouts.FileInfo) {
		p = t.alias(ctx, p)
		seen[p] = true
		if have := t.files[p]; have == nil || e.Version == "" || have.version != e.Version {
			if e.Size < 0 {
				t.skipped[p] = "it is neither a file nor a folder: it is neither followed nor read"
			} else if t.noticed[p] == nil {
				t.note(p, t.c.Now())
			}
		}
	})
	for p := range t.files {
		if (dir == "" || strings.HasPrefix(p, dir+"/")) && !seen[p] && t.noticed[p] == nil {
			t.note(p, t.c.Now())
		}
	}
	for p := range t.edits { // what was one may have been taken back without a word
		if (dir == "" || strings.HasPrefix(p, dir+"/")) && t.noticed[p] == nil {
			t.note(p, t.c.Now())
		}
	}
}

// walk visits every file below a folder that is looked at.
func (t *Tree) walk(ctx context.Context, dir string, visit func(p string, e layouts.FileInfo)) {
	t.each(ctx, dir, func(p string) bool { return !t.isIgnored(p) }, visit)
}

// each visits every file below a folder but those that enters is false of, with all that is in
// such a folder. What cannot be listed is said.
func (t *Tree) each(ctx context.Context, dir string, enters func(p string) bool, visit func(p string, e layouts.FileInfo)) {
	if w, ok := t.c.Storage.(layouts.Walker); ok { // to list folders would take a look at everything for each
		for f, err := range w.Walk(ctx, dir) {
			if err != nil {
				t.skipped[dir] = err.Error()
				return
			}
			if enters(f.Path) {
				visit(f.Path, f.FileInfo)
			}
		}
		return
	}
	list, err := t.c.Storage.List(ctx, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.skipped[dir] = err.Error()
	}
	for _, e := range list {
		p := path.Join(dir, e.Name)
		switch {
		case !enters(p):
		case e.Dir:
			t.each(ctx, p, enters, visit)
		default:
			visit(p, e)
		}
	}
}
