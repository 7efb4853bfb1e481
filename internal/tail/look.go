package tail

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"time"
)

// step is how many names are looked at before what can be delivered is.
const step = 256

// An agenda is what is to be looked at, and when again.
type agenda struct {
	lists  []*folder // to be listed
	open   *os.File  // the first of them, as far as it was read
	began  time.Time
	times  []*folder // whose time is to be looked at
	files  []*file   // likewise
	looks  []key     // names
	isOver bool      // everything was looked at once

	folders, all, poll, second time.Time // when the next look is due
}

// begin has all roots looked at.
func (a *agenda) begin(t *Tailer) {
	now := t.o.Now()
	a.folders, a.all, a.poll, a.second = now.Add(t.o.Folders), now.Add(t.o.Files), now.Add(t.o.Poll), now.Add(time.Second)
	t.openRoots()
}

// openRoots looks whether the roots are there.
func (t *Tailer) openRoots() {
	for _, r := range t.roots {
		isNew, err := r.open()
		k := key{r, "."}
		switch {
		case err == nil:
			t.clear(k)
		case isNotThere(err):
			t.clear(k) // Status says that it is not there
			if d := t.folders[k]; d != nil {
				t.dropFolder(d)
			}
		default:
			t.fail(k, err)
		}
		if isNew {
			if d := t.folders[k]; d != nil {
				t.unwatch(d)
			}
			t.addFolder(k)
		}
	}
}

// due puts on the agenda what has to be looked at again by now.
func (t *Tailer) due(now time.Time) {
	a := &t.agenda
	if reached(now, a.folders, t.o.Folders) {
		a.folders = now.Add(t.o.Folders)
		t.openRoots()
		if len(a.times) == 0 { // else the last look is not over
			for _, d := range t.folders {
				a.times = append(a.times, d)
			}
		}
	}
	if reached(now, a.all, t.o.Files) {
		a.all = now.Add(t.o.Files)
		if len(a.files) == 0 {
			for _, d := range t.folders {
				t.agendaFiles(d)
				if !t.o.Since.IsZero() && !d.watched { // what is left alone is in no list
					t.agendaList(d)
				}
			}
		}
	}
	if reached(now, a.poll, t.o.Poll) {
		a.poll = now.Add(t.o.Poll)
		t.pollFolders()
	}
	if reached(now, a.second, time.Second) {
		a.second = now.Add(time.Second)
		t.takeTorn()
		t.lookAgainAll()
		t.tellGone()
	}
}

// reached reports whether the time of something that is done regularly has come; a time that
// is further away than it can be was of a clock that was put back.
func reached(now, at time.Time, every time.Duration) bool {
	return !now.Before(at) || at.Sub(now) > every
}

func (t *Tailer) agendaFiles(d *folder) {
	for _, f := range d.files {
		t.agenda.files = append(t.agenda.files, f)
	}
}

// pollFolders looks at the files that changed within a day in folders that are not watched.
func (t *Tailer) pollFolders() {
	if t.unwatched == 0 || len(t.agenda.files)+len(t.agenda.times) > 0 {
		return
	}
	for _, d := range t.folders {
		if d.watched || t.since(d.recent) > 24*time.Hour {
			continue
		}
		t.agenda.times = append(t.agenda.times, d)
		for _, f := range d.files {
			if t.since(f.changed) <= 24*time.Hour {
				t.agenda.files = append(t.agenda.files, f)
			}
		}
	}
}

// lookAround looks at some names of the agenda. It reports whether there were any.
func (t *Tailer) lookAround() bool {
	a := &t.agenda
	switch {
	case len(a.looks) > 0:
		for range min(step, len(a.looks)) {
			k := a.looks[0]
			a.looks = a.looks[1:]
			t.lookAt(k)
		}
	case len(a.lists) > 0:
		t.list(a.lists[0])
	case len(a.times) > 0:
		for range min(step, len(a.times)) {
			d := a.times[0]
			a.times = a.times[1:]
			t.lookAtFolder(d)
		}
	case len(a.files) > 0:
		for range min(step, len(a.files)) {
			f := a.files[0]
			a.files[0] = nil
			a.files = a.files[1:]
			if f.folder != nil {
				t.lookAt(f.key)
			}
		}
	default:
		if !a.isOver {
			a.isOver = true
			t.missUnknown()
		}
		return false
	}
	return true
}

