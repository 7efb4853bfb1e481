package catalog

import (
	"context"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// runRow is a row of a run. Of the results it holds the newest.
type runRow struct {
	projector.Run
	versions, fenced int
	parent           events.Lineage // as far as it is stored
}

func (r *runRow) apply(f projector.Fact) {
	before := len(r.Results)
	r.Run.Apply(f)
	r.fenced += len(r.Fenced)
	r.Fenced = nil
	if r.Parent != nil {
		r.parent = *r.Parent
	}
	if more := len(r.Results) - before; more > 0 {
		r.versions += more
		r.Results = r.Results[len(r.Results)-1:]
	}
}

// applyRun folds an event that names a run. The first such event creates the run.
func (c *Catalog) applyRun(ctx context.Context, s *sessionRow, ref events.RunRef, f projector.Fact) error {
	r := s.runs[ref]
	if r == nil {
		r = &runRow{Run: projector.Run{Kind: ref.Kind, ID: ref.ID, At: f.Offset}}
		found := false
		if s.stored {
			var err error
			if found, err = c.loadRun(ctx, s, r); err != nil {
				return err
			}
		}
		if !found {
			s.Runs++
		}
		if s.runs == nil {
			s.runs = make(map[events.RunRef]*runRow)
		}
		s.runs[ref] = r
	}
	r.apply(f)
	if p, ok := projector.ProgressOf(f); ok {
		s.progress = append(s.progress, p)
		c.held += rowSize
	}
	return nil
}

func (c *Catalog) loadRun(ctx context.Context, s *sessionRow, r *runRow) (bool, error) {
	var last projector.Result
	found, err := c.find(ctx, "SELECT * FROM runs{set} WHERE session=? AND kind=? AND id=?", []any{s.key, r.Kind, r.ID}, r.columns(s, &last))
	if r.versions > 0 {
		r.Results = []projector.Result{last}
	}
	return found, err
}

func (c *Catalog) storeRun(ctx context.Context, s *sessionRow, r *runRow) error {
	var last projector.Result
	if l := r.Last(); l != nil {
		last = *l
	}
	return c.put(ctx, "runs", valuesOf(r.columns(s, &last))...)
}

// columns returns pointers to the stored columns of a run and its newest result.
func (r *runRow) columns(s *sessionRow, last *projector.Result) []any {
	return []any{&s.key, &r.Kind, &r.ID, offset(&r.At), offset(&r.Created), &r.CreatedAt, &r.TouchedAt, &r.State, &r.Starts, &r.Progress,
		&r.versions, &last.Outcome, &last.FinishedAt, offset(&last.Offset), &last.Size, &r.Note, &r.Selected, &r.Rating,
		&r.Owner, &r.DueAt, &r.Template, offset(&r.Setting), &r.parent.Session, &r.parent.Run, offset(&r.Claim), &r.Worker, &r.Attempt, &r.LeaseUntil, &r.fenced}
}

// costKey groups the costs of a session.
type costKey struct {
	day, model string
	run        events.RunRef // zero: no run
}

func newCostKey(day, model string, run *events.RunRef) costKey {
	k := costKey{day: day, model: model}
	if run != nil {
		k.run = *run
	}
	return k
}

// applyCost counts a cost. If the cost names a response, it is deferred, because other costs may name the response too.
func (c *Catalog) applyCost(ctx context.Context, s *sessionRow, cost projector.Cost) error {
	if events.IsUnique(cost.Response) {
		c.defers(s.subject, cost)
		return nil
	}
	return c.spend(ctx, s, newCostKey(cost.Day(), cost.Model, cost.Run), func(t projector.Total) projector.Total { return t.Plus(cost) })
}

// spend changes the total of a session and the sum of a key.
func (c *Catalog) spend(ctx context.Context, s *sessionRow, k costKey, change func(projector.Total) projector.Total) error {
	t := s.costs[k]
	if t == nil {
		t = &projector.Total{USD: "0"}
		if s.stored {
			row := k.columns(s, t)
			if _, err := c.find(ctx, "SELECT * FROM costs{set} WHERE session=? AND day=? AND model=? AND run_kind=? AND run_id=?", valuesOf(row[:costKeys]), row); err != nil {
				return err
			}
		}
		if s.costs == nil {
			s.costs = make(map[costKey]*projector.Total)
		}
		s.costs[k] = t
	}
	*t, s.Spent = change(*t), change(s.Spent)
	return nil
}

// storeCosts writes a sum. A sum of no costs has no row.
func (c *Catalog) storeCosts(ctx context.Context, s *sessionRow, k costKey, t *projector.Total) error {
	row := k.columns(s, t)
	if t.Events == 0 {
		return c.run(ctx, "DELETE FROM costs{set} WHERE session=? AND day=? AND model=? AND run_kind=? AND run_id=?", valuesOf(row[:costKeys])...)
	}
	return c.put(ctx, "costs", valuesOf(row)...)
}

// costKeys is the number of key columns of a cost.
const costKeys = 5

// columns returns pointers to the stored columns of a sum.
func (k costKey) columns(s *sessionRow, t *projector.Total) []any {
	return append([]any{&s.key, &k.day, &k.model, &k.run.Kind, &k.run.ID}, totalColumns(t)...)
}
