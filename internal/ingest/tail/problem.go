package tail

import (
	"slices"
	"strings"
	"time"
)

// maxProblems is how many problems are named; of more the number is known.
const maxProblems = 1000

// A Problem is a file or folder that cannot be read.
type Problem struct {
	Root, Rel string
	Reason    string
	Since     time.Time
}

// fail remembers that a file or folder cannot be read, and says so once.
func (t *Tailer) fail(k key, err error) {
	p := t.broken[k]
	if p != nil && p.Reason == err.Error() || p == nil && len(t.broken) == maxProblems {
		t.unnamed = t.unnamed || p == nil
		return
	}
	t.broken[k] = &Problem{k.root.id, k.rel, err.Error(), t.o.Now()}
	stem, packed := stemOf(k.rel)
	t.ready.notices = append(t.ready.notices, &Batch{Kind: Unreadable, File: File{k.root.id, k.rel, stem, packed}, Err: err})
}

// clear forgets that a file or folder could not be read.
func (t *Tailer) clear(k key) { delete(t.broken, k) }

// Status says how far a Tailer is.
type Status struct {
	Files      int           // that are there and read
	Live       int           // of them, those that changed within Options.Live
	Gone       int           // that were read and are not there
	Folders    int           // that are looked at
	Polled     int           // of them, those that the system does not tell of; they are polled
	Lag        int64         // bytes that are there and not acknowledged, what has no line feed included
	Behind     time.Duration // since the oldest change that is not acknowledged
	Missing    []string      // IDs of the roots that are not there
	Full       bool          // Options.MaxFiles was reached: some files are not read
	Unreadable []Problem     // by root and path
	More       bool          // there were more than are named
	State      error         // the state could not be written; nothing is lost by that
}

// IsWatching reports whether the system tells of changes in all folders.
func (s Status) IsWatching() bool { return s.Folders > 0 && s.Polled == 0 }

// Status returns how far t is.
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
