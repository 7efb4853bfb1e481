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
	mu   sync.Mutex
	list []Snapshot // guarded by mu
}

// List implements Store.
func (m *Mem) List(_ context.Context, sub events.Subject, fold string) ([]Meta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Meta
	for _, s := range m.list {
		if s.Subject == sub && s.Fold == fold {
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
	for _, s := range m.list {
		if same(s.Meta, want) {
			return Snapshot{s.Meta, slices.Clone(s.Data)}, nil
		}
	}
	return Snapshot{}, ErrNotFound
}

// Put implements Store.
func (m *Mem) Put(_ context.Context, s Snapshot) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.delete(s.Meta)
	s.Hash, s.Data = Sum(s.Data), slices.Clone(s.Data)
	m.list = append(m.list, s)
	return nil
}

// Delete implements Store.
func (m *Mem) Delete(_ context.Context, gone Meta) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.delete(gone)
	return nil
}

func (m *Mem) delete(gone Meta) {
	m.list = slices.DeleteFunc(m.list, func(s Snapshot) bool { return same(s.Meta, gone) })
}

// Discard implements Store. All reports nothing that could be discarded.
func (m *Mem) Discard(context.Context, string) error { return nil }

// All implements Store.
func (m *Mem) All(context.Context) iter.Seq2[Meta, error] {
	m.mu.Lock()
	list := slices.Clone(m.list)
	m.mu.Unlock()
	return func(yield func(Meta, error) bool) {
		for _, s := range list {
			if !yield(s.Meta, nil) {
				return
			}
		}
	}
}

func same(a, b Meta) bool {
	return a.Subject == b.Subject && a.Fold == b.Fold && a.Version == b.Version && a.Offset == b.Offset
}

func newestFirst(a, b Meta) int {
	return cmp.Or(cmp.Compare(b.Offset, a.Offset), cmp.Compare(b.Version, a.Version))
}
