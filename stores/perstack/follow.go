package perstack

import (
	"context"
	"errors"
	"iter"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// UpdateKind says what happened to a job.
type UpdateKind uint8

// What Follow yields.
const (
	EventRecorded   UpdateKind = iota // an event of a run
	CheckpointSaved                   // a checkpoint was stored, or another version of it
	JobSaved                          // the job was stored
	SettingSaved                      // a run's setting was stored, or its time was moved
)

func (k UpdateKind) String() string {
	return [...]string{"event recorded", "checkpoint saved", "job saved", "setting saved"}[k]
}

// Update is something that happened to a job. What it brings whole is read with
// [Handle.EventBytes] of its offset.
type Update struct {
	Kind       UpdateKind
	Offset     events.Offset
	Run        string
	Event      EventMeta      // of EventRecorded
	Delta      string         // the piece of text that the event brings; "": none
	Checkpoint CheckpointInfo // of CheckpointSaved
}

// Follow yields what happened to the job behind an offset, 0 for all, and then what happens,
// until ctx is done. A job that does not exist yet is waited for. What is damaged is an
// error, and the loop goes on if it is let to.
func (h *Handle) Follow(ctx context.Context, after events.Offset) iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		for rec, err := range h.session.Follow(ctx, after) {
			if err == nil {
				rec, err = projector.Resolve(ctx, h.st.Log, rec, h.st.MaxValue())
			}
			u, is := Update{Offset: rec.Offset}, true
			if err == nil {
				u, is = updateOf(rec)
			}
			if is && !yield(u, err) {
				return
			}
			if _, damaged := errors.AsType[*events.DamageError](err); err != nil && !damaged {
				return
			}
		}
	}
}

// updateOf says what a record is of, and whether it is of anything.
func updateOf(rec events.Record) (Update, bool) {
	u := Update{Offset: rec.Offset}
	switch p := projector.Decode(rec).Payload.(type) {
	case *events.SessionCreated:
		u.Kind = JobSaved
		return u, p.Raw != nil
	case *events.SessionUpdated:
		u.Kind = JobSaved
		return u, p.Raw != nil
	case *events.RunCreated:
		u.Kind, u.Run = SettingSaved, p.Run.ID
		return u, p.Run.Kind == shape.RunKind
	case *events.RunAnnotated:
		u.Kind, u.Run = SettingSaved, p.Run.ID
		return u, p.Run.Kind == shape.RunKind && p.TouchedAt != ""
	case *events.CheckpointSaved:
		u.Kind = CheckpointSaved
		u.Checkpoint = CheckpointInfo{ID: p.ID, Status: CheckpointStatus(p.Status), StepNumber: p.Step, Parent: p.Parent, Offset: rec.Offset}
		if p.Run != nil {
			u.Run, u.Checkpoint.RunID = p.Run.ID, p.Run.ID
		}
		return u, p.Kind == events.CheckpointStep
	case events.Payload:
		return eventUpdate(u, p)
	}
	return u, false
}

func eventUpdate(u Update, p events.Payload) (Update, bool) {
	_, raw, _ := shape.RawOf(p)
	e, err := shape.ParseEvent(raw)
	if err != nil {
		return u, false
	}
	u.Kind, u.Run = EventRecorded, e.Run
	u.Event = EventMeta{Timestamp: e.Timestamp, StepNumber: e.Step, Type: e.Type, Offset: u.Offset}
	if _, part := shape.PartOf(e.Type); part == shape.DeltaPart {
		u.Delta = shape.TextOf(raw, "delta")
	}
	return u, true
}

// Stream is a text that streamed in.
type Stream struct {
	Type       string // of the events that brought its pieces: streamReasoning, streamRunResult
	StepNumber int64
	Text       string
	Finished   bool          // it was completed; otherwise the text is what came before its producer stopped, or so far
	Offset     events.Offset // of the event that began it
}

// Streams returns the texts that streamed in a run, in order. One that nobody completed has
// what came of it, as far as the producer's options let it be kept.
func (h *Handle) Streams(ctx context.Context, run string) ([]Stream, error) {
	metas, err := h.metas(ctx, run, 0, 0)
	if err != nil {
		return nil, err
	}
	var list []Stream
	open := make(map[string]int) // by type: index of the one that is not finished
	for _, m := range metas {
		text, part := shape.PartOf(m.Type)
		if part == shape.NoPart {
			continue
		}
		raw, err := h.rawAt(ctx, nil, m.Offset)
		if err != nil {
			return nil, err
		}
		i, going := open[text]
		if !going || part == shape.StartPart {
			i = len(list)
			list = append(list, Stream{Type: text, StepNumber: m.StepNumber, Offset: m.Offset})
			open[text] = i
		}
		switch part {
		case shape.DeltaPart:
			list[i].Text += shape.TextOf(raw, "delta")
		case shape.CompletePart:
			list[i].Text, list[i].Finished = shape.TextOf(raw, "text"), true
			delete(open, text)
		}
	}
	return list, nil
}
