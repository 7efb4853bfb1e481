package tail

import (
	"maps"
	"path"
)

// group names files that are read in the order of their places; it has no name if a file
// is in none.
type group struct {
	root *root
	name string
}

// Skip has no other file wait for this one any more, as the caller takes no more of it.
func (t *Tailer) Skip(f File) {
	t.mail.put(func() { t.mail.skips = append(t.mail.skips, f) })
}

func (t *Tailer) takeSkips(list []File) {
	for _, skip := range list {
		for _, r := range t.roots {
			d := t.folders[key{r, path.Dir(skip.Rel)}]
			if r.id != skip.Root || d == nil {
				continue
			}
			if f := d.files[path.Base(skip.Rel)]; f != nil {
				f.isOut = true
			}
		}
	}
}

// join puts a file that is there into its group.
func (t *Tailer) join(f *file) {
	if f.group.name == "" {
		return
	}
	if t.groups[f.group] == nil {
		t.groups[f.group] = make(map[*file]bool)
	}
	t.groups[f.group][f] = true
}

// leave takes a file that is not there out of its group.
func (t *Tailer) leave(f *file) {
	delete(t.behind, f)
	delete(t.groups[f.group], f)
	if len(t.groups[f.group]) == 0 {
		delete(t.groups, f.group)
	}
}

// isBehind reports whether a file waits for others of its group. One that was begun, now or
// by what the caller knows, does not.
func (t *Tailer) isBehind(f *file) bool {
	if f.group.name == "" || f.order == "" || f.isTold || f.position != nil {
		return false
	}
	if t.isLooking() {
		return true
	}
	before := t.before(f)
	for _, p := range before {
		if p.isUnread(t) {
			return true
		}
	}
	for _, p := range before { // they may have grown, and nobody told so far
		t.lookAgain(p)
		if p.folder != nil && p.isUnread(t) {
			return true
		}
	}
	return t.isLooking() // for one that was moved
}

// isLooking reports whether something is there that was not looked at.
func (t *Tailer) isLooking() bool {
	return !t.agenda.isOver || len(t.agenda.lists)+len(t.agenda.looks) > 0
}

// before returns the files that are read before another one.
func (t *Tailer) before(f *file) (list []*file) {
	for p := range t.groups[f.group] {
		if p.order < f.order {
			list = append(list, p)
		}
	}
	return list
}

// isUnread reports whether something of a file is to be delivered that can be: a line
// without its end too, as long as it may come.
func (f *file) isUnread(t *Tailer) bool {
	if f.problem || f.isOut {
		return false
	}
	return f.read != f.now || f.queue != nil || f.parked || f.rewriting || f.atEnd || t.torn[f] || t.behind[f] || t.packedFile == f
}

// letOn has the files read that wait for no others any more, and reports whether there were
// any.
func (t *Tailer) letOn() (isAny bool) {
	for f := range maps.Clone(t.behind) {
		if !t.isBehind(f) {
			delete(t.behind, f)
			t.enqueue(f, f.live)
			isAny = true
		}
	}
	return isAny
}
