package tail

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path"
	"time"
)

// lookAt examines a name in a known folder.
func (t *Tailer) lookAt(k fileKey) {
	d := t.folders[fileKey{k.root, path.Dir(k.rel)}]
	if d == nil || k.rel == "." {
		return
	}
	info, err := os.Lstat(k.root.full(k.rel))
	t.found(d, k, info, err)
}

// found processes the result of the examination of a name.
func (t *Tailer) found(d *folderState, k fileKey, info fs.FileInfo, err error) {
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
	default: // symbolic links are ignored
	}
}

// look compares a file with its last metadata.
func (t *Tailer) look(f *file, info fs.FileInfo) {
	now := metaOf(info)
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

// settle is the time after a change during which another change may have the same time: file systems have a resolution
// of up to 2 s.
const settle = 2 * time.Second

// meet handles a regular file that is unknown in its folder: it is back, it had another name, or it is new.
func (t *Tailer) meet(d *folderState, k fileKey, info fs.FileInfo) {
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
	case info.ModTime().Before(t.o.Since): // it is examined again when it changes
	default:
		t.meetNew(d, k, info)
	}
}

// isFull reports whether the limit of files and folders is reached.
func (t *Tailer) isFull() bool {
	isFull := len(t.folders)+t.files >= t.o.MaxFiles
	t.full = t.full || isFull
	return isFull
}

func metaOf(info fs.FileInfo) meta {
	return meta{nodeOf(info), info.Size(), info.ModTime().UnixNano()}
}

// back registers a file that has reappeared at its path.
func (t *Tailer) back(f *file, d *folderState, info fs.FileInfo) {
	wasGone := f.gone
	t.register(f, d)
	t.unindexNode(f)
	isFirst := !f.isKnown
	f.isKnown, f.gone = true, false
	before := f.now
	f.now = metaOf(info)
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
	case isFirst && f.mark.Offset < f.end: // unacknowledged content, or content without a line feed
		t.enqueue(f, f.live)
	}
}

// recent sets the priority of a file by its time. A time in the future counts as now.
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

// since returns the time since an event. If the event is in the future, because the clock was turned back, it counts as
// long ago.
func (t *Tailer) since(at time.Time) time.Duration {
	if d := t.o.Now().Sub(at); d >= 0 {
		return d
	}
	return math.MaxInt64
}

// askResume asks the caller for the read position of a file that is new to this process. The caller may know a later
// position than the state, which is written with a delay. The file may no longer have the content in between.
func (t *Tailer) askResume(f *file) {
	if t.o.Resume == nil {
		return
	}
	if pos, ok := t.o.Resume(f.File(), func() []byte { return t.head(f.fileKey, f.packed) }); ok && pos.Offset > f.mark.Offset {
		f.position, f.isTold = &pos, true
	}
}

func (t *Tailer) meetNew(d *folderState, k fileKey, info fs.FileInfo) {
	f := t.newFile(k)
	f.isKnown, f.now = true, metaOf(info)
	t.register(f, d)
	t.recent(f, info)
	t.index(f)
	t.askResume(f)
	t.enqueue(f, f.live)
}
