package daemon

import (
	"context"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Due is a subject that is to be looked at at a time.
type Due = projector.Due

// Work lists what is to be looked at. It is as of a cursor, may be behind the log, and
// decides nothing: it says where to look.
type Work interface {
	// Due lists what is due by a time, the earliest first, at most limit.
	Due(ctx context.Context, what string, upto time.Time, limit int) ([]Due, error)
	// Cursor is the offset up to which the log is in it.
	Cursor(ctx context.Context) (events.Offset, error)
}

// Daemon decides what is due of one sort. It keeps nothing that matters: another one, in this
// process or elsewhere, goes on where it ended.
type Daemon interface {
	Name() string

	// Decide makes the decisions that are due by the log's time now. What work lists is where
	// to look: what is so is read from the log, and what is appended rests on that. With an
	// error, which may come behind decisions that were made, it is asked again later.
	Decide(ctx context.Context, work Work, now time.Time) (Result, error)
}

// Result is what came of a look.
type Result struct {
	Made    []Decision
	Refused int       // decisions that were void when they were to be appended: somebody was faster
	Failed  int       // subjects on which nothing could be decided
	Err     error     // why, of the last one
	Next    time.Time // when to look again, by the log's time; zero: when something is recorded
}

// Decision is something that was decided, and appended.
type Decision struct {
	Subject events.Subject
	What    string // that was done, such as "lost", in a few words
}

// Soonest has the next look be at a time, unless it is to be earlier. The zero time changes
// nothing.
func (l *Result) Soonest(at time.Time) {
	if !at.IsZero() && (l.Next.IsZero() || at.Before(l.Next)) {
		l.Next = at
	}
}

// page is how many that are due are asked for at first.
const page = 64

// Each calls a function for each that has been due of a sort for a while, the earliest first,
// and notes when the next one is. One on which nothing is to be decided may stay listed, and
// does not hide those behind it; one that fails does not either, and is noted. The error is
// that of work, or of a ctx that is done.
func (l *Result) Each(ctx context.Context, work Work, what string, now time.Time, window time.Duration, do func(Due) error) error {
	seen := make(map[Due]bool)
	for limit := page; ; limit *= 2 {
		list, err := work.Due(ctx, what, never, limit)
		if err != nil {
			return err
		}
		for _, due := range list {
			if at := due.At.Add(window); at.After(now) {
				l.Soonest(at)
				return nil
			}
			if seen[due] {
				continue
			}
			seen[due] = true
			if err := do(due); err != nil {
				l.Failed, l.Err = l.Failed+1, err
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		if len(list) < limit {
			return nil
		}
	}
}

// never is later than anything is due.
var never = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
