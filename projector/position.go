package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
)

// Position names a point of a session:
//
//	head         where the session is now
//	start        before everything, also @0
//	@1234        after the last record at or below this offset
//	#12          after turn 12, counted from 1, of thread main; gpt-5#12 of another
//	~3           without the last 3 turns of thread main; gpt-5~3 of another
//	2026-08-22T10:00Z   after the last record whose time is not later
//	-10m         as many hours, minutes or seconds before the time of the head
//	e:0198c2     after the event with this id, or a unique beginning of 6 characters or more
type Position struct {
	text   string
	kind   positionKind
	offset events.Offset
	thread string
	n      int
	time   time.Time
	ago    time.Duration
	id     string
}

type positionKind int

const (
	atHead positionKind = iota
	atStart
	atOffset
	atTurn
	withoutTurns
	atTime
	atAgo
	atEvent
)

// String returns the position as it was written.
func (p Position) String() string {
	if p.text == "" {
		return "head"
	}
	return p.text
}

// IsHead reports whether the position is where the session now is.
func (p Position) IsHead() bool { return p.kind == atHead }

// timeLayouts are the spellings of a time, from the most exact on.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02"}

// ParsePosition reads a position; "" is the head. A time without a zone is UTC.
func ParsePosition(text string) (Position, error) {
	p := Position{text: text}
	switch {
	case text == "" || text == "head":
		return p, nil
	case text == "start":
		p.kind = atStart
		return p, nil
	case strings.HasPrefix(text, "@"):
		at, err := events.ParseOffset(text)
		if p.kind, p.offset = atOffset, at; at == 0 {
			p.kind = atStart
		}
		return p, err
	case strings.HasPrefix(text, "e:"):
		if p.kind, p.id = atEvent, text[2:]; len(p.id) < 6 {
			return p, badPosition(text, "an event id needs 6 characters or more")
		}
		return p, nil
	case strings.HasPrefix(text, "-") && !strings.ContainsAny(text, "#~"):
		ago, err := time.ParseDuration(text[1:])
		if err != nil || ago < 0 {
			return p, badPosition(text, "want a duration such as -10m")
		}
		p.kind, p.ago = atAgo, ago
		return p, nil
	}
	for _, layout := range timeLayouts {
		if at, err := time.Parse(layout, text); err == nil {
			p.kind, p.time = atTime, at
			return p, nil
		}
	}
	return parseTurn(p)
}

// parseTurn reads [thread]#n and [thread]~n. A thread's name may hold either sign,
// so the last one counts.
func parseTurn(p Position) (Position, error) {
	i := strings.LastIndexAny(p.text, "#~")
	if i < 0 {
		return p, badPosition(p.text, "want head, start, @1234, #12, ~3, a time, -10m or e:<id>")
	}
	n, err := strconv.Atoi(p.text[i+1:])
	if err != nil || n < 0 || p.text[i] == '#' && n == 0 {
		return p, badPosition(p.text, "want a number from 1 behind # or ~")
	}
	p.kind, p.n, p.thread = atTurn, n, p.text[:i]
	if p.text[i] == '~' {
		p.kind = withoutTurns
	}
	if p.thread == "" {
		p.thread = events.MainThread
	}
	return p, nil
}

func badPosition(text, reason string) error {
	return &events.InvalidError{Field: "position", Reason: fmt.Sprintf("%q: %s", text, reason)}
}

// PositionError says that a session has no such position. It matches ErrNotFound.
type PositionError struct {
	Subject  events.Subject
	Position string
	Reason   string
}

func (e *PositionError) Error() string {
	return fmt.Sprintf("%s has no position %s: %s", e.Subject, e.Position, e.Reason)
}

// Is makes a PositionError match ErrNotFound.
func (e *PositionError) Is(target error) bool { return target == ErrNotFound }

// Resolve returns the offset that a position of a session, loaded at head, names:
// always that of one of its records or of what it inherited. start is 0.
func (l *Loader) Resolve(ctx context.Context, s *Session, p Position) (events.Offset, error) {
	switch p.kind {
	case atTime, atAgo, atEvent:
		return l.search(ctx, s, p)
	}
	return resolver{s.Subject, &s.History.Timeline, func(thread string) int { return len(s.Threads.Turns(thread)) },
		func(thread string, from, to int) ([]Turn, error) { return s.Threads.Turns(thread)[from:to], nil }}.resolve(p)
}

