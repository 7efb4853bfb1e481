package perstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// SaveCheckpoint stores a checkpoint. It replaces a checkpoint with the same id, which stays readable in the job's
// history. An unchanged checkpoint is not stored again. Members that are equal to the replaced version's keep their
// spelling.
func (h *Handle) SaveCheckpoint(ctx context.Context, c Checkpoint) (log.Ack, error) {
	raw, err := c.Raw()
	if err != nil {
		return log.Ack{}, err
	}
	return h.saveCheckpoint(ctx, raw, "", c.over)
}

// SaveCheckpointRaw is SaveCheckpoint with a checkpoint as JSON, byte for byte.
func (h *Handle) SaveCheckpointRaw(ctx context.Context, raw events.Raw) (log.Ack, error) {
	return h.saveCheckpoint(ctx, raw, "", nil)
}

// saveCheckpoint stores a checkpoint. parent is the checkpoint that it continues, or "". If over is not nil, it spells
// the checkpoint like the version that it replaces.
func (h *Handle) saveCheckpoint(ctx context.Context, raw events.Raw, parent string, over func(old events.Raw) (events.Raw, error)) (log.Ack, error) {
	c, err := shape.ParseCheckpoint(raw)
	if err == nil {
		err = h.belongs("checkpoint", c.Job)
	}
	if err != nil {
		return log.Ack{}, err
	}
	if parent != "" {
		c.Parent = parent
	}
	had, err := h.version(ctx, c)
	if err != nil {
		return log.Ack{}, err
	}
	if had != 0 {
		old, err := h.rawAt(ctx, nil, had)
		if err == nil && over != nil {
			if raw, err = over(old); err != nil {
				return log.Ack{}, err
			}
			c.Raw = raw
		}
		if err == nil && bytes.Equal(old, raw) {
			return log.Ack{First: had, Last: had, Duplicate: true, Durability: h.st.Log.Durability()}, nil
		}
	}
	ack, err := h.save(ctx, saving{run: c.Run, raw: raw, steps: func(w *writer, raw events.Raw, lists events.Lists) []step {
		return []step{{payload: c.Saved(raw, lists, w.calm), source: shape.Source, id: c.EventID(had)}}
	}})
	if err == nil {
		h.saved(c.ID, ack)
	}
	return ack, err
}

// version returns the offset of the newest version of a checkpoint that the handle knows, or 0.
func (h *Handle) version(ctx context.Context, c shape.Checkpoint) (events.Offset, error) {
	if _, err := h.lane(ctx, c.Run); err != nil { // which reads the session if necessary
		return 0, err
	}
	h.writer.mu.Lock()
	defer h.writer.mu.Unlock()
	return h.writer.versions[c.ID], nil
}

// saved notes a version of a checkpoint.
func (h *Handle) saved(id string, ack log.Ack) {
	h.writer.mu.Lock()
	defer h.writer.mu.Unlock()
	if ack.Last == 0 {
		h.writer.known = false // it is stored, at an unknown offset
		return
	}
	h.writer.versions[id] = max(h.writer.versions[id], ack.Last)
}

// Checkpoint returns a checkpoint by its id. If it does not exist, the error has the original's text and matches
// tally.ErrNotFound. If it violates the schema, the error is *events.InvalidError.
func (h *Handle) Checkpoint(ctx context.Context, id string) (Checkpoint, error) {
	raw, err := h.CheckpointBytes(ctx, id)
	if err != nil {
		return Checkpoint{}, err
	}
	return ParseCheckpoint(raw)
}

// CheckpointBytes returns a checkpoint as it was stored. If its content was erased, the error is an *events.ErasedError.
func (h *Handle) CheckpointBytes(ctx context.Context, id string) (events.Raw, error) {
	o, err := h.head(ctx)
	if err != nil {
		return nil, err
	}
	c := o.Ledger().Checkpoint(events.CheckpointStep, id)
	if c == nil || c.Cleared {
		return nil, notFound("checkpoint not found: %s", id)
	}
	rec, err := h.record(ctx, newestOf(c))
	if err != nil {
		return nil, err
	}
	if receipt := rec.Erased(); receipt != "" {
		return nil, &events.ErasedError{Offset: rec.Offset, Receipt: receipt}
	}
	return (&filler{h: h, o: o}).raw(ctx, rec)
}

func newestOf(c *projector.Checkpoint) events.Offset { return c.Saved[len(c.Saved)-1] }

// Checkpoints returns all checkpoints of the job, sorted by step, and within a step in the order in which they were
// first saved. It skips checkpoints that violate the schema.
func (h *Handle) Checkpoints(ctx context.Context) ([]Checkpoint, error) {
	o, err := h.head(ctx)
	if err != nil {
		return nil, err
	}
	var list []Checkpoint
	f := &filler{h: h, o: o}
	for _, c := range stepsOf(o.Ledger()) {
		raw, err := f.rawAt(ctx, newestOf(c))
		if err != nil {
			return nil, err
		}
		if parsed, err := ParseCheckpoint(raw); err == nil {
			list = append(list, parsed)
		}
	}
	return list, nil
}

