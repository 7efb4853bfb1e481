package agents

// Lasting is an Agent that keeps sessions in folders that may be renamed, which are part of
// their ids.
type Lasting interface {
	// Lasts returns what of a session's id stays when its folder is renamed: no other session
	// has it. "": nothing does.
	Lasts(session string) string
}

// LastingOf returns the Lasting that an agent is, or that it wraps.
func LastingOf(a Agent) (Lasting, bool) {
	for {
		if l, ok := a.(Lasting); ok {
			return l, true
		}
		w, ok := a.(Wrapper)
		if !ok {
			return nil, false
		}
		a = w.Unwrap()
	}
}
