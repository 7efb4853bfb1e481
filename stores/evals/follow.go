package evals

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// UpdateKind is the kind of a change of a conversation.
type UpdateKind uint8

// Kinds of updates.
const (
	StepsLoaded       UpdateKind = iota // all steps: at the beginning, and when they were replaced
	StepsAppended                       // new steps at the end
	RunAnnounced                        // a run was created
	RunSaved                            // a run has a new result
	TrajectoryChanged                   // the definition of the simulation was recorded
)

func (k UpdateKind) String() string {
	return [...]string{"steps loaded", "steps appended", "run announced", "run saved", "trajectory changed"}[k]
}

// Update is a change of a conversation.
type Update struct {
	Kind   UpdateKind
	Offset events.Offset // offset from which to follow on
	Steps  []Step        // all of them, or the new ones
	Run    *Run
}

// Follow yields the changes of the conversation, live and without gaps, until the loop ends or ctx is done. After 0
// it begins with the current steps; after the Offset of an update it continues from there. The conversation need not
// exist yet. An error is the last value.
func (c *Conversation) Follow(ctx context.Context, after events.Offset) iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		if after == 0 {
			first, err := c.now(ctx, 0)
			if err != nil {
				yield(Update{}, err)
				return
			}
			after = first.Offset
			if after > 0 && !yield(first, nil) {
				return
			}
		}
		for rec, err := range events.Readable(c.s.Store().Log.Follow(ctx, events.Range{Subject: c.s.Subject(), After: after})) { // a damaged record is skipped
			if err == nil {
				rec, err = projector.Resolve(ctx, c.s.Store().Log, rec, c.s.Store().MaxValue())
			}
			if err != nil {
				yield(Update{}, err)
				return
			}
			u, ok, err := c.updateOf(ctx, rec)
			if err != nil {
				yield(Update{}, err)
				return
			}
			if ok && !yield(u, nil) {
				return
			}
		}
	}
}

// now returns all steps at an offset, 0 for the head.
func (c *Conversation) now(ctx context.Context, at events.Offset) (Update, error) {
	s, err := c.s.Store().Loader().Session(ctx, c.s.Subject(), at)
	if errors.Is(err, tally.ErrNotFound) && at == 0 {
		return Update{}, nil
	}
	if err == nil {
		err = tally.CheckKind(s.Subject, s.Ledger, events.KindConversation)
	}
	if err != nil {
		return Update{}, err
	}
	u := Update{Kind: StepsLoaded, Offset: s.Offset()}
	d, err := decodeThread(s)
	if err == nil {
		u.Steps = d.c.Steps
	} else if errors.Is(err, ErrNoSteps) {
		err = nil
	}
	return u, err
}

// updateOf returns the update that a record makes. ok is false if it makes none.
func (c *Conversation) updateOf(ctx context.Context, rec events.Record) (u Update, ok bool, err error) {
	u.Offset = rec.Offset
	f := projector.Decode(rec)
	switch p := f.Payload.(type) {
	case *events.TurnAppended:
		if _, said := rec.Basis(); said || p.Pins != nil { // it may be stale or rejected: only its position decides
			s, err := c.s.Store().Loader().Session(ctx, c.s.Subject(), rec.Offset)
			if err != nil || !s.History.IsLive(rec.Offset) {
				return u, false, err
			}
		}
		u.Kind, u.Steps = StepsAppended, stepsOf(p)
		return u, len(u.Steps) > 0, nil
	case *events.ThreadReplaced:
		if _, ours := p.Threads[events.MainThread]; !ours && p.Others == "keep" {
			return u, false, nil
		}
		u, err = c.now(ctx, rec.Offset)
		return u, err == nil, err
	case *events.ThreadTruncated, *events.SessionRewound:
		u, err = c.now(ctx, rec.Offset)
		return u, err == nil, err
	case *events.RunCreated:
		return c.runUpdate(u, RunAnnounced, p.Run)
	case *events.RunFinished:
		return c.runUpdate(u, RunSaved, p.Run)
	case *events.SessionUpdated:
		_, set := p.Set.Get(fieldTrajectory)
		u.Kind = TrajectoryChanged
		return u, set, nil
	}
	return u, false, nil
}

func (c *Conversation) runUpdate(u Update, kind UpdateKind, ref events.RunRef) (Update, bool, error) {
	if !slices.Contains(runTypes, RunType(ref.Kind)) {
		return u, false, nil
	}
	u.Kind, u.Run = kind, c.Run(RunType(ref.Kind), ref.ID)
	return u, true, nil
}

// stepsOf returns the steps that an event appends.
func stepsOf(p *events.TurnAppended) []Step {
	var steps []Step
	for _, e := range p.Entries {
		if e.Thread != events.MainThread {
			continue
		}
		if s, err := ParseStep(e.Turn); err == nil {
			steps = append(steps, s)
		}
	}
	return steps
}
