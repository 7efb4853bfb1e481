package tail

import (
	"io/fs"
	"os"
)

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
	t.location(f, d)
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