// resolver finds the positions that need no more than a session's history and some of
// its turns.
type resolver struct {
	subject events.Subject
	history *Timeline
	length  func(thread string) int
	turns   func(thread string, from, to int) ([]Turn, error)
}

func (r resolver) resolve(p Position) (at events.Offset, err error) {
	missing := func(format string, args ...any) (events.Offset, error) {
		return 0, &PositionError{r.subject, p.String(), fmt.Sprintf(format, args...)}
	}
	n := r.length(p.thread)
	if (p.kind == atTurn || p.kind == withoutTurns) && p.n > n {
		return missing("thread %s has %d turns", p.thread, n)
	}
	switch p.kind {
	case atStart:
		return 0, nil
	case atOffset:
		if at, err := r.history.At(p.offset); at != 0 || err != nil {
			return at, err
		}
		if r.history.Len() == 0 {
			return missing("no record of it can be read")
		}
		return missing("its first record is %v", r.history.ends.first)
	case atTurn:
		turns, err := r.turns(p.thread, p.n-1, p.n)
		if err != nil {
			return 0, err
		}
		return turns[0].Offset, nil
	case withoutTurns:
		if p.n == 0 {
			break
		}
		turns, err := r.turns(p.thread, n-p.n, n)
		if err != nil {
			return 0, err
		}
		first := turns[0].Offset
		for _, t := range turns { // turns that were kept may stand in another order
			first = min(first, t.Offset)
		}
		if at, err := r.history.liveBefore(first); at != 0 || err != nil {
			return at, err
		}
		return missing("there is no record before turn %d", n-p.n+1)
	}
	return r.history.Last(), nil
}

// search resolves the positions that only the records themselves can tell.
func (l *Loader) search(ctx context.Context, s *Session, p Position) (events.Offset, error) {
	var times []time.Time // the running maximum, by record
	var offsets, matches []events.Offset
	var latest time.Time
	for rec, err := range l.Records(ctx, s) {
		if err != nil {
			return 0, err
		}
		if at := cmp.Or(rec.Time, rec.Recorded); at.After(latest) {
			latest = at
		}
		times, offsets = append(times, latest), append(offsets, rec.Offset)
		if p.kind == atEvent && strings.HasPrefix(rec.ID, p.id) {
			if matches = append(matches, rec.Offset); rec.ID == p.id {
				return rec.Offset, nil
			}
		}
	}
	if p.kind == atEvent {
		switch len(matches) {
		case 0:
			return 0, &PositionError{s.Subject, p.String(), "no event has such an id"}
		case 1:
			return matches[0], nil
		}
		return 0, &PositionError{s.Subject, p.String(), fmt.Sprintf("%d events have ids that begin so", len(matches))}
	}
	until := p.time
	if p.kind == atAgo {
		until = latest.Add(-p.ago)
	}
	for i := len(times) - 1; i >= 0; i-- {
		if !times[i].IsZero() && !times[i].After(until) {
			return offsets[i], nil
		}
	}
	return 0, &PositionError{s.Subject, p.String(), "its records are all later"}
}

// Records yields the records of a session's history: those of the live list that
// a fork inherited, then its own. Damaged ones are left out.
func (l *Loader) Records(ctx context.Context, s *Session) func(func(events.Record, error) bool) {
	return func(yield func(events.Record, error) bool) {
		h := s.History
		begin := 0
		for _, src := range append(h.sources[:len(h.sources):len(h.sources)], source{s.Subject, len(h.offsets)}) {
			if src.end == begin {
				continue
			}
			own := make(map[events.Offset]bool, src.end-begin)
			for _, at := range h.offsets[begin:src.end] {
				own[at] = true
			}
			r := events.Range{Subject: src.subject, After: h.offsets[begin] - 1, Upto: h.offsets[src.end-1]}
			for rec, err := range l.Source.Read(ctx, r) {
				if _, damaged := errors.AsType[*events.DamageError](err); damaged || err == nil && !own[rec.Offset] {
					continue
				}
				if !yield(rec, err) || err != nil {
					return
				}
			}
			begin = src.end
		}
	}
}
