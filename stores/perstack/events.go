package perstack

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// index has the positions of a job's events, as far as they were read.
type index struct {
	mu    sync.Mutex
	at    events.Offset          // read up to here; 0: not yet
	byRun map[string][]EventMeta // in the order of the log

	steps  int64         // largest number of a step
	used   Usage         // summed over steps
	said   int           // number of those steps
	latest events.Offset // of the checkpoint with the largest step, the last one of several
	behind int64         // its step
}

// events returns the events of a run, in the order of the log.
func (x *index) events(ctx context.Context, h *Handle, run string) ([]EventMeta, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.catchUp(ctx, h); err != nil {
		return nil, err
	}
	return slices.Clone(x.byRun[run]), nil
}

// isRead reports whether the job was read, so that only newer records are left to read.
func (x *index) isRead() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.at != 0
}

// catchUp reads newer records. The caller holds mu.
func (x *index) catchUp(ctx context.Context, h *Handle) error {
	for rec, err := range h.st.Log.Read(ctx, events.Range{Subject: h.session.Subject(), After: x.at}) {
		if err == nil && isIndexed(rec.Type) {
			rec, err = projector.Resolve(ctx, h.st.Log, rec, h.st.MaxValue())
		}
		if err != nil {
			return err
		}
		if isIndexed(rec.Type) {
			x.add(projector.Decode(rec))
		}
		x.at = rec.Offset
	}
	return nil
}

func isIndexed(typ string) bool {
	switch typ {
	case events.TypeRunStarted, events.TypeRunProgressed, events.TypeRunFinished, events.TypeCheckpointSaved, events.TypeCostAccrued:
		return true
	}
	return false
}

// add notes a record of the job.
func (x *index) add(f projector.Fact) {
	switch p := f.Payload.(type) {
	case *events.CheckpointSaved:
		if p.Kind == events.CheckpointStep && p.Step >= x.behind {
			x.latest, x.behind = f.Offset, p.Step
		}
		x.steps = max(x.steps, p.Step)
	case *events.CostAccrued:
		if used, err := decode[Usage]("usage", p.Raw, usageNumbers...); err == nil && p.Run != nil && p.Run.Kind == shape.RunKind {
			x.used, x.said = x.used.Plus(used), x.said+1
		}
	case events.Payload:
		x.addEvent(f)
	}
}

// addEvent notes an event. It ignores other records.
func (x *index) addEvent(f projector.Fact) {
	happened, ok := projector.ProgressOf(f)
	if !ok || happened.Run.Kind != shape.RunKind {
		return
	}
	m, ok := plainMeta(happened)
	if !ok {
		_, raw, _ := shape.RawOf(f.Payload)
		if m, ok = metaOf(raw, f.Offset); !ok {
			return
		}
	}
	x.steps = max(x.steps, m.StepNumber)
	if x.byRun == nil {
		x.byRun = make(map[string][]EventMeta)
	}
	x.byRun[happened.Run.ID] = append(x.byRun[happened.Run.ID], m)
}

// plainMeta returns an event's metadata, as in the name of its file, from a row of the catalog. It returns false if the
// row may be incomplete: events that start or end a run have no step, some times cannot be expressed, and a type that
// differs from the row's kind may belong to another record.
func plainMeta(p projector.Progress) (EventMeta, bool) {
	at, ok := p.At.Time()
	m := EventMeta{Timestamp: at.UnixMilli(), StepNumber: p.Step, Type: p.Kind, Offset: p.Offset}
	return m, ok && m.Timestamp < shape.LastTime && p.Name == p.Kind && p.Kind != projector.ProgressStarted && p.Kind != projector.ProgressFinished
}

// metaOf returns an event's metadata, or false if it is not an event.
func metaOf(raw events.Raw, at events.Offset) (EventMeta, bool) {
	e, err := shape.ParseEvent(raw)
	return EventMeta{Timestamp: e.Timestamp, StepNumber: e.Step, Type: e.Type, Offset: at}, err == nil
}

