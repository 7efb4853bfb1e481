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

// Times without a change after which a path is examined. Programs write in pieces, and editors empty or replace a file
// before they write.
const (
	settle      = 100 * time.Millisecond
	settleLarge = 500 * time.Millisecond // above large bytes
	settleGone  = time.Second            // for empty or missing files
	large       = 1 << 20
)

// notice is a path that may have changed.
type notice struct {
	last   time.Time // time of the last notification
	settle time.Duration
	found  bool // found by the tree without a notification, and not in its manifest
	unread bool // it cannot be read and is retried; nothing waits for it
}

// edit is a change of a file by a user.
type edit struct {
	path    string
	entry   events.Subject
	gone    bool
	sum     string
	size    int64
	mode    fs.FileMode
	modTime time.Time
	version string
	data    []byte    // nil for a large file
	found   bool      // found by the tree and not in its manifest: the file may be the tree's own
	dropped bool      // a user decided to drop it
	since   time.Time // when it was recognised
	asked   bool      // a part of the current question
	isBack  bool      // the file has its former content again
	kept    string    // id of the conflict that keeps its text meanwhile; "": none
}

// Changed notifies the tree that a path may have changed. "" means any path.
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

// note schedules the examination of a path after its last change. The caller holds mu.
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

// ignored are name patterns of files that editors and other programs create beside a file.
var ignored = []string{"*~", ".*.sw?", "4913", ".#*", "#*#", "*___jb_*", ".DS_Store", "Thumbs.db", "sed??????", ".git"}

// isIgnored reports whether a path is ignored.
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
	for ; p != "."; p = path.Dir(p) { // the path or a folder above it
		for _, pattern := range t.c.Ignore {
			if ok, _ := path.Match(strings.TrimSuffix(pattern, "/"), p); ok {
				return true
			}
		}
	}
	return false
}

// settled examines the paths that have settled, and returns when the next one settles. The caller holds mu.
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
				if !n.last.IsZero() { // not of a rescan; the path may have waited longer, as a file that was gone
					e.since = n.last.Add(settle)
				}
			}
		}
	}
	return next
}

// pending returns the number of paths to be examined. The caller holds mu.
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

// examine checks a path. It returns nil if the path is unchanged. longer is a longer settling time that the path needs.
// The caller holds mu.
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
		return &edit{path: p, entry: have.entry, gone: true}, 0
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
	if meant, ok := t.intents[p]; ok && e.sum == meant.sum { // the tree put it there without an answer
		have = &fileRecord{entry: meant.entry, at: meant.at, sum: e.sum, size: e.size, mode: e.mode, version: e.version}
		t.set(p, have)
		t.writeAgain(meant.entry) // a later write may have been intended
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

// unread schedules a retry for a path that cannot be read.
func (t *Tree) unread(p string, n *notice, err error) (e *edit, longer time.Duration) {
	t.skipped[p] = err.Error()
	n.last, n.unread = t.c.Now(), true
	return nil, settleGone
}

// isCalled reports whether a file has exactly this name, where the storage ignores case.
func (t *Tree) isCalled(ctx context.Context, p string) bool {
	if t.files[p] != nil {
		return true
	}
	list, err := t.c.Storage.List(ctx, folder(p))
	return err != nil || slices.ContainsFunc(list, func(e layouts.FileInfo) bool { return e.Name == path.Base(p) })
}

// folderGone schedules the examination of the files in a missing folder. The caller holds mu.
func (t *Tree) folderGone(p string) {
	for q := range t.files {
		if strings.HasPrefix(q, p+"/") && t.noticed[q] == nil {
			t.note(q, t.c.Now())
		}
	}
}

// errChanging reports that a file is being written.
var errChanging = errors.New("the file changed while it was read")

// read reads a file and fails if it changes meanwhile.
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
	reached("way back: after read")
	after, err := t.c.Storage.Stat(ctx, p)
	if err != nil {
		return nil, err
	}
	if after.Size != e.size || after.Version != info.Version {
		return nil, errChanging
	}
	return e, nil
}

// scan schedules the examination of every file in a folder that may have changed, and of every missing file. The caller
// holds mu.
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
	for p := range t.edits { // an edit may have been reverted without a notification
		if (dir == "" || strings.HasPrefix(p, dir+"/")) && t.noticed[p] == nil {
			t.note(p, t.c.Now())
		}
	}
}

// walk visits every file below a folder, except ignored ones.
func (t *Tree) walk(ctx context.Context, dir string, visit func(p string, e layouts.FileInfo)) {
	t.each(ctx, dir, func(p string) bool { return !t.isIgnored(p) }, visit)
}

// each visits every file below a folder, except paths for which enters returns false and their content. Folders that
// cannot be listed are reported.
func (t *Tree) each(ctx context.Context, dir string, enters func(p string) bool, visit func(p string, e layouts.FileInfo)) {
	if w, ok := t.c.Storage.(layouts.Walker); ok { // listing folders would read everything for each
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
