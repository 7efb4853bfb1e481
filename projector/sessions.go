package projector

import (
	"github.com/tallylog/tally/events"
)

// Sessions is the fold over all sessions at once that lists are made of:
// histories and ledgers, and of the turns only their number.
type Sessions struct {
	bySubject map[events.Subject]*Session
	order     []events.Subject
}

// NewSessions gives the fold of no records.
func NewSessions() *Sessions {
	return &Sessions{bySubject: make(map[events.Subject]*Session)}
}

// Apply folds the next record of the log. Records of documents change nothing.
func (l *Sessions) Apply(rec events.Record) {
	if !rec.Subject.IsSession() {
		return
	}
	s := l.bySubject[rec.Subject]
	if s == nil {
		s = NewSession(rec.Subject)
		s.Threads = nil
		l.bySubject[rec.Subject] = s
		l.order = append(l.order, rec.Subject)
	}
	f := Decode(rec)
	if fork := f.ForkOf(s.History); fork != nil {
		if parent := l.bySubject[events.Session(rec.Subject.Namespace, fork.Session)]; parent != nil {
			s.History.Inherit(parent.History, fork.Offset)
		}
	}
	s.apply(f)
}

// All gives the sessions by first appearance. They have no Threads.
func (l *Sessions) All() []*Session {
	list := make([]*Session, len(l.order))
	for i, sub := range l.order {
		list[i] = l.bySubject[sub]
	}
	return list
}
