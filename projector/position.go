package projector

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
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
//	#12          after turn 12, counted from 1; gpt-5#12 of another thread than main
//	~3           without the last 3 turns; gpt-5~3 of another thread than main
//	2026-08-22T10:00Z   as it was at this time
//	-10m         as it was so many hours, minutes or seconds before the latest of its times
//	e:0198c2     after the event with this id, or a unique beginning of 6 characters or more
//
// #12 and ~3 without a thread refer to main. In a session without main they refer to its only thread. If it has several
// threads, ~3 leaves out the last 3 turns of the log, regardless of their threads, and #12 is an error that names the
// threads.
//
// Times are in the format that commands print, see [Fact.Shown]. Omitted parts mean the whole span: 10:04 is the whole
// minute, 2026-08-22 the whole day. A time without a zone is UTC. The order of the log takes precedence over clocks.
// The state at a time ends before the first change of the threads, rewinds included, that is later than the time. So it
// never contains a later change, and a record that arrived after a later change is left out with it. Other records do
// not hold back the turns after them: many sessions have a creation time later than their first turn. Records after the
// last change belong to the state unless they are later themselves.
type Position struct {
	text   string
	kind   positionKind
	offset events.Offset
	thread string
	n      int
	time   time.Time // end of the written span: the last nanosecond of 10:04
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

// IsHead reports whether the position is the head.
func (p Position) IsHead() bool { return p.kind == atHead }

// IsOffset reports whether the position is an offset. An offset names the same record even if earlier records cannot be
// read.
func (p Position) IsOffset() bool { return p.kind == atOffset }

// ParsePosition parses a position. "" is the head.
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
	if at, ok := parseTime(text); ok {
		p.kind, p.time = atTime, at
		return p, nil
	}
	return parseTurn(p)
}

// parseTurn parses [thread]#n and [thread]~n. A thread's name may contain both signs, so the last sign counts.
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
	return p, nil
}

func badPosition(text, reason string) error {
	return &events.InvalidError{Field: "position", Reason: fmt.Sprintf("%q: %s", text, reason)}
}

// PositionError reports that a session has no such position. It matches ErrNotFound.
type PositionError struct {
	Subject  events.Subject
	Position string
	Reason   string
}

func (e *PositionError) Error() string {
	return fmt.Sprintf("%s has no position %s: %s", e.Subject.Name(), e.Position, e.Reason)
}

// Is makes a PositionError match ErrNotFound.
func (e *PositionError) Is(target error) bool { return target == ErrNotFound }

// positionOf is Outline.Resolve for a session with all of its turns.
func (l *Loader) positionOf(ctx context.Context, s *Session, p Position) (events.Offset, error) {
	switch p.kind {
	case atTime, atAgo:
		return l.asOf(ctx, s, p)
	case atEvent:
		return l.eventNamed(ctx, s, p)
	}
	return resolver{s.Subject, &s.History.Timeline, s.Threads.Names(), func(thread string) int { return len(s.Threads.Turns(thread)) },
		func(thread string, from, to int) ([]Turn, error) { return s.Threads.Turns(thread)[from:to], nil }}.resolve(p)
}

// resolver finds the positions that depend only on a session's history and some of its turns.
type resolver struct {
	subject events.Subject
	history *Timeline
	names   []string // of the threads
	length  func(thread string) int
	turns   func(thread string, from, to int) ([]Turn, error)
}

func (r resolver) resolve(p Position) (at events.Offset, err error) {
	switch p.kind {
	case atStart:
		return 0, nil
	case atOffset:
		return r.record(p)
	case atTurn:
		return r.turn(p)
	case withoutTurns:
		if p.n > 0 {
			return r.without(p)
		}
	}
	return r.history.Last(), nil
}

func (r resolver) missing(p Position, format string, args ...any) error {
	return &PositionError{r.subject, p.String(), fmt.Sprintf(format, args...)}
}

func (r resolver) record(p Position) (events.Offset, error) {
	if at, err := r.history.At(p.offset); at != 0 || err != nil {
		return at, err
	}
	if r.history.Len() == 0 {
		return 0, r.missing(p, "no record of it can be read")
	}
	return 0, r.missing(p, "its first record is %v", r.history.ends.first)
}

func (r resolver) turn(p Position) (events.Offset, error) {
	thread := r.thread(p)
	if thread == "" {
		return 0, r.missing(p, "it has no thread main but %s: say which, as in %s%s", r.list(), r.names[0], p)
	}
	if err := r.enough(p, thread); err != nil {
		return 0, err
	}
	turns, err := r.turns(thread, p.n-1, p.n)
	if err != nil {
		return 0, err
	}
	return turns[0].Offset, nil
}

// without returns the last live record before the first of the turns that a position leaves out.
func (r resolver) without(p Position) (events.Offset, error) {
	thread := r.thread(p)
	var turns []Turn
	var err error
	if thread == "" {
		turns, err = r.newest(p)
	} else if err = r.enough(p, thread); err == nil {
		n := r.length(thread)
		turns, err = r.turns(thread, n-p.n, n)
	}
	if err != nil {
		return 0, err
	}
	first := turns[0].Offset
	for _, t := range turns { // kept turns may be in another order
		first = min(first, t.Offset)
	}
	if at, err := r.history.liveBefore(first); at != 0 || err != nil {
		return at, err
	}
	return 0, r.missing(p, "there is no record before these turns")
}

