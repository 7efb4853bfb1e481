package tail

import (
	"os"
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
