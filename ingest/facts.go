package ingest

import (
	"errors"

	"github.com/tallylog/tally/agents"
	"github.com/tallylog/tally/events"
)

// payload completes what follows from a line by what only the log knows. It is nil if
// nothing is to be appended.
func (w *writer) payload(f *file, n following) (events.Payload, error) {
	switch p := n.Payload.(type) {
	case *events.SessionCreated:
		return w.creation(f, n, *p)
	case *events.SessionRewound:
		rewound := *p
		if n.Place == nil {
			return &rewound, nil
		}
		at, err := w.resolve(f, f.Session, *n.Place)
		if err != nil || at == 0 {
			return nil, w.lost(f, n, err, "goes back to a place that is not in the log: not followed")
		}
		rewound.To = at
		return &rewound, nil
	}
	return n.Payload, nil
}

// creation is the beginning of a session: nil if it began already.
func (w *writer) creation(f *file, n following, p events.SessionCreated) (events.Payload, error) {
	if w.s.created {
		return nil, nil
	}
	if p.CreatedAt == "" {
		at := timeOf(n.Time)
		if at.IsZero() {
			at = timeOf(n.time)
		}
		p.CreatedAt = events.TimestampOf(at)
	}
	if p.Fork != nil {
		fork := *p.Fork
		at, err := w.resolve(f, fork.Session, *n.Place)
		if err := w.lost(f, n, err, "continues "+fork.Session+", which is not in the log: begins without it"); err != nil {
			return nil, err
		}
		fork.Offset, p.Fork = at, &fork
		if at == 0 {
			p.Fork = nil
			if p.Parent == nil {
				p.Parent = &events.Lineage{Session: fork.Session}
			}
		}
	}
	if p.Parent != nil && p.Fork == nil && n.Place != nil {
		parent := *p.Parent
		at, err := w.resolve(f, parent.Session, *n.Place)
		if err != nil && !errors.Is(err, errAbsent) {
			return nil, err
		}
		parent.Offset, p.Parent = at, &parent
	}
	w.s.created, w.s.fork = true, p.Fork
	return &p, nil
}

// lost says what becomes of a fact whose place is not in the log: it waits, or is reported.
func (w *writer) lost(f *file, n following, err error, reason string) error {
	if !errors.Is(err, errAbsent) {
		return err
	}
	if !w.force && len(f.lines) == 0 {
		return err
	}
	w.in.report(Problem{Root: f.root, File: f.Name, Session: f.Session, Reason: reason})
	return nil
}

// resolve finds the event of the line that ends at a place, or errAbsent. hint is the
// session whose line it may be, beside the file's own.
func (w *writer) resolve(f *file, hint string, p agents.Place) (events.Offset, error) {
	if err := w.flush(); err != nil { // the line may be in the series
		return 0, err
	}
	if p.Session != "" {
		s, err := w.other(p.Session)
		if err != nil {
			return 0, err
		}
		return w.within(s, f, p)
	}
	if at, err := w.within(w.s, f, p); p.End == 0 || err == nil {
		return at, err
	}
	for range maxForks {
		s, err := w.other(hint)
		if err != nil {
			return 0, err
		}
		if at, err := w.within(s, f, p); err == nil {
			return at, nil
		}
		if s.fork == nil {
			break
		}
		hint = s.fork.Session
	}
	return 0, errAbsent
}

// maxForks bounds how many sessions are gone through that continue each other.
const maxForks = 256

// other returns a session of the same agent.
func (w *writer) other(id string) (*session, error) {
	if id == w.s.sub.ID {
		return w.s, nil
	}
	s, err := w.in.session(w.ctx, w.s.agent, id)
	if _, invalid := errors.AsType[*events.InvalidError](err); invalid {
		return nil, errAbsent
	}
	return s, err
}

// within finds a place in a session.
func (w *writer) within(s *session, own *file, p agents.Place) (events.Offset, error) {
	if p.End == 0 {
		return w.beginning(s)
	}
	f := s.files[p.Stem]
	if p.Stem == "" {
		f = nil
		for _, have := range s.files {
			if have != own && len(have.lines) > 0 && (f == nil || have.lines[len(have.lines)-1].at > f.lines[len(f.lines)-1].at) {
				f = have
			}
		}
	}
	if f == nil || p.End > f.end() {
		return 0, errAbsent
	}
	for i := len(f.lines) - 1; i >= 0; i-- {
		if l := &f.lines[i]; l.End <= p.End && l.at > 0 {
			return l.at, nil
		}
	}
	return w.beginning(s)
}

// beginning is before all that a session has: its first event, or that of what it
// continues.
func (w *writer) beginning(s *session) (events.Offset, error) {
	for range maxForks {
		if s.fork == nil {
			break
		}
		up, err := w.other(s.fork.Session)
		if err != nil {
			return 0, err
		}
		s = up
	}
	if s.first == 0 {
		return 0, errAbsent
	}
	return s.first, nil
}
