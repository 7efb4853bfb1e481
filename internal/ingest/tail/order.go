package tail

import (
	"maps"
	"path"
)

// groupKey identifies files that are read in order. The name is "" for a file without a group.
type groupKey struct {
	root *rootState
	name string
}

// Skip makes other files not wait for this file, because the caller does not process it further.
func (t *Tailer) Skip(f File) {
	t.mail.put(func() { t.mail.skips = append(t.mail.skips, f) })
}

func (t *Tailer) takeSkips(list []File) {
	for _, skip := range list {
		for _, r := range t.roots {
			d := t.folders[fileKey{r, path.Dir(skip.Rel)}]
			if r.id != skip.Root || d == nil {
				continue
			}
			if f := d.files[path.Base(skip.Rel)]; f != nil {
				f.isOut = true
			}
		}
	}
}

// join adds an existing file to its group.
func (t *Tailer) join(f *file) {
	if f.group.name == "" {
		return
	}
	if t.groups[f.group] == nil {
		t.groups[f.group] = make(map[*file]bool)
	}
	t.groups[f.group][f] = true
}

// leave removes a missing file from its group.
func (t *Tailer) leave(f *file) {
	delete(t.behind, f)
	delete(t.groups[f.group], f)
	if len(t.groups[f.group]) == 0 {
		delete(t.groups, f.group)
	}
}

// isBehind reports whether a file waits for others of its group. A file that was started, now or according to the
// caller, does not wait.
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
	for _, p := range before { // they may have grown without an event
		t.lookAgain(p)
		if p.folder != nil && p.isUnread(t) {
			return true
		}
	}
	return t.isLooking() // for a file that was moved
}

// isLooking reports whether examinations are pending.
func (t *Tailer) isLooking() bool {
	return !t.agenda.isOver || len(t.agenda.lists)+len(t.agenda.looks) > 0
}

// before returns the files that are read before f.
func (t *Tailer) before(f *file) (list []*file) {
	for p := range t.groups[f.group] {
		if p.order < f.order {
			list = append(list, p)
		}
	}
	return list
}

// isUnread reports whether a file has content to deliver, including an incomplete last line that may still be
// completed.
func (f *file) isUnread(t *Tailer) bool {
	if f.problem || f.isOut {
		return false
	}
	return f.read != f.now || f.queue != nil || f.parked || f.rewriting || f.atEnd || t.torn[f] || t.behind[f] || t.packedFile == f
}

// letOn queues the files that no longer wait for others. It returns false if it queues no file.
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
