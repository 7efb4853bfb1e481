package perstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// decides are the types that a decision about the job's own document depends on.
var decides = []string{events.TypeSessionCreated, events.TypeSessionUpdated}

// Create stores a new job. If the job exists, the error is tally.ErrExists.
func (h *Handle) Create(ctx context.Context, j Job) (log.Ack, error) {
	return h.update(ctx, func(old events.Raw) (events.Raw, error) {
		if old != nil {
			return nil, fmt.Errorf("job %q: %w", h.id, tally.ErrExists)
		}
		return encode("job", nil, j)
	})
}

// Save stores the job, and replaces any version. To change a job that was read before, use Update, which loses no
// concurrent changes. An unchanged job is not stored again.
func (h *Handle) Save(ctx context.Context, j Job) (log.Ack, error) {
	return h.update(ctx, func(old events.Raw) (events.Raw, error) { return encode("job", old, j, jobNumbers...) })
}

// SaveRaw is Save with a job as JSON. Its bytes are kept, except for white space between its members.
func (h *Handle) SaveRaw(ctx context.Context, raw events.Raw) (log.Ack, error) {
	return h.update(ctx, func(events.Raw) (events.Raw, error) { return raw, nil })
}

// Update changes the present version of the job. If another writer was faster, it calls change again with that version,
// so that sums of many delegates are exact. change may be called several times. If the job was never stored, the error
// is tally.ErrNotFound.
func (h *Handle) Update(ctx context.Context, change func(*Job) error) (j Job, err error) {
	_, err = h.update(ctx, func(old events.Raw) (events.Raw, error) {
		if old == nil {
			return nil, h.noJob()
		}
		if j, err = ParseJob(old); err != nil {
			return nil, err
		}
		if err := change(&j); err != nil {
			return nil, err
		}
		return encode("job", old, j, jobNumbers...)
	})
	return j, err
}

func (h *Handle) noJob() error { return fmt.Errorf("job %q: %w", h.id, tally.ErrNotFound) }

// update stores the version that decide returns for the present one, which may be nil.
func (h *Handle) update(ctx context.Context, decide func(old events.Raw) (events.Raw, error)) (ack log.Ack, err error) {
	h.memory.decides.Lock()
	defer h.memory.decides.Unlock()
	next := func(now *projector.Outline) ([]events.Payload, error) {
		if err := tally.CheckKind(h.session.Subject(), now.Ledger(), events.KindJob); err != nil {
			return nil, err
		}
		old, err := h.newest(ctx, now.Ledger())
		if err != nil {
			return nil, err
		}
		raw, err := decide(old)
		if err != nil {
			return nil, err
		}
		j, err := shape.ParseJob(raw)
		if err == nil && j.ID != h.id {
			err = &events.InvalidError{Field: "job.id", Reason: fmt.Sprintf("%q, but this is job %q", j.ID, h.id)}
		}
		if err != nil {
			return nil, err
		}
		return jobEvents(now.Ledger(), j, old), nil
	}
	err = h.again(ctx, func() error {
		ack, err = h.session.Update(ctx, decides, next)
		return err
	})
	return ack, err
}

// jobEvents returns the events that store a version of a job.
func jobEvents(l *projector.Ledger, j shape.Job, old events.Raw) []events.Payload {
	if l.Created != 0 {
		if p := j.Updated(); !bytes.Equal(p.Raw, old) {
			return []events.Payload{p}
		}
		return nil
	}
	list := []events.Payload{j.Created()}
	if !j.IsInitial() {
		list = append(list, &events.SessionUpdated{Set: j.Fields()})
	}
	return list
}

// Load returns the job. If it was never stored, the error is tally.ErrNotFound; if it violates the original's schema,
// *events.InvalidError.
func (h *Handle) Load(ctx context.Context) (Job, error) {
	raw, err := h.JobBytes(ctx)
	if err != nil {
		return Job{}, err
	}
	return ParseJob(raw)
}

// JobBytes returns the compact job. If it was never stored, the error is tally.ErrNotFound.
func (h *Handle) JobBytes(ctx context.Context) (events.Raw, error) {
	o, err := h.head(ctx)
	if err != nil {
		return nil, err
	}
	raw, err := h.newest(ctx, o.Ledger())
	if err == nil && raw == nil {
		err = h.noJob()
	}
	return raw, err
}

// head opens the job's session as it is now, or an empty one. It reads the session again only if it has changed.
func (h *Handle) head(ctx context.Context) (*projector.Outline, error) {
	sub := h.session.Subject()
	if last, err := h.st.Log.Last(ctx, sub); err == nil && !h.st.Log.LostBehind(sub, last.Offset) {
		if o := h.seen.Load(); o != nil && o.Offset() == last.Offset {
			return o, nil
		}
	}
	o, err := h.st.Loader().Peek(ctx, sub)
	if err == nil {
		err = tally.CheckKind(sub, o.Ledger(), events.KindJob)
	}
	if err != nil {
		return nil, err
	}
	h.seen.Store(o)
	return o, nil
}

// newest reads the job's newest version, or nil.
func (h *Handle) newest(ctx context.Context, l *projector.Ledger) (events.Raw, error) {
	at := max(l.Raw[events.TypeSessionCreated], l.Raw[events.TypeSessionUpdated])
	if at == 0 {
		return nil, nil
	}
	return h.versionAt(ctx, at)
}

// versionAt reads a version of the job.
func (h *Handle) versionAt(ctx context.Context, at events.Offset) (events.Raw, error) {
	p, err := h.payload(ctx, at)
	if err != nil {
		return nil, err
	}
	switch p := p.(type) {
	case *events.SessionCreated:
		return p.Raw, nil
	case *events.SessionUpdated:
		return p.Raw, nil
	}
	return nil, &events.DamageError{Offset: at, Err: errors.New("the record is not a version of the job")}
}

// payload reads a record, with data that are kept by reference. Removed lists stay out.
func (h *Handle) payload(ctx context.Context, at events.Offset) (events.Payload, error) {
	rec, err := h.record(ctx, at)
	if err != nil {
		return nil, err
	}
	f := projector.Decode(rec)
	if f.Invalid != nil {
		return nil, &events.DamageError{Offset: at, Err: f.Invalid}
	}
	return f.Payload, nil
}

func (h *Handle) record(ctx context.Context, at events.Offset) (events.Record, error) {
	rec, err := h.st.Log.Record(ctx, at)
	if err != nil {
		return rec, err
	}
	return projector.Resolve(ctx, h.st.Log, rec, h.st.MaxValue())
}
