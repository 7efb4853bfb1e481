package tail

import (
	"os"
	"time"
)

// step is the number of names that are examined before pending deliveries.
const step = 256

// An agenda lists the names to be examined, and when they are due again.
type agenda struct {
	lists  []*folderState // to be listed
	open   *os.File       // the first of them, partly read
	began  time.Time
	times  []*folderState // whose modification time must be checked
	files  []*file        // likewise
	looks  []fileKey      // names
	isOver bool           // everything was examined once

	looking time.Time // when the last check of all folders began
	looked  time.Time // when the last one began that is over and left out no folder
	isPart  bool      // the last one leaves out a folder

	folders, all, poll, second time.Time // due times of the next checks
}

// begin schedules all roots.
func (a *agenda) begin(t *Tailer) {
	now := t.o.Now()
	a.folders, a.all, a.poll, a.second = now.Add(t.o.Folders), now.Add(t.o.Files), now.Add(t.o.Poll), now.Add(time.Second)
	t.openRoots()
}

// openRoots checks whether the roots exist.
func (t *Tailer) openRoots() {
	for _, r := range t.roots {
		isNew, err := r.open()
		k := fileKey{r, "."}
		switch {
		case err == nil:
			t.clear(k)
		case isNotThere(err):
			t.clear(k) // Status reports that it is missing
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

// due schedules the checks that are due by now.
func (t *Tailer) due(now time.Time) {
	a := &t.agenda
	if reached(now, a.folders, t.o.Folders) {
		a.folders = now.Add(t.o.Folders)
		t.openRoots()
		if len(a.times) == 0 { // otherwise the last check is still running
			a.looking, a.isPart = now, false
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
				if !t.o.Since.IsZero() && !d.watched { // skipped files are in no list
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

// reached reports whether the time of a periodic task has come. A time further away than the period was set before the
// clock was turned back.
func reached(now, at time.Time, every time.Duration) bool {
	return !now.Before(at) || at.Sub(now) > every
}

func (t *Tailer) agendaFiles(d *folderState) {
	for _, f := range d.files {
		t.agenda.files = append(t.agenda.files, f)
	}
}

// pollFolders checks the files that changed within a day in folders without a watch.
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

// lookAround examines some names of the agenda. It returns false if there were none.
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
				t.lookAt(f.fileKey)
			}
		}
	default:
		if !a.isOver {
			a.isOver = true
			t.missUnknown()
		}
		if !a.isPart {
			a.looked = a.looking
		}
		return false
	}
	return true
}

// takeTorn schedules reads of content without a line feed that has not changed for long enough.
func (t *Tailer) takeTorn() {
	for f := range t.torn {
		if t.o.Once || t.since(f.changed) >= t.o.Quiet {
			delete(t.torn, f)
			f.atEnd = true
			t.enqueue(f, true)
		}
	}
}
