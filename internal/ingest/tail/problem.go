package tail

import (
	"slices"
	"strings"
	"time"
)

// maxProblems bounds the listed problems.
const maxProblems = 1000

// A Problem is a file or folder that cannot be read.
type Problem struct {
	Root, Rel string
	Reason    string
	Since     time.Time
}

// fail records that a file or folder cannot be read, and reports it once.
func (t *Tailer) fail(k fileKey, err error) {
	p := t.broken[k]
	if p != nil && p.Reason == err.Error() || p == nil && len(t.broken) == maxProblems {
		t.unnamed = t.unnamed || p == nil
		return
	}
	t.broken[k] = &Problem{k.root.id, k.rel, err.Error(), t.o.Now()}
	stem, packed := stemOf(k.rel)
	t.ready.notices = append(t.ready.notices, &Batch{Kind: Unreadable, File: File{k.root.id, k.rel, stem, packed}, Err: err})
}

// clear removes the problem of a file or folder.
func (t *Tailer) clear(k fileKey) { delete(t.broken, k) }

// Status is the progress of a Tailer.
type Status struct {
	Files      int           // number of existing files that are read
	Live       int           // number of them that changed within Options.Live
	Gone       int           // number of missing files that were read
	Folders    int           // number of followed folders
	Polled     int           // number of them without a watch, which are polled
	Lag        int64         // unacknowledged bytes, including content without a line feed
	Behind     time.Duration // age of the oldest unacknowledged change
	Missing    []string      // IDs of missing roots
	Full       bool          // Options.MaxFiles was reached, so some files are not read
	Unreadable []Problem     // by root and path
	More       bool          // further problems are not listed
	State      error         // the state could not be written; no data are lost
}

// Status returns the progress.
func (t *Tailer) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.takeAcks()
	s := Status{Files: t.files, Folders: len(t.folders), Polled: t.unwatched, Full: t.full, More: t.unnamed, State: t.stateErr}
	for _, r := range t.roots {
		if r.dir == nil {
			s.Missing = append(s.Missing, r.id)
		}
	}
	for _, d := range t.folders {
		for _, f := range d.files {
			t.addStatus(&s, f)
		}
	}
	for _, f := range t.lost {
		if f.gone {
			s.Gone++
		}
	}
	for _, p := range t.broken {
		s.Unreadable = append(s.Unreadable, *p)
	}
	slices.SortFunc(s.Unreadable, func(a, b Problem) int {
		return strings.Compare(a.Root+"/"+a.Rel, b.Root+"/"+b.Rel)
	})
	return s
}

func (t *Tailer) addStatus(s *Status, f *file) {
	age := t.since(f.changed)
	if age < t.o.Live {
		s.Live++
	}
	at := f.acked.Offset
	switch {
	case f.position != nil:
		at = f.position.Offset
	case f.ackedTurn != f.turn:
		at = 0
	}
	size := f.now.size
	if f.packed {
		size = f.end
	}
	if lag := size - at; lag > 0 {
		s.Lag += lag
		s.Behind = max(s.Behind, age)
	}
}
