package snapshot

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/tallylog/tally/events"
)

// Mem keeps snapshots in memory. The zero value is ready to use.
type Mem struct {
	mu     sync.Mutex                          // guards the fields below
	kept   map[events.Subject]map[key]Snapshot // by subject
	erased int                                 // number of calls of Erase
}

// key distinguishes the snapshots of a subject.
type key struct {
	fold    string
	version int
	offset  events.Offset
}

func keyOf(m Meta) key { return key{m.Fold, m.Version, m.Offset} }

// List implements Store.
func (m *Mem) List(_ context.Context, sub events.Subject, fold string) ([]Meta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Meta
	for _, s := range m.kept[sub] {
		if s.Fold == fold {
			list = append(list, s.Meta)
		}
	}
	slices.SortFunc(list, newestFirst)
	return list, nil
}

// Get implements Store.
func (m *Mem) Get(_ context.Context, want Meta) (Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.kept[want.Subject][keyOf(want)]
	if !ok {
		return Snapshot{}, ErrNotFound
	}
	return Snapshot{s.Meta, slices.Clone(s.Data)}, nil
}

// Put implements Store.
func (m *Mem) Put(_ context.Context, s Snapshot) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.putLocked(s)
}

// putLocked is Put. The caller holds mu.
func (m *Mem) putLocked(s Snapshot) error {
	s.Hash, s.Data = Sum(s.Data), slices.Clone(s.Data)
	if m.kept == nil {
		m.kept = make(map[events.Subject]map[key]Snapshot)
	}
	if m.kept[s.Subject] == nil {
		m.kept[s.Subject] = make(map[key]Snapshot)
	}
	m.kept[s.Subject][keyOf(s.Meta)] = s
	return nil
}

// Delete implements Store.
func (m *Mem) Delete(_ context.Context, gone Meta) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kept[gone.Subject], keyOf(gone))
	return nil
}

// Discard implements Store. All never reports anything to discard.
func (m *Mem) Discard(context.Context, string) error { return nil }

// All implements Store.
func (m *Mem) All(context.Context) iter.Seq2[Meta, error] {
	m.mu.Lock()
	var list []Meta
	for _, of := range m.kept {
		for _, s := range of {
			list = append(list, s.Meta)
		}
	}
	m.mu.Unlock()
	return func(yield func(Meta, error) bool) {
		for _, m := range list {
			if !yield(m, nil) {
				return
			}
		}
	}
}

func newestFirst(a, b Meta) int {
	return cmp.Or(cmp.Compare(b.Offset, a.Offset), cmp.Compare(b.Version, a.Version))
}
