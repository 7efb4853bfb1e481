package sessiondir

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/log"
)

// One append holds at most so much: its events are in memory as a whole.
const (
	batchEvents = 500
	batchBytes  = 4 << 20
)

// maxTries bounds deciding again after somebody else wrote.
const maxTries = 25

// ErrChanged says that a file is not any more what it was a moment ago.
var ErrChanged = errors.New("the file changed while it was read")

// isRace reports whether loading and deciding again may help.
func isRace(err error) bool {
	_, partial := errors.AsType[*log.PartialError](err)
	return partial || errors.Is(err, log.ErrConflict) || errors.Is(err, ErrChanged)
}

// pause waits before another try, longer each time.
func pause(ctx context.Context, try int) error {
	t := time.NewTimer(2 * time.Millisecond << min(try, 7))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TimeOf returns a time that an event can have, zero if there is none.
func TimeOf(at events.Timestamp) time.Time {
	t, ok := at.Time()
	if year := t.UTC().Year(); !ok || t.Year() < 1 || t.Year() > 9999 || year < 1 || year > 9999 {
		return time.Time{}
	}
	return t
}

// AppendAll appends to several subjects, all parts or none if the target can. It returns an Ack
// for each part.
func (in *Intake) AppendAll(ctx context.Context, parts []log.Part) (acks []log.Ack, err error) {
	if len(parts) == 0 {
		return nil, nil
	}
	acks, err = appendAll(ctx, in.Target, parts)
	for i, ack := range acks {
		if !ack.Duplicate {
			in.Added(len(parts[i].Events))
		}
	}
	return acks, err
}

// appendAll appends to several subjects. A target that cannot do that at once, such as a
// rehearsal, takes the parts one after the other.
func appendAll(ctx context.Context, target layouts.Target, parts []log.Part) (acks []log.Ack, err error) {
	if t, ok := target.(allAppender); ok {
		return t.AppendAll(ctx, parts...)
	}
	for _, p := range parts {
		ack, err := target.Append(ctx, p.Subject, p.Expect, p.Events...)
		if err != nil {
			return acks, err
		}
		acks = append(acks, ack)
	}
	return acks, nil
}

// allAppender is a target that appends to several subjects at once, as a store does.
type allAppender interface {
	AppendAll(ctx context.Context, parts ...log.Part) ([]log.Ack, error)
}

// Stamp is what the events of an import carry: the name of the layout, of which
// their ids are made, and their CloudEvents source.
type Stamp struct{ Format, Source string }

// Named gives an event its time, and its id: that follows from the base, what the event is
// and its content, so that the same difference stated again is the same event.
func (s Stamp) Named(e events.Event, base events.Offset, what string, at events.Timestamp) events.Event {
	e.ID = events.DerivedID(s.Format, e.Subject.ID, base.String(), what, e.Type, SumOf(e.Data))
	e.Time = TimeOf(at)
	return e
}

// isOwnFault reports whether an error is one session's, not the store's.
func isOwnFault(err error) bool {
	_, file := errors.AsType[*fs.PathError](err)
	_, path := errors.AsType[*layouts.PathError](err)
	_, invalid := errors.AsType[*events.InvalidError](err)
	_, size := errors.AsType[*log.SizeError](err)
	return file || path || errors.Is(err, fs.ErrNotExist) || invalid || size || isRace(err)
}

// Writer appends events of one session in batches, each on the condition that
// nothing came that would make the plan wrong.
type Writer struct {
	// Rewrites says that the events take something away: then the session shall not be
	// seen, nor be left by a crash, between two events of one batch. Others go in one
	// by one, which is several times as fast: what a crash leaves are the first ones,
	// and the next import of the folder finds that the rest is missing.
	Rewrites bool

	target layouts.Target
	sub    events.Subject
	expect log.Expect
	batch  []events.Event
	size   int
	guard  []string
	added  func(n int)

	Added int           // events that were not there before
	Last  events.Offset // of the last append, the base before it
}

// Writer returns a writer for a plan that was made on a base. What others say of threads, or
// of the session itself, would make any plan wrong; others lists the types that would make
// this one wrong besides.
func (in *Intake) Writer(sub events.Subject, base events.Offset, others ...string) *Writer {
	guard := append(events.ThreadTypes(), events.TypeSessionRewound, events.TypeSessionCreated, events.TypeSessionUpdated)
	guard = append(guard, others...)
	w := &Writer{target: in.Target, sub: sub, expect: log.At(0), guard: guard, added: in.Added, Last: base}
	if base != 0 {
		w.expect = log.Since(base, guard...)
	}
	return w
}

// Add appends an event, or keeps it for the next batch.
func (w *Writer) Add(ctx context.Context, e events.Event) error {
	if len(w.batch) == batchEvents || len(w.batch) > 0 && w.size+len(e.Data) > batchBytes {
		if err := w.Flush(ctx); err != nil {
			return err
		}
	}
	w.batch = append(w.batch, e)
	w.size += len(e.Data)
	return nil
}

// Flush appends the batch.
func (w *Writer) Flush(ctx context.Context) error {
	if len(w.batch) == 0 {
		return nil
	}
	ack, added, err := w.append(ctx)
	if added > 0 {
		w.Added += added
		w.added(added)
	}
	if err != nil {
		return err
	}
	w.Last, w.expect = ack.Last, log.Since(ack.Last, w.guard...)
	clear(w.batch)
	w.batch, w.size = w.batch[:0], 0
	return nil
}

func (w *Writer) append(ctx context.Context) (ack log.Ack, added int, err error) {
	if !w.Rewrites {
		return w.target.AppendSeries(ctx, w.sub, w.expect, w.batch...)
	}
	ack, err = w.target.Append(ctx, w.sub, w.expect, w.batch...)
	if err == nil && !ack.Duplicate {
		added = len(w.batch)
	}
	return ack, added, err
}
