package evals_test

import (
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/evals"
)

// A publication without an answer is repeated, and stored once.
func TestFaults(t *testing.T) {
	storetest.EachFault(t, func(t *testing.T, st *tally.Store, call storetest.Call) {
		ctx, c := t.Context(), evals.Of(st, "c")
		var data *evals.Data
		call("Create", 1, func() error { _, _, err := evals.Create(ctx, st, "c"); return err })
		call("Append, first", 1, func() error { _, err := c.Append(ctx, saidSteps("a")...); return err })
		call("Append", 1, func() error { _, err := c.Append(ctx, saidSteps("b", "c")...); return err })
		call("Save", 1, func() error {
			data = need(c.Load(ctx))
			data.Revision, data.Steps = 0, append(data.Steps, saidSteps("d")...)
			_, err := c.Save(ctx, data)
			return err
		})
		call("Save of a revision", 1, func() error { data.Steps = data.Steps[:2]; _, err := c.Save(ctx, data); return err })
		call("Save, equal", 0, func() error { _, err := c.Save(ctx, data); return err })
		call("SetMetadata", 1, func() error { _, err := c.SetMetadata(ctx, events.Raw(`{"a":1}`)); return err })
		call("CreateRun", 1, func() error { _, err := c.CreateRun(ctx, evals.TrajectoryRun, ""); return err })
		call("Run.Save", 1, func() error {
			_, err := c.Run(evals.TrajectoryRun, "r").Save(ctx, events.Raw(`{"completed":true}`))
			return err
		})
		call("SaveTrajectoryMeta", 1, func() error {
			_, err := c.SaveTrajectoryMetaRaw(ctx, events.Raw(`{"version":1,"trajectoryId":"t","createdAt":"2026-01-01T00:00:00Z","goal":"g","persona":{"description":"p"}}`))
			return err
		})
		call("SaveTrajectoryStepTraces", 1, func() error { _, err := c.SaveTrajectoryStepTraces(ctx, []evals.StepTrace{}); return err })
		call("Run.AddCost", 1, func() error {
			_, err := c.Run(evals.TrajectoryRun, "r").AddCost(ctx, tally.Cost{Model: "m", USD: "1"})
			return err
		})
		if costs := need(c.Session().Costs(ctx)); costs.Spent.Runs[events.RunRef{Kind: "trajectory", ID: "r"}].USD != "1" {
			t.Errorf("got %+v", costs)
		}
	})
}
