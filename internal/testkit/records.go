// Package testkit has shared parts of tests: a log that is a slice, and random histories of sessions.
package testkit

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/tallylog/tally/events"
)

// Records is a log in a slice, in the order of offsets. It is a source of folds.
type Records []events.Record

// Read yields the records of a range.
func (l Records) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		n := 0
		for _, rec := range l {
			if ctx.Err() != nil {
				yield(events.Record{}, ctx.Err())
				return
			}
			if !r.Includes(rec.Subject, rec.Offset) {
				continue
			}
			if n++; !yield(rec, nil) || n == r.Limit {
				return
			}
		}
	}
}

// Record returns the record at an offset.
func (l Records) Record(_ context.Context, at events.Offset) (events.Record, error) {
	for _, rec := range l {
		if rec.Offset == at {
			return rec, nil
		}
	}
	return events.Record{}, fmt.Errorf("no record %v", at)
}

// Of returns the records of one subject.
func (l Records) Of(sub events.Subject) Records {
	var own Records
	for _, rec := range l {
		if rec.Subject == sub {
			own = append(own, rec)
		}
	}
	return own
}

// GoString prints a record on each line, for failed property tests.
func (l Records) GoString() string {
	var b strings.Builder
	for _, rec := range l {
		fmt.Fprintf(&b, "\n%v %s %s %s", rec.Offset, rec.Subject, rec.Type, rec.Data)
		if seen, ok := rec.Basis(); ok {
			fmt.Fprintf(&b, " seen %v", seen)
		}
	}
	return b.String()
}
