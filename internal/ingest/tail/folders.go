package tail

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// addFolder starts to follow a folder. The watch precedes the listing, so files created in between are noticed.
func (t *Tailer) addFolder(k fileKey) {
	d := t.folders[k]
	if d == nil {
		if t.isFull() {
			return
		}
		d = &folderState{fileKey: k, files: make(map[string]*file)}
		t.folders[k] = d
		t.unwatched++
		if parent := t.folders[fileKey{k.root, path.Dir(k.rel)}]; parent != d {
			d.parent = parent
			parent.below(d)
		}
	}
	t.addWatch(d)
	t.agendaList(d)
}

func (t *Tailer) agendaList(d *folderState) {
	if !d.queued {
		d.queued = true
		t.agenda.lists = append(t.agenda.lists, d)
	}
}

// dropFolder stops following a missing folder and its subfolders. If the folder was renamed, a remaining watch would
// follow it under its new name.
func (t *Tailer) dropFolder(d *folderState) {
	for below := range d.folders {
		t.dropFolder(below)
	}
	t.unwatch(d)
	t.unwatched--
	delete(t.folders, d.fileKey)
	if d.parent != nil {
		delete(d.parent.folders, d)
	}
	t.clear(d.fileKey)
	for _, f := range d.files {
		t.miss(f)
	}
}

// lookAtFolder schedules a listing if the modification time of a folder has changed. The first listing with equal times
// before and after is not the last one: a change right after it can have the same time.
func (t *Tailer) lookAtFolder(d *folderState) {
	if t.folders[d.fileKey] != d {
		return
	}
	info, err := os.Lstat(d.root.full(d.rel))
	if d.rel == "." && err == nil {
		info, err = os.Stat(d.root.path)
	}
	switch {
	case err != nil && isNotThere(err) || err == nil && !info.IsDir():
		t.dropFolder(d)
	case err != nil:
		t.fail(d.fileKey, err)
	default:
		if !d.watched {
			t.addWatch(d)
		}
		at := info.ModTime().UnixNano()
		if at == d.time && d.settled {
			return
		}
		if t.o.Now().Before(d.earlier) {
			t.agenda.isPart = true
			return
		}
		d.settled = at == d.time
		if at != d.time {
			d.recent = t.o.Now()
		}
		d.time = at
		t.agendaList(d)
		if !d.watched {
			t.agendaFiles(d)
		}
	}
}

// list examines the next names of a folder.
func (t *Tailer) list(d *folderState) {
	a := &t.agenda
	if t.folders[d.fileKey] != d {
		t.listed(d, nil)
		return
	}
	if a.open == nil {
		a.began = t.o.Now()
		if err := t.beginList(d); err != nil {
			t.listed(d, err)
			return
		}
	}
	entries, err := a.open.ReadDir(step)
	for _, e := range entries {
		if d.files[e.Name()] == nil {
			t.lookAtEntry(d, e)
		}
	}
	if err != nil {
		t.listed(d, err)
	}
}

func (t *Tailer) beginList(d *folderState) error {
	if d.root.dir == nil {
		return fs.ErrNotExist
	}
	open, err := d.root.dir.OpenFile(filepath.FromSlash(d.rel), openFlags, 0)
	if err != nil {
		return err
	}
	info, err := open.Stat()
	if err != nil {
		open.Close()
		return err
	}
	if d.time == 0 {
		d.time, d.recent = info.ModTime().UnixNano(), later(d.recent, info.ModTime())
	}
	t.agenda.open = open
	return nil
}

// listed ends the listing of a folder. A slow listing is not repeated at once.
func (t *Tailer) listed(d *folderState, err error) {
	a := &t.agenda
	if a.open != nil {
		a.open.Close()
		a.open = nil
	}
	a.lists = a.lists[1:]
	d.queued = false
	if took := t.o.Now().Sub(a.began); took > 0 {
		d.earlier = t.o.Now().Add(10 * took)
	}
	switch {
	case err == nil || errors.Is(err, io.EOF):
		t.clear(d.fileKey)
	case isNotThere(err):
		d.settled, d.time = false, 0 // the next check of its time retries
	default:
		d.settled, d.time = false, 0
		t.fail(d.fileKey, err)
	}
}

// lookAtEntry examines an unknown name in a listing.
func (t *Tailer) lookAtEntry(d *folderState, e fs.DirEntry) {
	k := fileKey{d.root, d.join(e.Name())}
	if e.IsDir() && t.folders[k] != nil {
		return
	}
	info, err := e.Info()
	t.found(d, k, info, err)
}
