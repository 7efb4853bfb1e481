package tail

import (
	"errors"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// addWatch has the system tell of changes in a folder, if it does so for one more.
func (t *Tailer) addWatch(d *folder) {
	if t.watch == nil || d.watched || t.watches >= t.o.MaxWatches {
		return
	}
	full := d.root.full(d.rel)
	if err := t.watch.Add(full); err != nil {
		return // it is polled
	}
	d.watched = true
	t.byPath[full] = d
	t.watches++
	t.unwatched--
}

func (t *Tailer) unwatch(d *folder) {
	if !d.watched {
		return
	}
	full := d.root.full(d.rel)
	t.watch.Remove(full) // the system may have forgotten it with the folder
	d.watched = false
	delete(t.byPath, full)
	t.watches--
	t.unwatched++
}

// events returns what the system tells of, nil if nothing is watched.
func (t *Tailer) events() (<-chan fsnotify.Event, <-chan error) {
	if t.watch == nil {
		return nil, nil
	}
	return t.watch.Events, t.watch.Errors
}

// takeEvents does what the system told of, as far as it is there.
func (t *Tailer) takeEvents() {
	events, errs := t.events()
	last := ""
	for range step {
		select {
		case e := <-events:
			if e.Name != last { // several writes to a file are often told of together
				t.onEvent(e)
			}
			last = e.Name
		case err := <-errs:
			t.onWatchError(err)
		default:
			return
		}
	}
}

func (t *Tailer) onEvent(e fsnotify.Event) {
	if d := t.byPath[filepath.Dir(e.Name)]; d != nil {
		t.lookAt(key{d.root, d.join(filepath.Base(e.Name))})
		return
	}
	if d := t.byPath[e.Name]; d != nil {
		t.agenda.times = append(t.agenda.times, d)
	}
}

// onWatchError looks at everything if the system has dropped what it had to tell.
func (t *Tailer) onWatchError(err error) {
	if !errors.Is(err, fsnotify.ErrEventOverflow) {
		return // of one folder: its time is looked at anyway
	}
	for _, d := range t.folders {
		t.agendaList(d)
		t.agendaFiles(d)
	}
}
