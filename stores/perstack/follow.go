package perstack

import (
	"context"
	"errors"
	"iter"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// UpdateKind is the kind of a change of a job.
type UpdateKind uint8

// Kinds of changes that Follow yields.
const (
	EventRecorded   UpdateKind = iota // an event of a run
	CheckpointSaved                   // a checkpoint was stored, or another version of it
	JobSaved                          // the job was stored
	SettingSaved                      // a run's setting was stored, or its time was moved
)

func (k UpdateKind) String() string {
	return [...]string{"event recorded", "checkpoint saved", "job saved", "setting saved"}[k]
}

// Update is a change of a job. [Handle.EventBytes] of its offset returns the whole value.
type Update struct {
	Kind       UpdateKind
	Offset     events.Offset
	Run        string
	Event      EventMeta      // of EventRecorded
	Delta      string         // piece of text in the event, or ""
	Checkpoint CheckpointInfo // of CheckpointSaved
}

// Follow yields the changes of the job after an offset, 0 for all, and then new ones until ctx is done. If the job does
// not exist yet, Follow waits for it. For a damaged record it yields an error and goes on.
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

// updateOf returns the change in a record, or false if the record is not one.
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

// Stream is a streamed text.
type Stream struct {
	Type       string // type of the events with its pieces: streamReasoning, streamRunResult
	StepNumber int64
	Text       string
	Finished   bool          // it was completed; otherwise Text is as far as its pieces were stored
	Offset     events.Offset // of the event that began it
}

// Streams returns the streamed texts of a run, in order. A text that was not completed has the pieces that the
// producer's options kept.
func (h *Handle) Streams(ctx context.Context, run string) ([]Stream, error) {
	metas, err := h.metas(ctx, run, 0, 0)
	if err != nil {
		return nil, err
	}
	var list []Stream
	open := make(map[string]int) // type -> index of the unfinished stream
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
