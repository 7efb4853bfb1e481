package perstack

import (
	"context"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// Record stores an event. The same event is not stored again; different events of the same millisecond are both stored.
// With an event that ends a step, Record also stores the step's usage, once. Pieces of streamed text are stored by the
// handle's options: a held piece is stored with a later one, within 250 ms, and its ack is empty.
func (h *Handle) Record(ctx context.Context, e Event) (log.Ack, error) {
	raw, err := e.Raw()
	if err != nil {
		return log.Ack{}, err
	}
	return h.RecordRaw(ctx, raw)
}

// RecordRaw is Record with an event as JSON, byte for byte.
func (h *Handle) RecordRaw(ctx context.Context, raw events.Raw) (log.Ack, error) {
	e, err := shape.ParseEvent(raw)
	if err == nil {
		err = h.belongs("event", e.Job)
	}
	if err != nil {
		return log.Ack{}, err
	}
	if _, part := shape.PartOf(e.Type); part == shape.DeltaPart && h.options.Deltas != KeepDeltas {
		return h.hold(ctx, e)
	}
	if h.options.Deltas == SampleDeltas {
		if err := h.flushRun(ctx, e.Run); err != nil {
			return log.Ack{}, err
		}
	}
	return h.recordOne(ctx, e)
}

// recordOne stores one event, and the usage of the step that it ends.
func (h *Handle) recordOne(ctx context.Context, e shape.Event) (log.Ack, error) {
	return h.save(ctx, saving{run: e.Run, raw: e.Raw, steps: func(w *writer, raw events.Raw, lists events.Lists) []step {
		list := []step{{payload: e.Payload(raw, lists), source: shape.Source, id: e.EventID(), event: events.Event{Time: e.At()}}}
		if p, id, ok := e.Cost(w.models[e.Run]); ok {
			list = append(list, step{payload: p, source: shape.Source, id: id, event: events.Event{Time: e.At()}})
		}
		return list
	}})
}