// CheckpointInfo is a checkpoint in a list.
type CheckpointInfo struct {
	ID         string
	RunID      string
	Status     CheckpointStatus
	StepNumber int64
	Parent     string        // the checkpoint that it continues or delegates from, or ""
	Offset     events.Offset // of its newest version
}

// CheckpointList lists the checkpoints of the job as Checkpoints does, without reading them.
func (h *Handle) CheckpointList(ctx context.Context) ([]CheckpointInfo, error) {
	o, err := h.head(ctx)
	if err != nil {
		return nil, err
	}
	var list []CheckpointInfo
	for _, c := range stepsOf(o.Ledger()) {
		info := CheckpointInfo{ID: c.ID, Status: CheckpointStatus(c.Status), StepNumber: c.Step, Parent: c.Parent, Offset: newestOf(c)}
		if c.Run != nil {
			info.RunID = c.Run.ID
		}
		list = append(list, info)
	}
	return list, nil
}

// stepsOf returns the checkpoints of a job, sorted by step.
func stepsOf(l *projector.Ledger) []*projector.Checkpoint {
	var list []*projector.Checkpoint
	for _, c := range l.Checkpoints {
		if c.Kind == events.CheckpointStep && !c.Cleared {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b *projector.Checkpoint) int { return int(min(max(a.Step-b.Step, -1), 1)) })
	return list
}

// rawAt reads the whole value in a record of the job. o may be nil.
func (h *Handle) rawAt(ctx context.Context, o *projector.Outline, at events.Offset) (events.Raw, error) {
	return (&filler{h: h, o: o}).rawAt(ctx, at)
}

// filler reads whole values. It caches the threads that it reads.
type filler struct {
	h     *Handle
	o     *projector.Outline // as of the values' records or later; nil: opened when needed
	turns map[string][]events.Raw
}

func (f *filler) rawAt(ctx context.Context, at events.Offset) (events.Raw, error) {
	rec, err := f.h.record(ctx, at)
	if err != nil {
		return nil, err
	}
	return f.raw(ctx, rec)
}

// raw returns the whole value of a record with data.
func (f *filler) raw(ctx context.Context, rec events.Record) (events.Raw, error) {
	raw, lists, err := rawOf(rec)
	if err != nil || len(lists) == 0 {
		return raw, err
	}
	if f.o == nil {
		if f.o, err = f.h.head(ctx); err != nil {
			return nil, err
		}
	}
	for _, pieces := range lists {
		for _, p := range pieces {
			if !f.o.OnlyGrew(p.Thread) || p.To > f.o.Len(p.Thread) {
				return f.before(ctx, rec)
			}
		}
	}
	raw, err = lists.Fill(raw, f.h.st.MaxValue(), func(p events.Piece) ([]events.Raw, error) { return f.piece(ctx, rec.Offset, p) })
	return raw, projector.Unfilled(rec.Offset, err)
}

// before reads a value with the threads as of its record, because they were moved since.
func (f *filler) before(ctx context.Context, rec events.Record) (events.Raw, error) {
	whole, err := f.h.st.Loader().Whole(ctx, rec)
	if err != nil {
		return nil, err
	}
	raw, _, err := rawOf(whole)
	return raw, err
}

func (f *filler) piece(ctx context.Context, at events.Offset, p events.Piece) ([]events.Raw, error) {
	have := f.turns[p.Thread]
	if len(have) < p.To {
		turns, err := f.o.Turns(ctx, p.Thread, len(have), p.To)
		if err != nil {
			return nil, err
		}
		for _, t := range turns {
			have = append(have, t.Raw)
		}
		if f.turns == nil {
			f.turns = make(map[string][]events.Raw)
		}
		f.turns[p.Thread] = have
	}
	if len(have) < p.To || slices.ContainsFunc(have[p.From:p.To], func(raw events.Raw) bool { return raw == nil }) {
		return nil, &events.DamageError{Offset: at, Err: fmt.Errorf("the record refers to turns %d to %d of thread %q, which are missing", p.From, p.To, p.Thread)}
	}
	return have[p.From:p.To], nil
}

// rawOf returns the value of a checkpoint or an event in a record.
func rawOf(rec events.Record) (events.Raw, events.Lists, error) {
	f := projector.Decode(rec)
	if f.Invalid != nil {
		return nil, nil, &events.DamageError{Offset: rec.Offset, Err: f.Invalid}
	}
	if c, ok := f.Payload.(*events.CheckpointSaved); ok {
		return c.Raw, c.Lists, nil
	}
	if _, raw, lists := shape.RawOf(f.Payload); raw != nil {
		return raw, lists, nil
	}
	return nil, nil, &events.DamageError{Offset: rec.Offset, Err: errors.New("the record has neither a checkpoint nor an event")}
}
