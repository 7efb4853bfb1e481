package daemon

import (
	"context"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Due is a subject that needs a decision at a time.
type Due = projector.Due

// Work lists subjects that may need a decision. It is as of a cursor, may lag behind the log, and is only a hint:
// daemons read the log to decide.
type Work interface {
	// Due lists the entries that are due by a time, earliest first, at most limit.
	Due(ctx context.Context, what string, upto time.Time, limit int) ([]Due, error)
	// Cursor returns the offset up to which the log is included.
	Cursor(ctx context.Context) (events.Offset, error)
}

// Daemon makes the decisions of one kind. It keeps no essential state: another daemon, in this process or elsewhere,
// can continue its work.
type Daemon interface {
	Name() string

	// Decide makes the decisions that are due by the log's time now. work is a hint: Decide reads the facts from the
	// log, and its appends depend on them. If it returns an error, possibly after some decisions, the caller retries
	// later.
	Decide(ctx context.Context, work Work, now time.Time) (Result, error)
}

// Result is the result of a call of Decide.
type Result struct {
	Made    []Decision
	Refused int       // number of decisions that failed at the append because another daemon was faster
	Failed  int       // number of subjects without a decision because of an error
	Err     error     // the last such error
	Next    time.Time // time of the next call, by the log's time; zero: at the next record
}

// Decision is a decision that was appended.
type Decision struct {
	Subject events.Subject
	What    string // its effect in a few words, such as "lost"
}

// Soonest lowers Next to a time, if Next is later. It ignores the zero time.
func (l *Result) Soonest(at time.Time) {
	if !at.IsZero() && (l.Next.IsZero() || at.Before(l.Next)) {
		l.Next = at
	}
}

// page is the number of due entries in the first request.
const page = 64

// Each calls do for each entry of a kind that has been due for at least window, earliest first, and sets Next to the
// following one. An entry without a possible decision may stay listed, and does not hide later ones. Neither does an
// entry that fails; Each counts it. Each returns the errors of work, and that of ctx.
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

// never is later than any due time.
var never = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
