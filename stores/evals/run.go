package evals

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/filename"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/evals/internal/steps"
)

// RunType is the type of a run of a conversation.
type RunType string

// The two types. An id is unique within a type.
const (
	TallyRun      RunType = steps.KindTally      // an evaluation
	TrajectoryRun RunType = steps.KindTrajectory // a simulation
)

// runTypes is the order in which runs are listed and searched.
var runTypes = []RunType{TallyRun, TrajectoryRun}

// Run is a handle on a run of a conversation. It is cheap and does no I/O until a method is called.
type Run struct {
	c      *Conversation
	ref    events.RunRef
	judged events.Offset // revision that the result judges; 0: the head when the result is saved
}

// Run returns a handle on a run, which need not exist.
func (c *Conversation) Run(t RunType, id string) *Run {
	return &Run{c: c, ref: events.RunRef{Kind: string(t), ID: id}}
}

// ID returns the run's id.
func (r *Run) ID() string { return r.ref.ID }

// Type returns the run's type.
func (r *Run) Type() RunType { return RunType(r.ref.Kind) }

// Conversation returns the run's conversation.
func (r *Run) Conversation() *Conversation { return r.c }

// Path returns the file of the run below the base of the layout .tally.
func (r *Run) Path() string {
	return r.c.Path() + "/runs/" + r.ref.Kind + "/" + filename.Of(r.ref.ID) + ".json"
}

// Timestamp returns the time in the run's id, between the first and the second dash, and whether there is one.
func (r *Run) Timestamp() (time.Time, bool) { return timestampOfRun(r.ref.ID) }

// ListRuns returns the runs with a result. Evaluations come first; each type is sorted by the time in the id, then by
// the id. Ids without a time come last.
func (c *Conversation) ListRuns(ctx context.Context) ([]*Run, error) {
	return c.runs(ctx, func(r *projector.Run) bool { return r.Last() != nil })
}

// PendingRuns returns the runs without a result yet, in the order of ListRuns.
func (c *Conversation) PendingRuns(ctx context.Context) ([]*Run, error) {
	return c.runs(ctx, func(r *projector.Run) bool { return r.Last() == nil })
}

func (c *Conversation) runs(ctx context.Context, want func(*projector.Run) bool) ([]*Run, error) {
	o, err := c.head(ctx)
	if err != nil {
		return nil, err
	}
	var list []*Run
	for _, r := range o.Ledger().Runs {
		if t := RunType(r.Kind); slices.Contains(runTypes, t) && want(r) {
			list = append(list, c.Run(t, r.ID))
		}
	}
	slices.SortFunc(list, compareRuns)
	return list, nil
}

func compareRuns(a, b *Run) int {
	// tally precedes trajectory in the alphabet, too
	return cmp.Or(cmp.Compare(a.Type(), b.Type()), compareTimes(a, b, 1), cmp.Compare(a.ID(), b.ID()))
}

// compareTimes compares the times in the ids, forwards or (-1) backwards. An id without a time comes last.
func compareTimes(a, b *Run, direction int) int {
	at, aOK := a.Timestamp()
	bt, bOK := b.Timestamp()
	switch {
	case aOK && !bOK:
		return -1
	case !aOK && bOK:
		return 1
	}
	return direction * at.Compare(bt)
}

