package storagetest

import (
	"context"

	"github.com/tallylog/tally/internal/layouts"
)

// A memWatcher is a call of Watch.
type memWatcher struct {
	queue []string
	more  chan struct{} // of one: there is something in the queue, or an end
	busy  bool          // it is saying something
	end   error
}

// Watch implements layouts.Watcher. Of a folder that came, moved or went as a whole its own path is
// said.
func (m *Mem) Watch(ctx context.Context, ready func(), changed func(path string)) error {
	w := &memWatcher{more: make(chan struct{}, 1)}
	m.mu.Lock()
	m.watchers[w] = true
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, w)
		m.told.Broadcast()
	}()
	if ready != nil {
		ready()
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.more:
		}
		for {
			path, ok, err := m.nextOf(w)
			if err != nil {
				return err
			}
			if !ok || ctx.Err() != nil {
				break
			}
			changed(path)
		}
	}
}

// nextOf takes the next path from the queue of a watcher.
func (m *Mem) nextOf(w *memWatcher) (path string, ok bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w.busy = false
	if w.end == nil && len(w.queue) > 0 {
		path, w.queue, w.busy = w.queue[0], w.queue[1:], true
	}
	m.told.Broadcast()
	return path, w.busy, w.end
}

func (w *memWatcher) wake() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

func (m *Mem) tellLocked(path string) {
	if layouts.IsTemporary(path) {
		return
	}
	for w := range m.watchers {
		if n := len(w.queue); n == 0 || w.queue[n-1] != path {
			w.queue = append(w.queue, path)
		}
		w.wake()
	}
}

// Quiet waits until all who watch were told of all changes, and have returned.
func (m *Mem) Quiet() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watchers {
		for m.watchers[w] && (w.busy || len(w.queue) > 0 || w.end != nil) {
			m.told.Wait()
		}
	}
}

// Overflow takes from those who watch what they were not yet told, and tells them that anything may
// have changed.
func (m *Mem) Overflow() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watchers {
		w.queue = []string{""}
		w.wake()
	}
}

// EndWatch has the calls of Watch end with an error.
func (m *Mem) EndWatch(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watchers {
		w.end = err
		w.wake()
	}
}
