package evals

import (
	"bytes"
	"cmp"
	"context"
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

// RunType is what a run of a conversation is.
type RunType string

// The two types. An id can be taken once in each.
const (
	TallyRun      RunType = steps.KindTally      // an evaluation
	TrajectoryRun RunType = steps.KindTrajectory // a simulation
)

// runTypes is the order in which runs are listed and looked for.
var runTypes = []RunType{TallyRun, TrajectoryRun}

// Run is a handle on a run of a conversation. It is cheap and does no I/O until a
// method is called.
type Run struct {
	c      *Conversation
	ref    events.RunRef
	judged events.Offset // 0: what stands at head when the result is saved
}

// Run returns a handle on a run, whether it exists or not.
func (c *Conversation) Run(t RunType, id string) *Run {
	return &Run{c: c, ref: events.RunRef{Kind: string(t), ID: id}}
}

// ID is the run's id.
func (r *Run) ID() string { return r.ref.ID }

// Type is the run's type.
func (r *Run) Type() RunType { return RunType(r.ref.Kind) }

// Conversation is what the run belongs to.
func (r *Run) Conversation() *Conversation { return r.c }

// Path is the file of the run below the base of the layout .tally.
func (r *Run) Path() string {
	return r.c.Path() + "/runs/" + r.ref.Kind + "/" + filename.Of(r.ref.ID) + ".json"
}

// Timestamp is the time in the run's id, between the first dash and the second, and
// whether there is one.
func (r *Run) Timestamp() (time.Time, bool) { return timestampOfRun(r.ref.ID) }

// ListRuns returns the runs that have a result: evaluations first, each type by the
// time in the id and then by the id; ids without a time come last.
func (c *Conversation) ListRuns(ctx context.Context) ([]*Run, error) {
	return c.runs(ctx, func(r *projector.Run) bool { return r.Last() != nil })
}

// PendingRuns returns the runs that were created and have no result yet, in the order
// of ListRuns.
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
	// tally is before trajectory in the alphabet, too
	return cmp.Or(cmp.Compare(a.Type(), b.Type()), compareTimes(a, b, 1), cmp.Compare(a.ID(), b.ID()))
}

// compareTimes compares the times in the ids, forwards or (-1) backwards; an id without
// one comes last.
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

// GetRun finds a run that has a result by its id, and says whether there is one. An
// evaluation is found before a simulation of the same id.
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

// CreateRun announces a run; with the id "" it makes one as run-<ms>-<random>. The
// id is taken from then on and PendingRuns has the run; ListRuns and GetRun have it
// once a result is saved. A run that exists is returned as it is.
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

// newRun returns a run with an id that none has.
func (c *Conversation) newRun(l *projector.Ledger, t RunType, now events.Timestamp) *Run {
	for {
		at, _ := now.Time()
		id := NewRunID(at)
		if !slices.ContainsFunc(runTypes, func(other RunType) bool { return l.Run(c.Run(other, id).ref) != nil }) {
			return c.Run(t, id)
		}
	}
}

// Judging gives the same run with the revision of the conversation that its result
// is about: the Revision of the Data that was looked at. Without it a
// result is taken to be about what stands at head when it is saved.
func (r *Run) Judging(revision events.Offset) *Run {
	return &Run{c: r.c, ref: r.ref, judged: revision}
}

// SavedRun says what saving a result did.
type SavedRun struct {
	Change  Change // NoChange: the newest version is this one
	Version int    // from 1
	Ack     log.Ack
}

// Save records a result as it stands. The result of an evaluation is an Artifact or a
// Report and is held to its schema: what is wrong is *events.InvalidError naming the
// path, and nothing is written. That of a simulation is any object. A run that has a
// result gets another version; the older ones stay readable. With the result it is
// recorded which steps it is about.
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

// plan says what saving a result does, and what is to be appended for it: nil if the
// newest version is this one.
func (r *Run) plan(ctx context.Context, s *projector.Session, result events.Raw) (SavedRun, events.Payload, error) {
	judged, err := r.judgedAt(ctx, s)
	if err != nil {
		return SavedRun{}, nil, err
	}
	done := SavedRun{Version: 1, Change: Extension}
	if have := s.Ledger.Run(r.ref); have != nil && have.Last() != nil {
		newest, err := r.finished(ctx, have.Last().Offset)
		if err != nil {
			return SavedRun{}, nil, err
		}
		if equalRaw(newest.Result, result) && sameThreads(newest.Judged, judged) {
			return SavedRun{Version: len(have.Results)}, nil, nil
		}
		done = SavedRun{Version: len(have.Results) + 1, Change: Replacement}
	}
	p := &events.RunFinished{Run: r.ref, Result: result, Judged: judged}
	members, _ := rawjson.Object(result) // which it need not be
	p.Outcome, p.FinishedAt = steps.Outcome(r.ref.Kind, members)
	return done, p, nil
}

// AddCost records what was spent in the run, as [tally.Session.AddCost] does; the run need
// not have a result.
func (r *Run) AddCost(ctx context.Context, cost tally.Cost) (log.Ack, error) {
	cost.Run = r.ref
	return r.c.s.AddCost(ctx, cost)
}

// RunVersion is one result of a run. The newest is what Load returns.
type RunVersion struct {
	Version    int // from 1, oldest first
	At         events.Offset
	Outcome    string
	FinishedAt events.Timestamp
	Judged     *events.Judged // nil: not recorded
}

// Versions lists the results of a run, oldest first. A run without one is
// ErrNotFound.
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

// Raw returns the newest result byte for byte, whatever it is.
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

// finished reads a record that has a result.
func (r *Run) finished(ctx context.Context, at events.Offset) (*events.RunFinished, error) {
	st := r.c.s.Store()
	rec, err := st.Log.Record(ctx, at)
	if err != nil {
		return nil, err
	}
	if rec, err = st.Loader().Whole(ctx, rec); err != nil {
		return nil, err
	}
	return events.DecodeAs[events.RunFinished](rec.Event)
}

// Load returns the newest result. That of an evaluation is held to its schema, as by
// Save; Raw returns it in any case.
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
