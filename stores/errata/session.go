package errata

import "github.com/tallylog/tally"

// Session is a handle on one panel session. It is cheap, does no I/O until a method is called, and is safe for
// concurrent use. It remembers how much of the session was read or written through it, as [tally.Session] does;
// Histories counts as a read. So each producer needs a handle of its own.
type Session struct{ *tally.Session }

// Of returns a handle on a session, which need not exist.
func Of(st *tally.Store, id string) *Session { return &Session{st.Session(id)} }
