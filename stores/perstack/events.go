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

// index is where the events of a job are, as far as it was read.
type index struct {
	mu    sync.Mutex
	at    events.Offset          // 0: it was not
	byRun map[string][]EventMeta // in the order of the log

	steps  int64         // the largest number of one
	used   Usage         // by the steps that said it
	said   int           // how many those are
	latest events.Offset // of the checkpoint of the largest step, of several the last
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

// isRead reports whether the job was read, so that what came since is all there is to read.
func (x *index) isRead() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.at != 0
}

// catchUp reads what came since. The caller holds mu.
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

// add notes what a record says of the job.
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

// addEvent notes an event; what is none is left out.
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

// plainMeta returns what a row of the catalog says of an event as its file's name would. It
// is false if that may not be all: what starts or ends a run has no step, some times have no
// spelling, and what calls itself otherwise than its kind may be no event.
func plainMeta(p projector.Progress) (EventMeta, bool) {
	at, ok := p.At.Time()
	m := EventMeta{Timestamp: at.UnixMilli(), StepNumber: p.Step, Type: p.Kind, Offset: p.Offset}
	return m, ok && m.Timestamp < shape.LastTime && p.Name == p.Kind && p.Kind != projector.ProgressStarted && p.Kind != projector.ProgressFinished
}

// metaOf returns what an event says of itself, false if it is none.
func metaOf(raw events.Raw, at events.Offset) (EventMeta, bool) {
	e, err := shape.ParseEvent(raw)
	return EventMeta{Timestamp: e.Timestamp, StepNumber: e.Step, Type: e.Type, Offset: at}, err == nil
}

// metas returns events of a run in the order of the log, behind an offset and at most limit,
// 0 for all. A job that was read is read on, of another one the catalog lists them.
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

// listedMetas are metas as the catalog has them.
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

// metaAt returns what a row of the catalog says of an event, or where that is not all its
// record; false if it is none.
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

// EventList lists the events of a run by step; those of one step in the order in which they
// were recorded. It does not read them: the catalog lists them, and shows everything that is
// acknowledged when it is called. Where there is no catalog, as on a server that others run,
// the first call of a handle reads the whole job once, about 20 ms for each thousand records,
// and a later one what came since.
func (h *Handle) EventList(ctx context.Context, run string) ([]EventMeta, error) {
	list, err := h.metas(ctx, run, 0, 0)
	slices.SortStableFunc(list, func(a, b EventMeta) int { return cmp.Compare(a.StepNumber, b.StepNumber) })
	return list, err
}

// EventPage lists events of a run in the order in which they were recorded: at most limit of
// them, 0 for all, that came behind an offset, 0 or that of the last one of the page before.
// It costs what EventList does, but for what it does not list.
func (h *Handle) EventPage(ctx context.Context, run string, after events.Offset, limit int) ([]EventMeta, error) {
	return h.metas(ctx, run, after, limit)
}

// AllSteps is the last step of Events: none.
const AllSteps = int64(-1)

// Events returns the events of a run up to a step, AllSteps for all, by their time; those of
// one millisecond in the order in which they were recorded.
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
		if e, err := ParseEvent(raw); err == nil { // else it is none
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
	return all, nil
}

// EventBytes returns the event, or the checkpoint, that the record at an offset has, as it
// stands.
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