// missUnknown begins to miss the files that only the state knows.
func (t *Tailer) missUnknown() {
	for _, f := range t.lost {
		if !f.isKnown && !f.gone && f.missing.IsZero() {
			f.missing = t.o.Now()
			t.absent[f] = true
		}
	}
}

// addFolder begins to follow a folder: it is watched first and listed then, so that what is
// made in between is seen.
func (t *Tailer) addFolder(k key) {
	d := t.folders[k]
	if d == nil {
		if t.isFull() {
			return
		}
		d = &folder{key: k, files: make(map[string]*file)}
		t.folders[k] = d
		t.unwatched++
		if parent := t.folders[key{k.root, path.Dir(k.rel)}]; parent != d {
			d.parent = parent
			parent.below(d)
		}
	}
	t.addWatch(d)
	t.agendaList(d)
}

func (t *Tailer) agendaList(d *folder) {
	if !d.queued {
		d.queued = true
		t.agenda.lists = append(t.agenda.lists, d)
	}
}

// dropFolder ends following a folder that is not there any more, and those in it: a watch
// that is left would be one of the folder's new name, if it was renamed.
func (t *Tailer) dropFolder(d *folder) {
	for below := range d.folders {
		t.dropFolder(below)
	}
	t.unwatch(d)
	t.unwatched--
	delete(t.folders, d.key)
	if d.parent != nil {
		delete(d.parent.folders, d)
	}
	t.clear(d.key)
	for _, f := range d.files {
		t.miss(f)
	}
}

