package formats

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"slices"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// rehearsed is the first offset that a rehearsal makes: beyond those of any log.
const rehearsed = events.MaxOffset / 2

// Rehearsal is a target that takes events and appends nothing: they are read back
// from memory, after those of the log. An import into it does what it would do,
// and leaves no trace.
type Rehearsal struct {
	Target

	// Brief says that nothing which is appended will be read back: it is counted and
	// not kept.
	Brief bool

	mu      sync.Mutex // guards what follows
	records []events.Record
	last    events.Offset
}

var (
	_ Target           = (*Rehearsal)(nil)
	_ projector.Source = (*Rehearsal)(nil)
)

// NewRehearsal returns a rehearsal on a target.
func NewRehearsal(target Target) *Rehearsal {
	return &Rehearsal{Target: target, last: rehearsed}
}

// Recall returns a source that has, beside what is in the log, records that were appended
// there and are still at hand. It gives them offsets of its own, in their order.
func Recall(target Target, appended []projector.Fact) *Rehearsal {
	r := NewRehearsal(target)
	r.records = make([]events.Record, len(appended))
	for i := range appended {
		r.last++
		appended[i].Offset = r.last
		r.records[i] = appended[i].Record
	}
	return r
}

// Loader loads from the log and what was appended here.
func (r *Rehearsal) Loader() *projector.Loader {
	l := r.Target.Loader()
	return &projector.Loader{Source: r, Snapshots: l.Snapshots, Logger: l.Logger, MaxValue: l.MaxValue, Now: l.Now, ReadOnly: true}
}

// Append keeps events in memory. They are not checked against anything.
func (r *Rehearsal) Append(_ context.Context, sub events.Subject, _ log.Expect, evs ...events.Event) (log.Ack, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.last + 1
	for _, e := range evs {
		e.Subject = sub
		if err := e.Validate(); err != nil {
			return log.Ack{}, err
		}
		r.last++
		if !r.Brief {
			r.records = append(r.records, events.Record{Event: e, Offset: r.last, Recorded: e.Time})
		}
	}
	return log.Ack{First: first, Last: r.last}, nil
}

// AppendSeries is Append: nobody else writes to memory.
func (r *Rehearsal) AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, int, error) {
	ack, err := r.Append(ctx, sub, expect, evs...)
	if err != nil {
		return ack, 0, err
	}
	return ack, len(evs), nil
}

// PutBlob names content and forgets it: nothing that an import compares reads it
// back.
func (r *Rehearsal) PutBlob(_ context.Context, content []byte) (string, error) {
	sum := sha256.Sum256(content)
	return events.BlobRef(hex.EncodeToString(sum[:])), nil
}

// Read implements projector.Source.
func (r *Rehearsal) Read(ctx context.Context, q events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for rec, err := range r.Target.Loader().Source.Read(ctx, q) {
			if !yield(rec, err) {
				return
			}
		}
		for _, rec := range r.kept() {
			if q.Includes(rec.Subject, rec.Offset) && !yield(rec, nil) {
				return
			}
		}
	}
}

// Record implements projector.Source.
func (r *Rehearsal) Record(ctx context.Context, at events.Offset) (events.Record, error) {
	for _, rec := range r.kept() {
		if rec.Offset == at {
			return rec, nil
		}
	}
	return r.Target.Loader().Source.Record(ctx, at)
}

// Forget drops what was appended to a subject.
func (r *Rehearsal) Forget(sub events.Subject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = slices.DeleteFunc(slices.Clone(r.records), func(rec events.Record) bool { return rec.Subject == sub })
}

// kept returns what was appended: more of it comes behind that, and none of it changes.
func (r *Rehearsal) kept() []events.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records
}
