package perstack

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// index is where the events of a job are, as far as it was read.
type index struct {
	mu    sync.Mutex
	at    events.Offset
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

// catchUp reads what came since. The caller holds mu.
func (x *index) catchUp(ctx context.Context, h *Handle) error {
	for rec, err := range h.st.Log.Read(ctx, events.Range{Subject: h.session.Subject(), After: x.at}) {
		if _, damaged := errors.AsType[*events.DamageError](err); damaged {
			continue
		}
		if err == nil && isIndexed(rec.Type) {
			rec, err = projector.Resolve(ctx, h.st.Log, rec, h.st.MaxValue())
		}
		if err != nil {
			return err
		}
		if isIndexed(rec.Type) {
			x.add(rec)
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
func (x *index) add(rec events.Record) {
	switch p := projector.Decode(rec).Payload.(type) {
	case *events.CheckpointSaved:
		if p.Kind == events.CheckpointStep && p.Step >= x.behind {
			x.latest, x.behind = rec.Offset, p.Step
		}
		x.steps = max(x.steps, p.Step)
	case *events.CostAccrued:
		if used, err := decode[Usage]("usage", p.Raw, usageNumbers...); err == nil && p.Run != nil && p.Run.Kind == shape.RunKind {
			x.used, x.said = x.used.Plus(used), x.said+1
		}
	case events.Payload:
		x.addEvent(rec.Offset, p)
	}
}

// addEvent notes an event; what is none is left out.
func (x *index) addEvent(at events.Offset, p events.Payload) {
	_, raw, _ := shape.RawOf(p)
	e, err := shape.ParseEvent(raw)
	if err != nil {
		return
	}
	x.steps = max(x.steps, e.Step)
	if x.byRun == nil {
		x.byRun = make(map[string][]EventMeta)
	}
	x.byRun[e.Run] = append(x.byRun[e.Run], EventMeta{Timestamp: e.Timestamp, StepNumber: e.Step, Type: e.Type, Offset: at})
}

// EventList lists the events of a run by step; those of one step in the order in which they
// were recorded. The first call reads the job once, a later one what came since.
func (h *Handle) EventList(ctx context.Context, run string) ([]EventMeta, error) {
	list, err := h.index.events(ctx, h, run)
	slices.SortStableFunc(list, func(a, b EventMeta) int { return cmp.Compare(a.StepNumber, b.StepNumber) })
	return list, err
}

// AllSteps is the last step of Events: none.
const AllSteps = int64(-1)

// Events returns the events of a run up to a step, AllSteps for all, by their time; those of
// one millisecond in the order in which they were recorded.
func (h *Handle) Events(ctx context.Context, run string, upto int64) ([]Event, error) {
	list, err := h.index.events(ctx, h, run)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b EventMeta) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
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
		e, err := ParseEvent(raw)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
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
