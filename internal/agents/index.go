package agents

import "time"

// Indexer is an Agent that says beside its sessions how they are called.
type Indexer interface {
	// IsIndex reports whether a file says so, by its name below a root.
	IsIndex(name string) bool
	// Called reads a line of such a file; false: it names no session.
	Called(line []byte) (Name, bool)
}

// Name is what a session is called from some time on: the last one counts.
type Name struct {
	Session, Title string
	Time           time.Time // zero: the line says none
}

// Wrapper is an Agent that has another one do most of what it does.
type Wrapper interface{ Unwrap() Agent }

// As returns the T that an agent is, or that it wraps.
func As[T any](a Agent) (T, bool) {
	for {
		if t, ok := a.(T); ok {
			return t, true
		}
		w, ok := a.(Wrapper)
		if !ok {
			var none T
			return none, false
		}
		a = w.Unwrap()
	}
}
