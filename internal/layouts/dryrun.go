package layouts

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// dryRunBase is the offset before the first one that a dry run assigns. No log has so many records.
const dryRunBase = events.MaxOffset / 2

// DryRun is the target of a dry run. It accepts events and keeps them in memory. Its readers find them after the
// records of the log. An import into it reports the changes it would make and leaves no trace.
type DryRun struct {
	Target

	// Brief makes the dry run count events without keeping them, for callers that do not read them back.
	Brief bool

	mu    sync.Mutex // guards the fields below
	added map[events.Subject][]events.Record
	last  events.Offset
}

var (
	_ Target           = (*DryRun)(nil)
	_ projector.Source = (*DryRun)(nil)
)

// NewDryRun returns a dry run on a target.
func NewDryRun(target Target) *DryRun {
	return &DryRun{Target: target, added: make(map[events.Subject][]events.Record), last: dryRunBase}
}

// Recall returns a source with the records of the log, followed by events that the caller has appended there and
// still holds. It sets their offsets to its own, in order.
func Recall(target Target, appended []projector.Fact) *DryRun {
	r := NewDryRun(target)
	for i := range appended {
		r.last++
		appended[i].Offset = r.last
		r.keep(appended[i].Record)
	}
	return r
}

// Loader loads from the log and from the kept events.
func (r *DryRun) Loader() *projector.Loader {
	l := r.Target.Loader()
	return &projector.Loader{Source: r, Snapshots: l.Snapshots, Logger: l.Logger, MaxValue: l.MaxValue, Now: l.Now, ReadOnly: true}
}

// Append keeps valid events in memory. It ignores the expectation about the log.
func (r *DryRun) Append(_ context.Context, sub events.Subject, _ log.Expect, evs ...events.Event) (log.Ack, error) {
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
			r.keep(events.Record{Event: e, Offset: r.last, Recorded: e.Time})
		}
	}
	return log.Ack{First: first, Last: r.last}, nil
}

// keep adds a record to those of its subject. The caller holds mu, or is the only user of r.
func (r *DryRun) keep(rec events.Record) {
	r.added[rec.Subject] = append(r.added[rec.Subject], rec)
}

// AppendSeries is Append: the dry run accepts all events or none.
func (r *DryRun) AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, int, error) {
	ack, err := r.Append(ctx, sub, expect, evs...)
	if err != nil {
		return ack, 0, err
	}
	return ack, len(evs), nil
}

// PutBlob returns the reference of content without storing it, because a dry run never reads it back.
func (r *DryRun) PutBlob(_ context.Context, content []byte) (string, error) {
	sum := sha256.Sum256(content)
	return events.BlobRef(hex.EncodeToString(sum[:])), nil
}

// Read implements projector.Source.
func (r *DryRun) Read(ctx context.Context, q events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for rec, err := range r.Target.Loader().Source.Read(ctx, q) {
			if !yield(rec, err) {
				return
			}
		}
		for _, rec := range r.kept(q.Subject) {
			if q.Includes(rec.Subject, rec.Offset) && !yield(rec, nil) {
				return
			}
		}
	}
}

// Record implements projector.Source.
func (r *DryRun) Record(ctx context.Context, at events.Offset) (events.Record, error) {
	if at <= dryRunBase {
		return r.Target.Loader().Source.Record(ctx, at)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, list := range r.added {
		if i, found := slices.BinarySearchFunc(list, at, func(rec events.Record, at events.Offset) int { return cmp.Compare(rec.Offset, at) }); found {
			return list[i], nil
		}
	}
	return events.Record{}, log.ErrNotFound
}

// Last returns the newest record that the dry run keeps for a subject, and whether there is one.
func (r *DryRun) Last(sub events.Subject) (rec events.Record, ok bool) {
	if list := r.kept(sub); len(list) > 0 {
		return list[len(list)-1], true
	}
	return rec, false
}

// Forget drops the kept events of a subject.
func (r *DryRun) Forget(sub events.Subject) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.added, sub)
}

// kept returns the kept records of a subject, or of all subjects, by offset. Later appends do not change the returned
// records.
func (r *DryRun) kept(sub events.Subject) []events.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sub != (events.Subject{}) {
		return r.added[sub]
	}
	all := slices.Concat(slices.Collect(maps.Values(r.added))...)
	slices.SortFunc(all, func(a, b events.Record) int { return cmp.Compare(a.Offset, b.Offset) })
	return all
}
