package tail

import (
	"io/fs"
	"os"
)

// ancestor returns the file whose content continues at an unknown path: a file with the same node or stem that is
// missing from its path and has the same content up to its position. isAlias means that the path is ignored while
// another one exists.
func (t *Tailer) ancestor(d *folderState, k fileKey, info fs.FileInfo) (f *file, isAlias bool) {
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
		if f.fileKey == k {
			continue
		}
		t.lookAgain(f)
		switch {
		case f.folder == nil && f.packed == packed && t.follows(f, k, info):
			return f, false
		case f.packed == packed:
		case f.folder == d && packed: // it is being compressed
			return t.alias(f, k)
		case f.folder == d && !f.isTold: // the compressed form was not read: this file is newer
			t.drop(f)
		case t.follows(f, k, info):
			if f.folder != nil && packed {
				return t.alias(f, k)
			}
			return f, false
		case f.folder == d: // it is being decompressed
			return t.alias(f, k)
		}
	}
	return nil, false
}

// lookAgain checks whether a file still exists at its path.
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

// alias ignores a path while f exists.
func (t *Tailer) alias(f *file, k fileKey) (*file, bool) {
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

// follows reports whether the content at a path begins with the delivered content of a file. If nothing of the file was
// delivered, it returns false: the path then counts as a new file.
func (t *Tailer) follows(f *file, k fileKey, info fs.FileInfo) bool {
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
	_, err = t.prints.check(f.mark, c, c.meta != f.now)
	return err == nil
}

// move changes the path of a file.
func (t *Tailer) move(f *file, d *folderState, k fileKey, info fs.FileInfo) {
	from, isFirst := f.File(), !f.isKnown
	t.drop(f) // it may exist, if it was decompressed and the compressed form remains
	t.name(f, k)
	f.isKnown, f.gone = true, false
	before := f.now
	f.now = metaOf(info)
	t.register(f, d)
	t.index(f)
	if f.isTold {
		t.tell(f, &Batch{Kind: Moved, File: f.File(), From: from})
	} else {
		f.at = location{f.root.id, f.rel}
	}
	f.changed, f.scanned, f.settled = t.o.Now(), 0, false
	f.compare = f.compare || before != f.now
	if isFirst {
		t.askResume(f)
	}
	t.enqueue(f, true)
}
