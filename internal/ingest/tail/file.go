package tail

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// A root is a Root as it is found.
type root struct {
	id, path string
	dir      *os.Root    // nil: it is not there
	info     fs.FileInfo // of dir
}

func (r *root) full(rel string) string { return filepath.Join(r.path, filepath.FromSlash(rel)) }

func (r *root) close() {
	if r.dir != nil {
		r.dir.Close()
		r.dir, r.info = nil, nil
	}
}

// open opens what is at the path of the root now. It reports whether that is another folder
// than before.
func (r *root) open() (isNew bool, err error) {
	info, err := os.Stat(r.path)
	if err != nil {
		if isNotThere(err) {
			r.close()
		}
		return false, err
	}
	if r.dir != nil && os.SameFile(info, r.info) {
		return false, nil
	}
	r.close()
	dir, err := os.OpenRoot(r.path)
	if err != nil {
		return false, err
	}
	r.dir, r.info = dir, info
	return true, nil
}

// A key names a file or folder.
type key struct {
	root *root
	rel  string
}

// A folder is one that is looked at.
type folder struct {
	key
	files   map[string]*file // by name; those that are there
	folders map[*folder]bool // in it
	parent  *folder          // nil: it is a root
	time    int64            // of its last change, when it was listed
	settled bool             // its time was the same before and after it was listed
	watched bool
	queued  bool      // to be listed
	recent  time.Time // when something in it changed, or the latest time of one of its files
	earlier time.Time // not to be listed before
}

func (d *folder) join(name string) string { return path.Join(d.rel, name) }

func (d *folder) below(sub *folder) {
	if d.folders == nil {
		d.folders = make(map[*folder]bool)
	}
	d.folders[sub] = true
}

// A seen is what is known of a file without reading it.
type seen struct {
	node  node
	size  int64
	mtime int64 // in ns since 1970
}

// A file is one that is read, or was.
type file struct {
	key
	folder *folder // nil: it is not there
	stem   string
	packed bool
	group  group
	order  string // its place in the group
	isOut  bool   // others do not wait for it
	note   string // of the caller

	prevStem, nextStem *file // others with this stem

	aliases []key // where there is more of the same: hard links, a compressed form

	now     seen  // at the last look
	read    seen  // at the last read that went to the end
	settled bool  // it was compared once more when its time could not be the same by chance any more
	mark    mark  // up to where it was delivered
	acked   mark  // up to where that was acknowledged
	end     int64 // of its content: now.size, unless it is packed
	born    int64 // when it was made, as far as known
	scanned int64 // there is no line feed from mark to here
	tail    print // of what is right before scanned

	turn      int  // how often it was rewritten, in this process
	ackedTurn int  // the turn that acked belongs to
	rewriting bool // Rewritten is to be said, or was not said to the end
	first     bool // the next batch is the first of it
	compare   bool // the next read compares all of it
	atEnd     bool // the next read takes what has no line feed
	position  *Position
	isTold    bool // something was delivered of it, now or by what the state knows
	isKnown   bool // it was looked at since Open
	gone      bool // Gone was delivered
	goneAcked bool
	problem   bool
	tries     int      // in a row that it could not be read
	at        location // what is acknowledged of where it is
	saved     location // where the state has it
	live      bool
	queue     *queue // in which it is
	parked    bool   // it waits for acknowledgements
	out       []*Batch
	outLines  int
	outBytes  int64
	changed   time.Time // when it was seen to change
	missing   time.Time // since when it is not there
}

func (f *file) File() File {
	return File{Root: f.root.id, Rel: f.rel, Stem: f.stem, Packed: f.packed}
}

// stemOf returns the stem of a file's name, and whether it is compressed.
func stemOf(rel string) (stem string, packed bool) {
	name, packed := strings.CutSuffix(path.Base(rel), ".zst")
	if dot := strings.LastIndexByte(name, '.'); dot > 0 {
		name = name[:dot]
	}
	return name, packed
}

func (t *Tailer) newFile(k key) *file {
	f := &file{at: location{k.root.id, k.rel}}
	t.name(f, k)
	return f
}

// name has a file be called something.
func (t *Tailer) name(f *file, k key) {
	f.key = k
	f.stem, f.packed = stemOf(k.rel)
	if f.group, f.order = (group{}), ""; t.o.Order != nil {
		f.group.root = k.root
		f.group.name, f.order = t.o.Order(k.root.id, k.rel)
	}
}

// index puts a file where it is found by stem and by node. The newest of a stem is first.
func (t *Tailer) index(f *file) {
	f.nextStem = t.byStem[f.stem]
	if f.nextStem != nil {
		f.nextStem.prevStem = f
	}
	t.byStem[f.stem] = f
	t.indexNode(f)
}

func (t *Tailer) indexNode(f *file) {
	if f.now.node != (node{}) {
		t.byNode[f.now.node] = f
	}
}

func (t *Tailer) unindexNode(f *file) {
	if t.byNode[f.now.node] == f {
		delete(t.byNode, f.now.node)
	}
}

func (t *Tailer) unindex(f *file) {
	t.unindexNode(f)
	switch {
	case f.prevStem != nil:
		f.prevStem.nextStem = f.nextStem
	case f.nextStem != nil:
		t.byStem[f.stem] = f.nextStem
	default:
		delete(t.byStem, f.stem)
	}
	if f.nextStem != nil {
		f.nextStem.prevStem = f.prevStem
	}
	f.prevStem, f.nextStem = nil, nil
}

// drop takes a file out of its folder and every index.
func (t *Tailer) drop(f *file) {
	if f.folder != nil {
		delete(f.folder.files, path.Base(f.rel))
		f.folder = nil
		t.files--
	}
	if t.packedFile == f {
		t.closePacked()
	}
	t.unindex(f)
	t.leave(f)
	delete(t.torn, f)
	delete(t.lost, f.key)
	delete(t.absent, f)
	delete(t.again, f)
}

// look-alikes of a file by name are looked for among as many; those that are lost come first.
const maxAlike = 64

// alike returns the files that have a stem.
func (t *Tailer) alike(stem string) (list []*file) {
	for f := t.byStem[stem]; f != nil && len(list) < maxAlike; f = f.nextStem {
		list = append(list, f)
	}
	return list
}

// place puts a file into its folder.
func (t *Tailer) location(f *file, d *folder) {
	delete(t.lost, f.key)
	delete(t.absent, f)
	f.folder, f.missing = d, time.Time{}
	d.files[path.Base(f.rel)] = f
	t.join(f)
	t.files++
}

// miss takes a file out of its folder: it is not there any more, or is no regular file.
func (t *Tailer) miss(f *file) {
	if f.folder == nil {
		return
	}
	delete(f.folder.files, path.Base(f.rel))
	f.folder, f.missing = nil, t.o.Now()
	t.files--
	t.lost[f.key] = f
	t.absent[f] = true
	t.leave(f)
	t.unindex(f)
	t.index(f) // as the first of its stem
	t.clear(f.key)
	delete(t.torn, f)
	f.queue = nil
	if t.packedFile == f {
		t.closePacked()
	}
	t.agenda.looks = append(t.agenda.looks, f.aliases...)
	f.aliases = nil
}