// metas returns events of a run in the order of the log, after an offset, at most limit or 0 for all. If the job was
// read before, metas reads newer records; otherwise it lists the events from the catalog.
func (h *Handle) metas(ctx context.Context, run string, after events.Offset, limit int) ([]EventMeta, error) {
	if !h.index.isRead() {
		list, err := h.listedMetas(ctx, run, after, limit)
		if !errors.Is(err, tally.ErrNoCatalog) {
			return list, err
		}
	}
	list, err := h.index.events(ctx, h, run)
	begin, _ := slices.BinarySearchFunc(list, after+1, func(m EventMeta, at events.Offset) int { return cmp.Compare(m.Offset, at) })
	if list = list[begin:]; limit > 0 && len(list) > limit {
		list = list[:limit]
	}
	return list, err
}

// listedMetas is metas from the catalog.
func (h *Handle) listedMetas(ctx context.Context, run string, after events.Offset, limit int) (list []EventMeta, err error) {
	for {
		q := projector.ProgressQuery{Session: h.session.ID(), Run: shape.RunRef(run), After: after}
		if limit > 0 {
			q.Limit = limit - len(list)
		}
		rows, err := h.st.Progress(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			m, ok, err := h.metaAt(ctx, row)
			if err != nil {
				return nil, err
			}
			if after = row.Offset; ok {
				list = append(list, m)
			}
		}
		if q.Limit == 0 || len(rows) < q.Limit || len(list) == limit {
			return list, nil
		}
	}
}

// metaAt returns an event's metadata from a row of the catalog, or if the row is incomplete from its record. It returns
// false if the record is not an event.
func (h *Handle) metaAt(ctx context.Context, row projector.Progress) (EventMeta, bool, error) {
	if m, ok := plainMeta(row); ok {
		return m, true, nil
	}
	p, err := h.payload(ctx, row.Offset)
	if err != nil {
		return EventMeta{}, false, err
	}
	_, raw, _ := shape.RawOf(p)
	m, ok := metaOf(raw, row.Offset)
	return m, ok, nil
}

// EventList lists the events of a run by step, and within a step in the order of recording. It lists them from the
// catalog without reading them, and includes everything acknowledged before the call. Without a catalog, as on a server
// that others run, a handle's first call reads the whole job, about 20 ms per thousand records, and later calls read
// new records.
func (h *Handle) EventList(ctx context.Context, run string) ([]EventMeta, error) {
	list, err := h.metas(ctx, run, 0, 0)
	slices.SortStableFunc(list, func(a, b EventMeta) int { return cmp.Compare(a.StepNumber, b.StepNumber) })
	return list, err
}

// EventPage lists at most limit events of a run, or 0 for all, in the order of recording, after an offset: 0, or the
// last one of the previous page. It costs as much as EventList for the events that it lists.
func (h *Handle) EventPage(ctx context.Context, run string, after events.Offset, limit int) ([]EventMeta, error) {
	return h.metas(ctx, run, after, limit)
}

// AllSteps as the last step of Events selects all steps.
const AllSteps = int64(-1)

// Events returns the events of a run up to a step, AllSteps for all, sorted by time, and within a millisecond in the
// order of recording.
func (h *Handle) Events(ctx context.Context, run string, upto int64) ([]Event, error) {
	list, err := h.metas(ctx, run, 0, 0)
	if err != nil {
		return nil, err
	}
	f := &filler{h: h}
	var all []Event
	for _, m := range list {
		if upto >= 0 && m.StepNumber > upto {
			continue
		}
		raw, err := f.rawAt(ctx, m.Offset)
		if err != nil {
			return nil, err
		}
		if e, err := ParseEvent(raw); err == nil { // else it is not an event
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
	return all, nil
}

// EventBytes returns the event or checkpoint in the record at an offset, as it was stored.
func (h *Handle) EventBytes(ctx context.Context, at events.Offset) (events.Raw, error) {
	rec, err := h.record(ctx, at)
	if err != nil {
		return nil, err
	}
	if rec.Subject != h.session.Subject() {
		return nil, notFound("%s has no record %v", h.session.Subject(), at)
	}
	return (&filler{h: h}).raw(ctx, rec)
}