// GetRun returns a run with a result by its id, and whether it exists. It prefers an evaluation to a simulation of
// the same id.
func (c *Conversation) GetRun(ctx context.Context, id string) (*Run, bool, error) {
	o, err := c.head(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, t := range runTypes {
		r := c.Run(t, id)
		if have := o.Ledger().Run(r.ref); have != nil && have.Last() != nil {
			return r, true, nil
		}
	}
	return nil, false, nil
}

// CreateRun announces a run. For the id "" it makes one of the form run-<ms>-<random>. The id is taken from then on,
// and PendingRuns lists the run; ListRuns and GetRun return it once it has a result. If the run exists, it is
// returned as it is.
func (c *Conversation) CreateRun(ctx context.Context, t RunType, id string) (*Run, error) {
	if !slices.Contains(runTypes, t) {
		return nil, &events.InvalidError{Field: "type", Reason: fmt.Sprintf("%q: want tally or trajectory", string(t))}
	}
	var r *Run
	_, err := c.update(ctx, []string{events.TypeRunCreated}, func(o *projector.Outline) (events.Payload, error) {
		now := events.TimestampOf(c.s.Store().Now())
		if r = c.Run(t, id); id == "" {
			r = c.newRun(o.Ledger(), t, now)
		}
		if o.Ledger().Run(r.ref) != nil {
			return nil, nil
		}
		return &events.RunCreated{Run: r.ref, CreatedAt: now}, nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// newRun returns a run with an unused id.
func (c *Conversation) newRun(l *projector.Ledger, t RunType, now events.Timestamp) *Run {
	for {
		at, _ := now.Time()
		id := NewRunID(at)
		if !slices.ContainsFunc(runTypes, func(other RunType) bool { return l.Run(c.Run(other, id).ref) != nil }) {
			return c.Run(t, id)
		}
	}
}

// Judging returns the same run with the revision of the conversation that its result judges: the Revision of the
// judged Data. Without it, a result is assumed to judge the head when it is saved.
func (r *Run) Judging(revision events.Offset) *Run {
	return &Run{c: r.c, ref: r.ref, judged: revision}
}

// SavedRun is the result of saving a result.
type SavedRun struct {
	Change  Change // NoChange: it equals the newest version
	Version int    // from 1
	Ack     log.Ack
}

// Save records a result with its bytes. The result of an evaluation is an Artifact or a Report and must fit the
// schema: else the error is *events.InvalidError with the path, and nothing is written. The result of a simulation is
// any object. If the run has a result, Save adds a new version; older ones stay readable. Save also records which
// steps the result judges.
func (r *Run) Save(ctx context.Context, result events.Raw) (SavedRun, error) {
	if err := checkResult(r.Type(), result); err != nil {
		return SavedRun{}, err
	}
	var done SavedRun
	ack, err := r.c.update(ctx, []string{events.TypeRunFinished}, func(o *projector.Outline) (p events.Payload, err error) {
		s, err := o.Session(ctx)
		if err != nil {
			return nil, err
		}
		done, p, err = r.plan(ctx, s, result)
		return p, err
	})
	if err != nil {
		return SavedRun{}, err
	}
	done.Ack = ack
	return done, nil
}

// plan returns the outcome of saving a result, and the event to append: nil if the result equals the newest version.
func (r *Run) plan(ctx context.Context, s *projector.Session, result events.Raw) (SavedRun, events.Payload, error) {
	judged, err := r.judgedAt(ctx, s)
	if err != nil {
		return SavedRun{}, nil, err
	}
	done := SavedRun{Version: 1, Change: Extension}
	if have := s.Ledger.Run(r.ref); have != nil && have.Last() != nil {
		newest, err := r.finished(ctx, have.Last().Offset)
		if _, isErased := errors.AsType[*events.ErasedError](err); err != nil && !isErased {
			return SavedRun{}, nil, err
		}
		if err == nil && equalRaw(newest.Result, result) && sameThreads(newest.Judged, judged) {
			return SavedRun{Version: len(have.Results)}, nil, nil
		}
		done = SavedRun{Version: len(have.Results) + 1, Change: Replacement}
	}
	p := &events.RunFinished{Run: r.ref, Result: result, Judged: judged}
	members, _ := rawjson.Object(result) // it need not be an object
	p.Outcome, p.FinishedAt = steps.Outcome(r.ref.Kind, members)
	return done, p, nil
}

// AddCost records a cost of the run, as [tally.Session.AddCost] does. The run need not have a result.
func (r *Run) AddCost(ctx context.Context, cost tally.Cost) (log.Ack, error) {
	cost.Run = r.ref
	return r.c.s.AddCost(ctx, cost)
}

// RunVersion is one result of a run. Load returns the newest.
type RunVersion struct {
	Version    int // from 1, oldest first
	At         events.Offset
	Outcome    string
	FinishedAt events.Timestamp
	Judged     *events.Judged // nil: unknown
}

// Versions lists the results of a run, oldest first. If the run has none, the error is ErrNotFound.
func (r *Run) Versions(ctx context.Context) ([]RunVersion, error) {
	o, err := r.c.head(ctx)
	if err != nil {
		return nil, err
	}
	have := o.Ledger().Run(r.ref)
	if have == nil || have.Last() == nil {
		return nil, r.notFound()
	}
	list := make([]RunVersion, len(have.Results))
	for i, result := range have.Results {
		list[i] = RunVersion{i + 1, result.Offset, result.Outcome, result.FinishedAt, result.Judged}
	}
	return list, nil
}

func (r *Run) notFound() error {
	return fmt.Errorf("run %s of %s: %w", r.ref, r.c.s.Subject().Name(), tally.ErrNotFound)
}

// Raw returns the newest result byte for byte, without a check.
func (r *Run) Raw(ctx context.Context) (events.Raw, error) {
	return r.raw(ctx, 0)
}

func (r *Run) raw(ctx context.Context, version int) (events.Raw, error) {
	list, err := r.Versions(ctx)
	if err != nil {
		return nil, err
	}
	if version == 0 {
		version = len(list)
	}
	if version < 1 || version > len(list) {
		return nil, fmt.Errorf("version %d of %w", version, r.notFound())
	}
	p, err := r.finished(ctx, list[version-1].At)
	if err != nil {
		return nil, err
	}
	return p.Result, nil
}

// finished reads a record with a result.
func (r *Run) finished(ctx context.Context, at events.Offset) (*events.RunFinished, error) {
	st := r.c.s.Store()
	rec, err := st.Log.Record(ctx, at)
	if err != nil {
		return nil, err
	}
	if receipt := rec.Erased(); receipt != "" {
		return nil, fmt.Errorf("run %s of %s: %w", r.ref, r.c.s.Subject().Name(), &events.ErasedError{Offset: at, Receipt: receipt})
	}
	if rec, err = st.Loader().Whole(ctx, rec); err != nil {
		return nil, err
	}
	return events.DecodeAs[events.RunFinished](rec.Event)
}

// Load returns the newest result. The result of an evaluation must fit the schema, as in Save; Raw returns it in any
// case.
func (r *Run) Load(ctx context.Context) (*RunResult, error) { return r.LoadVersion(ctx, 0) }

// LoadVersion returns one version of the result, from 1; 0 is the newest.
func (r *Run) LoadVersion(ctx context.Context, version int) (*RunResult, error) {
	raw, err := r.raw(ctx, version)
	if err != nil {
		return nil, err
	}
	result := &RunResult{Type: r.Type(), Raw: bytes.Clone(raw)}
	if err := checkResult(r.Type(), raw); err != nil {
		return nil, fmt.Errorf("run %s of %s: %w", r.ref, r.c.s.Subject().Name(), err)
	}
	return result, nil
}
