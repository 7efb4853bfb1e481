package tail

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// A rootState is the state of a Root.
type rootState struct {
	id, path string
	dir      *os.Root    // nil: it does not exist
	info     fs.FileInfo // of dir
}

func (r *rootState) full(rel string) string { return filepath.Join(r.path, filepath.FromSlash(rel)) }

func (r *rootState) close() {
	if r.dir != nil {
		r.dir.Close()
		r.dir, r.info = nil, nil
	}
}

// open opens the current folder at the root's path. It reports whether that is another folder than before.
func (r *rootState) open() (isNew bool, err error) {
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

// A fileKey identifies a file or folder.
type fileKey struct {
	root *rootState
	rel  string
}

// A folderState is a folder that is followed.
type folderState struct {
	fileKey
	files   map[string]*file      // existing files, by name
	folders map[*folderState]bool // direct subfolders
	parent  *folderState          // nil: a root
	time    int64                 // modification time when it was listed
	settled bool                  // the modification time was the same before and after the listing
	watched bool
	queued  bool      // to be listed
	recent  time.Time // time of the last change in it, or latest time of its files
	earlier time.Time // it must not be listed before
}

func (d *folderState) join(name string) string { return path.Join(d.rel, name) }

func (d *folderState) below(sub *folderState) {
	if d.folders == nil {
		d.folders = make(map[*folderState]bool)
	}
	d.folders[sub] = true
}

// A meta is the metadata of a file.
type meta struct {
	node  node
	size  int64
	mtime int64 // in ns since 1970
}

// A file is a file that is or was read.
type file struct {
	fileKey
	folder *folderState // nil: it does not exist
	stem   string
	packed bool
	group  groupKey
	order  string // its position in the group
	isOut  bool   // other files do not wait for it
	note   string // of the caller

	prevStem, nextStem *file // other files with this stem

	aliases []fileKey // other names of the same content: hard links, a compressed form

	now     meta  // at the last check
	read    meta  // at the last read to the end
	settled bool  // it was checked again after its time could no longer be equal by chance
	mark    mark  // position of the last delivery
	acked   mark  // position of the last acknowledgement
	end     int64 // length of the content: now.size, unless it is compressed
	born    int64 // creation time, if known
	scanned int64 // no line feed between mark and here
	tail    print // of the content right before scanned

	turn      int  // number of rewrites, in this process
	ackedTurn int  // the turn of acked
	rewriting bool // a Rewritten delivery is pending or incomplete
	first     bool // the next batch is its first
	compare   bool // the next read compares all of it
	atEnd     bool // the next read delivers content without a line feed
	position  *Position
	isTold    bool // lines were delivered, now or according to the state
	isKnown   bool // it was examined since Open
	gone      bool // Gone was delivered
	goneAcked bool
	problem   bool
	tries     int      // number of consecutive failed reads
	at        location // acknowledged path
	saved     location // path in the state
	live      bool
	queue     *queue // queue that contains it
	parked    bool   // it waits for acknowledgements
	out       []*Batch
	outLines  int
	outBytes  int64
	changed   time.Time // time of the last noticed change
	missing   time.Time // since when it is missing
}

func (f *file) File() File {
	return File{Root: f.root.id, Rel: f.rel, Stem: f.stem, Packed: f.packed}
}

// stemOf returns the stem of a file's name, and whether the file is compressed.
func stemOf(rel string) (stem string, packed bool) {
	name, packed := strings.CutSuffix(path.Base(rel), ".zst")
	if dot := strings.LastIndexByte(name, '.'); dot > 0 {
		name = name[:dot]
	}
	return name, packed
}

func (t *Tailer) newFile(k fileKey) *file {
	f := &file{at: location{k.root.id, k.rel}}
	t.name(f, k)
	return f
}

// name sets the path of a file, and its stem and group.
func (t *Tailer) name(f *file, k fileKey) {
	f.fileKey = k
	f.stem, f.packed = stemOf(k.rel)
	if f.group, f.order = (groupKey{}), ""; t.o.Order != nil {
		f.group.root = k.root
		f.group.name, f.order = t.o.Order(k.root.id, k.rel)
	}
}

// index adds a file to the indexes by stem and by node. The newest file of a stem is first.
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

// drop removes a file from its folder and all indexes.
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
	delete(t.lost, f.fileKey)
	delete(t.absent, f)
	delete(t.again, f)
}

// maxAlike bounds the files with the same stem that are compared. Missing files come first.
const maxAlike = 64

// alike returns the files with a stem.
func (t *Tailer) alike(stem string) (list []*file) {
	for f := t.byStem[stem]; f != nil && len(list) < maxAlike; f = f.nextStem {
		list = append(list, f)
	}
	return list
}

// register adds a file to its folder.
func (t *Tailer) register(f *file, d *folderState) {
	delete(t.lost, f.fileKey)
	delete(t.absent, f)
	f.folder, f.missing = d, time.Time{}
	d.files[path.Base(f.rel)] = f
	t.join(f)
	t.files++
}

// miss removes a file from its folder, because it is missing or no longer a regular file.
func (t *Tailer) miss(f *file) {
	if f.folder == nil {
		return
	}
	delete(f.folder.files, path.Base(f.rel))
	f.folder, f.missing = nil, t.o.Now()
	t.files--
	t.lost[f.fileKey] = f
	t.absent[f] = true
	t.leave(f)
	t.unindex(f)
	t.index(f) // first of its stem
	t.clear(f.fileKey)
	delete(t.torn, f)
	f.queue = nil
	if t.packedFile == f {
		t.closePacked()
	}
	t.agenda.looks = append(t.agenda.looks, f.aliases...)
	f.aliases = nil
}