// thread returns the thread of a position. It returns "" if the position names none and the session has several threads
// without main.
func (r resolver) thread(p Position) string {
	switch {
	case p.thread != "":
		return p.thread
	case len(r.names) == 0 || slices.Contains(r.names, events.MainThread):
		return events.MainThread
	case len(r.names) == 1:
		return r.names[0]
	}
	return ""
}

// enough returns an error if a thread has fewer turns than a position counts.
func (r resolver) enough(p Position, thread string) error {
	n := r.length(thread)
	switch {
	case p.n <= n:
		return nil
	case len(r.names) == 0:
		return r.missing(p, "it has no turns")
	case !slices.Contains(r.names, thread):
		return r.missing(p, "it has no thread %s, only %s", thread, r.list())
	}
	return r.missing(p, "thread %s has %d turns", thread, n)
}

// newest returns the last turns of the session over all threads, ordered by the log.
func (r resolver) newest(p Position) ([]Turn, error) {
	tails := make([][]Turn, len(r.names))
	total := 0
	for i, name := range r.names {
		n := r.length(name)
		turns, err := r.turns(name, max(0, n-p.n), n)
		if err != nil {
			return nil, err
		}
		tails[i], total = turns, total+n
	}
	if p.n > total {
		return nil, r.missing(p, "its threads have %d turns", total)
	}
	var list []Turn
	for range p.n {
		last := slices.MaxFunc(tails, func(a, b []Turn) int { return cmp.Compare(endOf(a), endOf(b)) })
		i := slices.IndexFunc(tails, func(tail []Turn) bool { return endOf(tail) == endOf(last) })
		list, tails[i] = append(list, last[len(last)-1]), last[:len(last)-1]
	}
	return list, nil
}

// endOf returns the offset of the last turn, or 0.
func endOf(turns []Turn) events.Offset {
	if len(turns) == 0 {
		return 0
	}
	return turns[len(turns)-1].Offset
}

// list returns the names of the threads, shortened if there are many.
func (r resolver) list() string {
	const limit = 8
	if more := len(r.names) - limit; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(r.names[:limit], ", "), more)
	}
	return strings.Join(r.names, ", ")
}

// eventNamed finds the record of an event by its id.
func (l *Loader) eventNamed(ctx context.Context, s *Session, p Position) (events.Offset, error) {
	var matches []events.Offset
	var lost error
	for rec, err := range l.Records(ctx, s) {
		switch {
		case events.IsDamage(err):
			lost = cmp.Or(lost, err)
		case err != nil:
			return 0, err
		case rec.ID == p.id:
			return rec.Offset, nil
		case strings.HasPrefix(rec.ID, p.id):
			matches = append(matches, rec.Offset)
		}
	}
	switch {
	case lost != nil: // the lost record may be the wanted one
		return 0, lost
	case len(matches) == 0:
		return 0, &PositionError{s.Subject, p.String(), "no event has such an id"}
	case len(matches) == 1:
		return matches[0], nil
	}
	return 0, &PositionError{s.Subject, p.String(), fmt.Sprintf("the ids of %d events begin like this", len(matches))}
}

// Records yields the records of a session's history: the inherited live records of a fork, then its own records.
// Instead of a record that cannot be read, it yields a *events.DamageError and goes on. Records that History does not
// contain are left out.
func (l *Loader) Records(ctx context.Context, s *Session) func(func(events.Record, error) bool) {
	return func(yield func(events.Record, error) bool) {
		h := s.History
		begin := 0
		for _, src := range append(h.sources[:len(h.sources):len(h.sources)], sourceRange{s.Subject, len(h.offsets)}) {
			if src.end == begin {
				continue
			}
			for rec, err := range recordsAt(ctx, l.Source, src.subject, h.offsets[begin:src.end]) {
				if !yield(rec, err) || err != nil && !events.IsDamage(err) {
					return
				}
			}
			begin = src.end
		}
	}
}

// recordsAt yields the records of a subject at known offsets, in order. Instead of a record that the source does not
// return, it yields a *events.DamageError: a range read may not notice that a record is lost.
func recordsAt(ctx context.Context, src Source, sub events.Subject, offsets []events.Offset) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		if len(offsets) == 0 {
			return
		}
		left := offsets
		upto := func(at events.Offset) bool { // yields the missing records before an offset
			for len(left) > 0 && left[0] < at {
				next := left[0]
				if left = left[1:]; !yield(src.Record(ctx, next)) {
					return false
				}
			}
			return true
		}
		for rec, err := range src.Read(ctx, events.Range{Subject: sub, After: offsets[0] - 1, Upto: offsets[len(offsets)-1]}) {
			switch {
			case events.IsDamage(err): // the damage of a known offset is yielded at its offset
			case err != nil:
				yield(rec, err)
				return
			case !upto(rec.Offset):
				return
			case len(left) > 0 && left[0] == rec.Offset:
				if left = left[1:]; !yield(rec, nil) {
					return
				}
			}
		}
		upto(events.MaxOffset)
	}
}
