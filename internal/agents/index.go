package agents

import "time"

// Indexer is an Agent that keeps the names of its sessions in a separate file.
type Indexer interface {
	// IsIndex reports whether a file, by its name below a root, has names of sessions.
	IsIndex(name string) bool
	// Called parses a line of such a file. It returns false if the line names no session.
	Called(line []byte) (Name, bool)
}

// Name is the name of a session from a time on. The last one counts.
type Name struct {
	Session, Title string
	Time           time.Time // zero: the line has none
}

// Wrapper is an Agent that delegates to another one.
type Wrapper interface{ Unwrap() Agent }

// As returns the T that an agent is or wraps.
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
