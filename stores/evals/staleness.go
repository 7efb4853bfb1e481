package evals

import (
	"context"
	"errors"
	"maps"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// Staleness compares the steps that a result judged with the current ones.
type Staleness uint8

// Results of Stale.
const (
	NotKnown Staleness = iota // the judged steps are unknown
	Fresh                     // the steps are those that were judged
	Stale                     // the steps have changed
)

func (s Staleness) String() string {
	switch s {
	case Fresh:
		return "fresh"
	case Stale:
		return "stale"
	}
	return "not known"
}

// Stale reports whether the newest result judged the current steps. It compares their content: a rewind that was
// undone leaves a result fresh. An imported result does not record its steps. If it has a stepCount that differs, it
// is stale; else the answer is NotKnown.
func (r *Run) Stale(ctx context.Context) (Staleness, error) {
	s, err := r.c.full(ctx)
	if err != nil {
		return NotKnown, err
	}
	have := s.Ledger.Run(r.ref)
	if have == nil || have.Last() == nil {
		return NotKnown, r.notFound()
	}
	switch judged := have.Last().Judged; {
	case judged != nil && sameThreads(judged, judgedOf(s)):
		return Fresh, nil
	case judged != nil:
		return Stale, nil
	}
	p, err := r.finished(ctx, have.Last().Offset)
	if _, isErased := errors.AsType[*events.ErasedError](err); isErased {
		return NotKnown, nil
	}
	if err != nil {
		return NotKnown, err
	}
	if n, ok := stepCount(p.Result); ok && n != len(s.Threads.Turns(events.MainThread)) {
		return Stale, nil
	}
	return NotKnown, nil
}

// judgedAt returns the steps that a result judges: those of the handle's revision, or of the head.
func (r *Run) judgedAt(ctx context.Context, head *projector.Session) (*events.Judged, error) {
	if r.judged == 0 || r.judged == head.Offset() {
		return judgedOf(head), nil
	}
	s, err := r.c.loaded(ctx, r.judged.String())
	if errors.Is(err, tally.ErrNotFound) || r.judged > head.Offset() {
		return nil, &events.InvalidError{Field: "judged.offset", Reason: "the conversation has no revision " + r.judged.String()}
	}
	if err != nil {
		return nil, err
	}
	return judgedOf(s), nil
}

// judgedOf describes the steps of a session.
func judgedOf(s *projector.Session) *events.Judged {
	j := &events.Judged{Offset: s.Offset(), Threads: map[string]events.JudgedThread{}}
	if th := s.Threads[events.MainThread]; th != nil {
		j.Threads[events.MainThread] = events.JudgedThread{Length: len(th.Turns), Hash: th.Hash()}
	}
	return j
}

// sameThreads reports whether two results judge the same steps.
func sameThreads(a, b *events.Judged) bool {
	return a != nil && b != nil && maps.Equal(a.Threads, b.Threads)
}

// stepCount returns the number of steps of an evaluation.
func stepCount(result events.Raw) (int, bool) {
	var seen struct {
		Result *struct {
			StepCount *int `json:"stepCount"`
		} `json:"result"`
	}
	if err := rawjson.Unmarshal(result, &seen); err != nil || seen.Result == nil || seen.Result.StepCount == nil {
		return 0, false
	}
	return *seen.Result.StepCount, true
}
