package tail

import (
	"errors"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// addWatch watches a folder, if the limit permits.
func (t *Tailer) addWatch(d *folderState) {
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

func (t *Tailer) unwatch(d *folderState) {
	if !d.watched {
		return
	}
	full := d.root.full(d.rel)
	t.watch.Remove(full) // the system may have removed it with the folder
	d.watched = false
	delete(t.byPath, full)
	t.watches--
	t.unwatched++
}

// events returns the channels of the watcher, or nil.
func (t *Tailer) events() (<-chan fsnotify.Event, <-chan error) {
	if t.watch == nil {
		return nil, nil
	}
	return t.watch.Events, t.watch.Errors
}

// takeEvents processes pending events.
func (t *Tailer) takeEvents() {
	events, errs := t.events()
	last := ""
	for range step {
		select {
		case e := <-events:
			if e.Name != last { // several writes to a file are often reported together
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
		t.lookAt(fileKey{d.root, d.join(filepath.Base(e.Name))})
		return
	}
	if d := t.byPath[e.Name]; d != nil {
		t.agenda.times = append(t.agenda.times, d)
	}
}

// onWatchError examines everything if the system has dropped events.
func (t *Tailer) onWatchError(err error) {
	if !errors.Is(err, fsnotify.ErrEventOverflow) {
		return // of one folder, whose time is checked anyway
	}
	for _, d := range t.folders {
		t.agendaList(d)
		t.agendaFiles(d)
	}
}
