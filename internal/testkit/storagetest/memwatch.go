package storagetest

import (
	"context"

	"github.com/tallylog/tally/internal/layouts"
)

// A memWatcher is a call of Watch.
type memWatcher struct {
	queue []string
	more  chan struct{} // with a capacity of one: the queue is not empty, or has ended
	busy  bool          // it is reporting a path
	end   error
}

// Watch implements layouts.Watcher. For a folder that was created, moved or removed as a whole it reports the folder's
// own path.
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

// Quiet waits until all watchers have received all changes, and their callbacks have returned.
func (m *Mem) Quiet() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watchers {
		for m.watchers[w] && (w.busy || len(w.queue) > 0 || w.end != nil) {
			m.told.Wait()
		}
	}
}

// Overflow drops the pending reports of all watchers, and tells them that anything may have changed.
func (m *Mem) Overflow() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watchers {
		w.queue = []string{""}
		w.wake()
	}
}

// EndWatch ends the calls of Watch with an error.
func (m *Mem) EndWatch(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for w := range m.watchers {
		w.end = err
		w.wake()
	}
}
