package perstack

import (
	"runtime"
	"slices"
	"sync"
	"weak"

	"github.com/tallylog/tally"
)

// shared caches, by store, the state of the original's functions between calls. It does not keep a store alive.
var shared struct {
	mu      sync.Mutex
	byStore map[weak.Pointer[tally.Store]]*memories
}

// maxMemories bounds the cached jobs of a store. The least recently used one is dropped.
const maxMemories = 32

// memories are the caches of a store's jobs.
type memories struct {
	mu   sync.Mutex
	byID map[string]*memory
	used []string // the last one was used last
}

// handleOf returns the handle that the original's functions use for a job.
func handleOf(st *tally.Store, id string) *Handle {
	return handleWith(st, id, Options{}, memoriesOf(st).of(id))
}

func memoriesOf(st *tally.Store) *memories {
	key := weak.Make(st)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	m := shared.byStore[key]
	if m == nil {
		if shared.byStore == nil {
			shared.byStore = make(map[weak.Pointer[tally.Store]]*memories)
		}
		m = &memories{byID: make(map[string]*memory)}
		shared.byStore[key] = m
		runtime.AddCleanup(st, forget, key)
	}
	return m
}

func forget(key weak.Pointer[tally.Store]) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	delete(shared.byStore, key)
}

func (s *memories) of(id string) *memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.byID[id]
	if m == nil {
		m = new(memory)
		s.byID[id] = m
	}
	s.used = append(slices.DeleteFunc(s.used, func(have string) bool { return have == id }), id)
	if len(s.used) > maxMemories {
		delete(s.byID, s.used[0])
		s.used = s.used[1:]
	}
	return m
}
