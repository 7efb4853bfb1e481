package tally

import (
	"reflect"
	"sync"
)

// kept holds the values that packages keep with a store, one of each type.
type kept struct {
	mu     sync.Mutex
	closed bool
	of     map[reflect.Type]closer
}

type closer interface{ Close() }

// Kept returns the value of a type that a package keeps with a store. The first call makes it. Stores that In and
// Unshown return share it. After Close has closed the log it calls the value's Close, which returns when all goroutines
// of the value have ended. Once the store is closed, Kept closes a new value before it returns it.
func Kept[T interface{ Close() }](st *Store, newValue func() T) T {
	k, key := st.kept, reflect.TypeFor[T]()
	k.mu.Lock()
	defer k.mu.Unlock()
	if have, ok := k.of[key]; ok {
		return have.(T)
	}
	v := newValue()
	k.of[key] = v
	if k.closed {
		v.Close()
	}
	return v
}

// close closes all values.
func (k *kept) close() {
	k.mu.Lock()
	k.closed = true
	all := k.of
	k.of = make(map[reflect.Type]closer)
	k.mu.Unlock()
	for _, v := range all { // without mu: a value may wait for one that asks for another value
		v.Close()
	}
}
