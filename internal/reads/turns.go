package reads

import (
	"context"
	"fmt"
	"slices"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// TurnsQuery selects consecutive turns of a thread at a position. Numbers of turns count from 1. At most one of From,
// Last and Around is set. Without them the answer begins with the first turn.
type TurnsQuery struct {
	Session string
	Thread  string // "": main, or else the only thread
	At      string // position; "": the head
	From    int    // the first turn
	To      int    // the last turn; 0: as many as Limit allows
	Last    int    // so many turns from the end
	Around  int    // a turn, with as many before as behind
	Limit   int    // the most turns; 0: 100
}

// Limits of an answer with turns.
const (
	defaultTurns = 100
	maxTurns     = 1000
	maxTurnBytes = 16 << 20
)

// Turns are consecutive turns of a thread.
type Turns struct {
	Thread string        `json:"thread"`
	Offset events.Offset `json:"offset"` // of the last record up to the position
	Count  int           `json:"count"`  // turns of the thread
	Turns  []Turn        `json:"turns"`
	Next   int           `json:"next,omitempty"` // the number of the next turn, if the answer ends before the turn that was asked for
}

// Turn is a turn with its number in its thread.
type Turn struct {
	Number int `json:"number"` // from 1
	projector.Turn
}

// Turns returns turns of a session of the store. An answer has at most 1,000 turns, and ends with the turn that makes it
// larger than 16 MiB. If the session, position or thread does not exist, the error is tally.ErrNotFound.
func (r Reader) Turns(ctx context.Context, q TurnsQuery) (Turns, error) {
	if err := q.check(); err != nil {
		return Turns{}, err
	}
	_, past, err := r.pastOf(ctx, q.Session, q.At)
	if projector.Tolerate(err) != nil {
		return Turns{}, err
	}
	thread, err := threadOf(past, q.Thread)
	if err != nil {
		return Turns{}, err
	}
	answer := Turns{Thread: thread, Offset: past.Offset(), Count: past.Len(thread), Turns: []Turn{}}
	from, to := q.window(answer.Count)
	const step = 50
	for size := 0; from < to; {
		turns, err := past.Turns(ctx, thread, from, min(from+step, to))
		if err != nil {
			return Turns{}, err
		}
		for _, t := range turns {
			answer.Turns = append(answer.Turns, Turn{from + 1, t})
			from++
			if size += len(t.Raw) + len(t.Bytes) + len(t.Meta); size > maxTurnBytes && from < to {
				answer.Next = from + 1
				return answer, nil
			}
		}
	}
	if wanted := lastOf(q.To, answer.Count); from < wanted && q.Last == 0 && q.Around == 0 {
		answer.Next = from + 1
	}
	return answer, nil
}

// lastOf returns the last turn that was asked for.
func lastOf(to, count int) int {
	if to == 0 {
		return count
	}
	return min(to, count)
}

func (q TurnsQuery) check() error {
	for _, m := range []struct {
		name string
		n    int
	}{{"from", q.From}, {"to", q.To}, {"last", q.Last}, {"around", q.Around}, {"limit", q.Limit}} {
		if m.n < 0 {
			return &events.InvalidError{Field: m.name, Reason: fmt.Sprintf("%d: want a number from 1", m.n)}
		}
	}
	switch {
	case q.Limit > maxTurns:
		return &events.InvalidError{Field: "limit", Reason: fmt.Sprintf("%d: want at most %d", q.Limit, maxTurns)}
	case q.Last > 0 && max(q.From, q.To, q.Around) > 0:
		return &events.InvalidError{Field: "last", Reason: "want it without from, to and around"}
	case q.Around > 0 && max(q.From, q.To) > 0:
		return &events.InvalidError{Field: "around", Reason: "want it without from and to"}
	case q.To > 0 && q.To < q.From:
		return &events.InvalidError{Field: "to", Reason: fmt.Sprintf("%d is before from, which is %d", q.To, q.From)}
	}
	return nil
}

// window returns which turns of a thread are in the answer: from <= number < to, counted from 0.
func (q TurnsQuery) window(count int) (from, to int) {
	limit := q.Limit
	if limit == 0 {
		limit = defaultTurns
	}
	switch {
	case q.Last > 0:
		from = max(0, count-min(q.Last, limit))
	case q.Around > 0:
		from = max(0, min(q.Around, count)-1-limit/2)
	default:
		from = max(q.From, 1) - 1
	}
	from = min(from, count)
	return from, min(from+limit, lastOf(q.To, count))
}

// threadOf returns the thread that a query means.
func threadOf(past *projector.Past, name string) (string, error) {
	names := past.Names()
	switch {
	case name == "" && (slices.Contains(names, events.MainThread) || len(names) == 0):
		return events.MainThread, nil
	case name == "" && len(names) == 1:
		return names[0], nil
	case name == "":
		return "", &events.InvalidError{Field: "thread", Reason: fmt.Sprintf("the session has the threads %q: want one of them", names)}
	case !slices.Contains(names, name):
		return "", fmt.Errorf("the session has no thread %q there; it has %q: %w", name, names, tally.ErrNotFound)
	}
	return name, nil
}