// lookAtFolder has a folder listed whose time is another than when it was listed. The first
// listing with the same time before and after is not the last one: a change right behind it
// can have that time too.
func (t *Tailer) lookAtFolder(d *folder) {
	if t.folders[d.key] != d {
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
		t.fail(d.key, err)
	default:
		if !d.watched {
			t.addWatch(d)
		}
		at := info.ModTime().UnixNano()
		if at == d.time && d.settled || t.o.Now().Before(d.earlier) {
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

// list looks at the next names of a folder.
func (t *Tailer) list(d *folder) {
	a := &t.agenda
	if t.folders[d.key] != d {
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

func (t *Tailer) beginList(d *folder) error {
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

// listed ends the listing of a folder. One that takes long is not listed again at once.
func (t *Tailer) listed(d *folder, err error) {
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
		t.clear(d.key)
	case isNotThere(err):
		d.settled, d.time = false, 0 // the next look at its time says more
	default:
		d.settled, d.time = false, 0
		t.fail(d.key, err)
	}
}

// lookAtEntry looks at a name that a listing has and that is not known.
func (t *Tailer) lookAtEntry(d *folder, e fs.DirEntry) {
	k := key{d.root, d.join(e.Name())}
	if e.IsDir() && t.folders[k] != nil {
		return
	}
	info, err := e.Info()
	t.found(d, k, info, err)
}

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
	t.place(f, d)
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
	t.place(f, d)
	t.recent(f, info)
	t.index(f)
	t.askResume(f)
	t.enqueue(f, f.live)
}

// ancestor returns the file whose content goes on at a path that is not known: one with the
// same node or stem that is not where it was and has the same content as far as it was read.
// isAlias says that the path is left alone while another one is there.
func (t *Tailer) ancestor(d *folder, k key, info fs.FileInfo) (f *file, isAlias bool) {
	stem, packed := stemOf(k.rel)
	if same := t.byNode[nodeOf(info)]; same != nil && nodeOf(info) != (node{}) {
		t.lookAgain(same)
		if same.folder != nil && same.now.node == nodeOf(info) {
			return t.alias(same, k)
		}
		if same.folder == nil && same.packed == packed && t.follows(same, k, info) {
			return same, false
		}
	}
	for _, f := range t.alike(stem) {
		if f.key == k {
			continue
		}
		t.lookAgain(f)
		switch {
		case f.folder == nil && f.packed == packed && t.follows(f, k, info):
			return f, false
		case f.packed == packed:
		case f.folder == d && packed: // it is being compressed
			return t.alias(f, k)
		case f.folder == d && !f.isTold: // nothing was read of the compressed form: this one is the newer
			t.drop(f)
		case t.follows(f, k, info):
			if f.folder != nil && packed {
				return t.alias(f, k)
			}
			return f, false
		case f.folder == d: // it is being unpacked
			return t.alias(f, k)
		}
	}
	return nil, false
}

// lookAgain looks whether a file is still where it was.
func (t *Tailer) lookAgain(f *file) {
	if f.folder == nil {
		return
	}
	info, err := os.Lstat(f.root.full(f.rel))
	switch {
	case err != nil && isNotThere(err) || err == nil && !info.Mode().IsRegular():
		t.miss(f)
	case err == nil:
		t.look(f, info)
	}
}

// alias leaves a path alone until f is not there any more.
func (t *Tailer) alias(f *file, k key) (*file, bool) {
	for _, have := range f.aliases {
		if have == k {
			return nil, true
		}
	}
	if len(f.aliases) == maxAlike {
		f.aliases = f.aliases[1:]
	}
	f.aliases = append(f.aliases, k)
	return nil, true
}

// follows reports whether the content at a path begins with what was delivered of a file.
// Of a file of which nothing was it does not: the path is a new file as well.
func (t *Tailer) follows(f *file, k key, info fs.FileInfo) bool {
	if f.mark.Offset == 0 || f.position != nil {
		return false
	}
	stem, packed := stemOf(k.rel)
	to := File{Root: k.root.id, Rel: k.rel, Stem: stem, Packed: packed}
	if t.o.Follows != nil && !t.o.Follows(f.File(), to, func() []byte { return t.head(k, packed) }) {
		return false
	}
	c, err := t.openContent(k, packed)
	if err != nil {
		return false
	}
	defer c.close()
	_, err = t.prints.check(f.mark, c, c.seen != f.now)
	return err == nil
}

// move gives a file another path.
func (t *Tailer) move(f *file, d *folder, k key, info fs.FileInfo) {
	from, isFirst := f.File(), !f.isKnown
	t.drop(f) // it may be in its folder, if it was unpacked and the compressed form is there still
	t.name(f, k)
	f.isKnown, f.gone = true, false
	before := f.now
	f.now = seenOf(info)
	t.place(f, d)
	t.index(f)
	if f.isTold {
		t.tell(f, &Batch{Kind: Moved, File: f.File(), From: from})
	} else {
		f.at = place{f.root.id, f.rel}
	}
	f.changed, f.scanned, f.settled = t.o.Now(), 0, false
	f.compare = f.compare || before != f.now
	if isFirst {
		t.askResume(f)
	}
	t.enqueue(f, true)
}

// takeTorn has the content without a line feed read that has not changed for long enough.
func (t *Tailer) takeTorn() {
	for f := range t.torn {
		if t.o.Once || t.since(f.changed) >= t.o.Quiet {
			delete(t.torn, f)
			f.atEnd = true
			t.enqueue(f, true)
		}
	}
}

// tellGone says which files are gone: those that are missed for long enough, with nothing
// left to be looked at where they could be. What is in a root that is not there is not gone.
func (t *Tailer) tellGone() {
	if !t.agenda.isOver || len(t.agenda.lists)+len(t.agenda.looks) > 0 {
		return
	}
	for f := range t.absent {
		if f.root.dir == nil || t.since(f.missing) < t.o.Grace && !t.o.Once {
			continue
		}
		delete(t.absent, f)
		if !f.isTold {
			t.drop(f)
			continue
		}
		f.gone = true
		t.tell(f, &Batch{Kind: Gone, File: f.File(), Note: f.note})
	}
	t.forgetGone()
}

// forgetGone forgets files that are gone, if there are more than are remembered.
func (t *Tailer) forgetGone() {
	for _, f := range t.lost {
		if len(t.lost) <= t.o.MaxFiles {
			return
		}
		if f.gone && len(f.out) == 0 && !t.dirty[f] {
			t.drop(f)
		}
	}
}
