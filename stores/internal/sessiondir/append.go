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

// Limits of one append, because all of its events are in memory at once.
const (
	batchEvents = 500
	batchBytes  = 4 << 20
)

// maxAttempts limits how often an import decides again after another writer appended.
const maxAttempts = 25

// ErrChanged reports that a file changed while it was read.
var ErrChanged = errors.New("the file changed while it was read")

// isRace reports whether loading and deciding again may resolve the error.
func isRace(err error) bool {
	_, partial := errors.AsType[*log.PartialError](err)
	return partial || errors.Is(err, log.ErrConflict) || errors.Is(err, ErrChanged)
}

// pause waits before attempt n+1, 2 ms at first, doubling up to 256 ms.
func pause(ctx context.Context, n int) error {
	t := time.NewTimer(2 * time.Millisecond << min(n, 7))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TimeOf returns a time that an event can have: of the years 1 to 9999. For any other it returns zero.
func TimeOf(at events.Timestamp) time.Time {
	t, ok := at.Time()
	if year := t.UTC().Year(); !ok || t.Year() < 1 || t.Year() > 9999 || year < 1 || year > 9999 {
		return time.Time{}
	}
	return t
}

// AppendAll appends to several subjects, all parts or none if the target can do that. It returns an Ack for each
// part.
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

// appendAll appends to several subjects. If the target cannot do that at once, such as a dry run, appendAll appends
// the parts one after the other.
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

// Stamp is set on the events of an import: the name of the layout, which goes into their ids, and their CloudEvents
// source.
type Stamp struct{ Format, Source string }

// Named sets the id and the time of an event. The id is derived from the base, from what, the event's role in the
// plan, and from its content. So the same difference always yields the same event.
func (s Stamp) Named(e events.Event, base events.Offset, what string, at events.Timestamp) events.Event {
	e.ID = events.DerivedID(s.Format, e.Subject.ID, base.String(), what, e.Type, SumOf(e.Data))
	e.Time = TimeOf(at)
	return e
}

// isOwnFault reports whether an error concerns one session rather than the store.
func isOwnFault(err error) bool {
	_, file := errors.AsType[*fs.PathError](err)
	_, path := errors.AsType[*layouts.PathError](err)
	_, invalid := errors.AsType[*events.InvalidError](err)
	_, size := errors.AsType[*log.SizeError](err)
	return file || path || errors.Is(err, fs.ErrNotExist) || invalid || size || isRace(err)
}

// Writer appends events of one session in batches. Each batch has the condition that no event arrived that would make
// the plan wrong.
type Writer struct {
	// Rewrites reports that the events remove something. Then a batch is appended at once, so that neither a reader
	// nor a crash finds the session between two of its events. Other events are appended one by one, which is several
	// times as fast. A crash leaves the first of them, and the next import of the folder appends the rest.
	Rewrites bool

	target layouts.Target
	sub    events.Subject
	expect log.Expect
	batch  []events.Event
	size   int
	guard  []string
	added  func(n int)

	Added int           // events that were not in the log before
	Last  events.Offset // of the last append; before it, the base
}

// Writer returns a writer for a plan that was made on a base. Any plan is wrong if another writer appends to threads
// or changes the session itself. others lists the event types that would also make this plan wrong.
func (in *Intake) Writer(sub events.Subject, base events.Offset, others ...string) *Writer {
	guard := append(events.ThreadTypes(), events.TypeSessionRewound, events.TypeSessionCreated, events.TypeSessionUpdated)
	guard = append(guard, others...)
	w := &Writer{target: in.Target, sub: sub, expect: log.At(0), guard: guard, added: in.Added, Last: base}
	if base != 0 {
		w.expect = log.Since(base, guard...)
	}
	return w
}

// Add adds an event to the batch. If the batch is full, Add appends it first.
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
