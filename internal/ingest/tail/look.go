package tail

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path"
	"time"
)

// lookAt looks at a name in a folder that is known.
func (t *Tailer) lookAt(k key) {
	d := t.folders[key{k.root, path.Dir(k.rel)}]
	if d == nil || k.rel == "." {
		return
	}
	info, err := os.Lstat(k.root.full(k.rel))
	t.found(d, k, info, err)
}

// found does what the look at a name in a folder says.
func (t *Tailer) found(d *folder, k key, info fs.FileInfo, err error) {
	f := d.files[path.Base(k.rel)]
	isRegular := err == nil && info.Mode().IsRegular()
	if f != nil && !isRegular && (err == nil || isNotThere(err)) {
		t.miss(f)
		f = nil
	}
	switch {
	case err != nil && isNotThere(err):
		t.clear(k)
		if below := t.folders[k]; below != nil {
			t.dropFolder(below)
		}
	case err != nil:
		t.fail(k, err)
	case info.IsDir():
		if t.folders[k] == nil && t.o.Enters(k.root.id, k.rel) {
			t.addFolder(k)
		}
	case f != nil:
		t.look(f, info)
	case !t.o.Wants(k.root.id, k.rel):
	case isRegular:
		t.meet(d, k, info)
	case info.Mode()&fs.ModeSymlink == 0:
		t.fail(k, &fs.PathError{Op: "tail", Path: k.root.full(k.rel), Err: errors.New("not a regular file: " + info.Mode().Type().String())})
	default: // symbolic links are nothing
	}
}

// look compares a file with what was seen of it last.
func (t *Tailer) look(f *file, info fs.FileInfo) {
	now := seen{nodeOf(info), info.Size(), info.ModTime().UnixNano()}
	t0 := t.o.Now()
	if now != f.now {
		t.unindexNode(f)
		f.compare = f.compare || now.node != f.now.node || now.size <= f.now.size
		f.now, f.settled, f.changed, f.folder.recent = now, false, t0, t0
		t.indexNode(f)
		t.enqueue(f, true)
		return
	}
	isUnread := f.read != f.now && f.queue == nil && !f.parked && t.packedFile != f
	if f.problem || isUnread || !f.settled && t.since(f.changed) >= settle {
		t.enqueue(f, f.live)
	}
}

// settle is how long after a change another one can be taken for it: file systems count
// time in steps of up to 2 s.
const settle = 2 * time.Second

// meet looks at a regular file that is not known in its folder: it is back, it was another
// name's before, or it is new.
func (t *Tailer) meet(d *folder, k key, info fs.FileInfo) {
	if f := t.lost[k]; f != nil {
		t.back(f, d, info)
		return
	}
	if t.isFull() {
		return
	}
	f, isAlias := t.ancestor(d, k, info)
	switch {
	case isAlias:
	case f != nil:
		t.move(f, d, k, info)
	case info.ModTime().Before(t.o.Since): // it is looked at again when it changes
	default:
		t.meetNew(d, k, info)
	}
}

// isFull reports whether no more files and folders are remembered.
func (t *Tailer) isFull() bool {
	isFull := len(t.folders)+t.files >= t.o.MaxFiles
	t.full = t.full || isFull
	return isFull
}

func seenOf(info fs.FileInfo) seen {
	return seen{nodeOf(info), info.Size(), info.ModTime().UnixNano()}
}

// back puts a file where it was before.
func (t *Tailer) back(f *file, d *folder, info fs.FileInfo) {
	wasGone := f.gone
	t.location(f, d)
	t.unindexNode(f)
	isFirst := !f.isKnown
	f.isKnown, f.gone = true, false
	before := f.now
	f.now = seenOf(info)
	t.indexNode(f)
	if wasGone {
		t.tell(f, &Batch{Kind: Moved, File: f.File(), From: f.File()})
	}
	t.recent(f, info)
	switch {
	case f.now != before || f.read != f.now:
		f.compare = f.now.node != f.read.node || f.now.size <= f.read.size
		f.settled = false
		if isFirst {
			t.askResume(f)
		}
		t.enqueue(f, f.live)
	case isFirst && f.mark.Offset < f.end: // what was not acknowledged, or has no line feed
		t.enqueue(f, f.live)
	}
}

// recent says whether a file goes before others, by its time: one in the future does.
func (t *Tailer) recent(f *file, info fs.FileInfo) {
	f.changed = info.ModTime()
	f.live = t.agenda.isOver || t.since(f.changed) < t.o.Live || f.changed.After(t.o.Now())
	if f.changed.After(t.o.Now()) {
		f.changed = t.o.Now()
	}
	f.folder.recent = later(f.folder.recent, f.changed)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// since returns how long ago something was. What is in the future, as the clock was put
// back, is long ago.
func (t *Tailer) since(at time.Time) time.Duration {
	if d := t.o.Now().Sub(at); d >= 0 {
		return d
	}
	return math.MaxInt64
}

// askResume asks the caller how far a file was read that this process has not read yet. The
// caller may know more than the state: that is written later, and what was between may not
// be in the file any more.
func (t *Tailer) askResume(f *file) {
	if t.o.Resume == nil {
		return
	}
	if pos, ok := t.o.Resume(f.File(), func() []byte { return t.head(f.key, f.packed) }); ok && pos.Offset > f.mark.Offset {
		f.position, f.isTold = &pos, true
	}
}

func (t *Tailer) meetNew(d *folder, k key, info fs.FileInfo) {
	f := t.newFile(k)
	f.isKnown, f.now = true, seenOf(info)
	t.location(f, d)
	t.recent(f, info)
	t.index(f)
	t.askResume(f)
	t.enqueue(f, f.live)
}
