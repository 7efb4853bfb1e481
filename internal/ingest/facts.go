package ingest

import (
	"errors"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/projector"
)

// payload completes a derived event with data from the log. It returns nil if there is no event to append.
func (w *writer) payload(f *fileState, n following) (events.Payload, error) {
	switch p := n.Payload.(type) {
	case *events.ThreadReplaced:
		return w.fit(n, p)
	case *events.SessionCreated:
		return w.creation(f, n, *p)
	case *events.SessionRewound:
		rewound := *p
		if n.Position == nil {
			return &rewound, nil
		}
		at, err := w.resolve(f, f.Session, *n.Position)
		if err != nil || at == 0 {
			return nil, w.lost(f, n, err, "goes back to a place that is not in the log: not followed")
		}
		rewound.To = at
		return &rewound, nil
	}
	return n.Payload, nil
}

// creation returns the session.created event, or nil if the session has one.
func (w *writer) creation(f *fileState, n following, p events.SessionCreated) (events.Payload, error) {
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
		at, err := w.resolve(f, fork.Session, *n.Position)
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
	if p.Parent != nil && p.Fork == nil && n.Position != nil {
		parent := *p.Parent
		at, err := w.resolve(f, parent.Session, *n.Position)
		if err != nil && !errors.Is(err, errAbsent) {
			return nil, err
		}
		parent.Offset, p.Parent = at, &parent
	}
	w.s.created, w.s.fork = true, p.Fork
	return &p, nil
}

// lost handles a fact whose reference is not in the log: the fact waits, or is reported.
func (w *writer) lost(f *fileState, n following, err error, reason string) error {
	if !errors.Is(err, errAbsent) {
		return err
	}
	if !w.force && len(f.lines) == 0 {
		return err
	}
	w.in.report(Problem{Root: f.root, File: f.Name, Session: f.Session, Reason: reason})
	return nil
}

// resolve returns the event of the line that ends at a reference, or errAbsent. hint is a session that may have the
// line, in addition to the file's own.
func (w *writer) resolve(f *fileState, hint string, p agents.Position) (events.Offset, error) {
	if err := w.flush(); err != nil { // the line may be in the series
		return 0, err
	}
	if p.Session != "" {
		at, _, err := w.within(p.Session, f, p)
		return at, err
	}
	if at, _, err := w.within(w.own.sub.ID, f, p); p.End == 0 || err == nil {
		return at, err
	}
	for range maxForks {
		at, fork, err := w.within(hint, f, p)
		if err == nil || !errors.Is(err, errAbsent) || fork == nil {
			return at, err
		}
		hint = fork.Session
	}
	return 0, errAbsent
}

// maxForks bounds the number of sessions in a chain of forks.
const maxForks = 256

// look calls see with a session of the same agent, which has no other user meanwhile.
func (w *writer) look(id string, see func(*sessionState)) error {
	switch id {
	case w.own.sub.ID:
		err := w.own.focus(w.ctx, w.in.o.Log)
		if err == nil {
			see(w.own)
		}
		return err
	case w.s.sub.ID:
		see(w.s)
		return nil
	}
	s, err := w.in.session(w.ctx, w.own.agent, events.Session(w.own.sub.Namespace, id), w.own.sub, true)
	if _, invalid := errors.AsType[*events.InvalidError](err); invalid || errors.Is(err, errCircle) {
		return errAbsent
	}
	if err != nil {
		return err
	}
	defer w.in.give(s, nil)
	if err = s.focus(w.ctx, w.in.o.Log); err == nil {
		see(s)
	}
	return err
}

// within resolves a reference in a session, and returns the session's fork.
func (w *writer) within(id string, own *fileState, p agents.Position) (at events.Offset, fork *events.Fork, err error) {
	isThere := false
	err = w.look(id, func(s *sessionState) {
		fork = s.fork
		at, isThere = s.offsetOf(own, p)
	})
	switch {
	case err != nil || at > 0:
		return at, fork, err
	case !isThere:
		return 0, fork, errAbsent
	}
	at, err = w.beginning(id)
	return at, fork, err
}

// offsetOf returns the offset of a reference. 0 is before all lines. It returns false if the line is not in the log.
// own is the file that contains the reference.
func (s *sessionState) offsetOf(own *fileState, p agents.Position) (events.Offset, bool) {
	if p.End == 0 {
		return 0, true
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
		return 0, false
	}
	for i := len(f.lines) - 1; i >= 0; i-- {
		if l := &f.lines[i]; l.End <= p.End && l.at > 0 {
			return l.at, true
		}
	}
	return 0, true
}

// beginning returns the first event of a session, or of the session that it continues.
func (w *writer) beginning(id string) (events.Offset, error) {
	var first events.Offset
	for range maxForks {
		var fork *events.Fork
		if err := w.look(id, func(s *sessionState) { first, fork = s.first, s.fork }); err != nil {
			return 0, err
		}
		if fork == nil {
			break
		}
		id = fork.Session
	}
	if first == 0 {
		return 0, errAbsent
	}
	return first, nil
}

// fit adjusts the replacement of a thread to the number of its turns in the log.
func (w *writer) fit(n following, p *events.ThreadReplaced) (events.Payload, error) {
	if n.Had == agents.Whole {
		return p, nil
	}
	if err := w.flush(); err != nil { // the series counts too
		return nil, err
	}
	if w.s.live == nil {
		s, err := (&projector.Loader{Source: w.in.o.Log}).Session(w.ctx, w.s.sub, 0)
		if err != nil && !errors.Is(err, projector.ErrNotFound) {
			return nil, err
		}
		w.s.live = make(map[string]int)
		if err == nil {
			for name := range s.Threads {
				w.s.live[name] = len(s.Threads.Turns(name))
			}
		}
	}
	for name := range p.Threads {
		return n.Fit(w.s.live[name]), nil // an agent replaces one thread per fact
	}
	return p, nil
}

// count updates the number of turns in effect after an appended event.
func (s *sessionState) count(e *events.Event) {
	if s.live == nil {
		return
	}
	switch e.Type {
	case events.TypeTurnAppended:
		if p, err := events.DecodeAs[events.TurnAppended](*e); err == nil {
			for i := range p.Entries {
				s.live[p.Entries[i].Thread]++
			}
			return
		}
	case events.TypeThreadReplaced:
		if p, err := events.DecodeAs[events.ThreadReplaced](*e); err == nil && s.replaced(p) {
			return
		}
	case events.TypeSessionUpdated, events.TypeRunCreated, events.TypeRunProgressed, events.TypeRunFinished, events.TypeCostAccrued:
		return
	}
	s.live = nil // recounted on demand
}

// replaced counts the turns after a replacement. It returns false if they must be read from the log.
func (s *sessionState) replaced(p *events.ThreadReplaced) bool {
	if p.Others != "keep" {
		return false
	}
	for name, r := range p.Threads {
		n := 0
		for _, it := range r.Items {
			switch {
			case it.Keep == nil:
				n++
			case it.Keep[0] < 0 || it.Keep[0] > it.Keep[1] || it.Keep[1] > s.live[name]:
				return false // rejected
			default:
				n += it.Keep[1] - it.Keep[0]
			}
		}
		s.live[name] = n
	}
	return true
}
