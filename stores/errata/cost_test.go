package errata_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
	"github.com/tallylog/tally/stores/errata"
)

func TestPanelCost(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		t.Run("E-24 sums per model and in total, exactly", func(t *testing.T) {
			s := errata.Of(st, "e24")
			must(t, s.AccumulateCost(t.Context(), tally.Cost{Model: "a", USD: "0.1", Tokens: &events.Tokens{Input: 1, CacheRead: 2}}))
			must(t, s.AccumulateCost(t.Context(), tally.Cost{Model: "a", USD: "0.2", Tokens: &events.Tokens{Input: 10, Output: 5, Reasoning: 5}}))
			must(t, s.AccumulateCost(t.Context(), tally.Cost{Model: "b", USD: "1", Purpose: "compaction"}))
			per, err := errata.Of(st, "e24").CostPerModel(t.Context())
			must(t, err)
			wantEqual(t, "per model", per, map[string]events.Amount{"a": "0.3", "b": "1"})
			costs, err := s.Costs(t.Context())
			must(t, err)
			if total := costs.Spent.Total; total.USD != "1.3" || total.Tokens != (events.Tokens{Input: 11, Output: 5, Reasoning: 5, CacheRead: 2}) || total.Tokens.Total() != 18 {
				t.Errorf("the total is %+v", total)
			}
		})
		t.Run("E-24 not counted twice", func(t *testing.T) {
			s := errata.Of(st, "e24b")
			for range 3 {
				must(t, errata.Of(st, "e24b").AccumulateCost(t.Context(), tally.Cost{Model: "a", USD: "0.1", Run: events.RunRef{ID: "r"}}))
			}
			must(t, s.AccumulateCost(t.Context(), tally.Cost{Model: "a", USD: "0.2", Run: events.RunRef{ID: "r"}, Part: "retry"}))
			if total, err := s.TotalCost(t.Context()); err != nil || total != "0.3" {
				t.Errorf("the total is %v, error %v", total, err)
			}
			err := s.AccumulateCost(t.Context(), tally.Cost{Model: "a", USD: "0.7", Run: events.RunRef{ID: "r"}})
			if _, ok := errors.AsType[*events.InvalidError](err); !ok {
				t.Errorf("add another amount for the same cost: %v", err)
			}
		})
		t.Run("spent, and on this branch; a fork spends for itself", func(t *testing.T) {
			s := errata.Of(st, "branch")
			playRun(t, s, "q1", 0)
			must(t, s.AccumulateCost(t.Context(), tally.Cost{Model: "a", USD: "0.1"}))
			playRun(t, s, "q2", 0)
			must(t, s.AccumulateCost(t.Context(), tally.Cost{Model: "a", USD: "0.02"}))
			fork, _, err := s.Fork(t.Context(), "head", "fork")
			must(t, err)
			mustRewind(t, s, errata.WorkTree{})
			costs, err := s.Costs(t.Context())
			if err != nil || costs.Spent.Total.USD != "0.12" || costs.OnBranch.Total.USD != "0.1" {
				t.Errorf("the costs are %+v, error %v", costs, err)
			}
			if total, err := errata.Of(st, fork.ID()).TotalCost(t.Context()); err != nil || total != "0" {
				t.Errorf("the fork costs %v, error %v", total, err)
			}
			_, err = s.UndoRewind(t.Context(), errata.WorkTree{})
			must(t, err)
			if costs, err = s.Costs(t.Context()); err != nil || costs.OnBranch.Total.USD != "0.12" {
				t.Errorf("the costs are %+v, error %v", costs, err)
			}
		})
		t.Run("what cannot be is refused", func(t *testing.T) {
			s := errata.Of(st, "wrong")
			for name, c := range map[string]tally.Cost{"negative": {Model: "a", USD: "-1"}, "no number": {Model: "a", USD: "NaN"}, "no model": {USD: "1"}, "exponent": {Model: "a", USD: "1e3"},
				"negative tokens": {Model: "a", Tokens: &events.Tokens{Input: -1}}, "overflow": {Model: "a", Tokens: &events.Tokens{Output: 1 << 60}}, "reasoning": {Model: "a", Tokens: &events.Tokens{Output: 1, Reasoning: 2}}} {
				if _, ok := errors.AsType[*events.InvalidError](s.AccumulateCost(t.Context(), c)); !ok {
					t.Errorf("the name %s was accepted", name)
				}
			}
			for _, v := range []float64{-1, math.NaN(), math.Inf(1), math.MaxFloat64} {
				if _, err := errata.USD(v); err == nil {
					t.Errorf("the value %v was accepted", v)
				}
			}
			for v, want := range map[float64]events.Amount{0: "0", 0.1: "0.1", 1e-7: "0.0000001", 12.5: "12.5", math.Copysign(0, -1): "0"} {
				if a, err := errata.USD(v); err != nil || a != want {
					t.Errorf("the amount of %v is %v, error %v", v, a, err)
				}
			}
		})
	})
}

// randomCosts draws costs of three models and returns their decimal sums.
func randomCosts(n int) (list []*events.CostAccrued, sum *big.Rat, models map[string]*big.Rat) {
	random := rand.New(rand.NewPCG(1, 2))
	sum, models = new(big.Rat), map[string]*big.Rat{"a": new(big.Rat), "b": new(big.Rat), "c": new(big.Rat)}
	for range n {
		model := []string{"a", "b", "c"}[random.IntN(3)]
		usd := events.Amount(fmt.Sprintf("%d.%0*d", random.IntN(100), 1+random.IntN(18), random.IntN(1_000_000)))
		sum.Add(sum, mustRat(usd))
		models[model].Add(models[model], mustRat(usd))
		list = append(list, &events.CostAccrued{Model: model, USD: usd, Purpose: "run", Source: "reported"})
	}
	return list, sum, models
}

func wantCosts(t *testing.T, when string, costs tally.Costs, sum *big.Rat, models map[string]*big.Rat) {
	t.Helper()
	if costs.Spent.Total.USD != events.AmountOf(sum) {
		t.Errorf("%s: the total is %s, want %s", when, costs.Spent.Total.USD, events.AmountOf(sum))
	}
	for model, want := range models {
		if have := costs.Spent.Models[model].USD; have != events.AmountOf(want) {
			t.Errorf("%s: got %s of %s, want %s", when, have, model, events.AmountOf(want))
		}
	}
}

// The total of 100,000 amounts is their exact decimal sum, also after the state was stored.
func TestPanelCostOfMany(t *testing.T) {
	list, sum, models := randomCosts(testkit.Times(100_000))
	sub := events.Session("", "s")
	var records testkit.Records
	for i, p := range list {
		e, err := events.New("test", sub, p)
		must(t, err)
		e.ID = fmt.Sprint(i)
		records = append(records, events.Record{Event: e, Offset: events.Offset(i + 1)})
	}
	l := &projector.Loader{Source: records, Snapshots: &snapshot.Mem{}}
	_, err := l.Keep(t.Context(), sub, 0, "")
	must(t, err)
	l.Source = records[len(records)-1:] // the other records are only in the snapshot
	stored, err := l.Session(t.Context(), sub, 0)
	must(t, err)
	costs, err := tally.CostsOf(stored)
	must(t, err)
	wantCosts(t, "all", costs, sum, models)
}

// No change of a session changes its costs.
func TestPanelCostStays(t *testing.T) {
	st := storetest.Open(t, "memory")
	s := errata.Of(st, "s")
	list, sum, models := randomCosts(1000)
	must(t, s.SaveInitialMeta(t.Context(), errata.Metadata{}))
	var batch []events.Event
	for _, p := range list {
		e, err := events.New("test", s.Subject(), p)
		must(t, err)
		batch = append(batch, st.Stamp(e))
	}
	check := func(when string) {
		t.Helper()
		costs, err := s.Costs(t.Context())
		must(t, err)
		wantCosts(t, when, costs, sum, models)
	}
	for range 2 {
		_, err := st.Log.Append(t.Context(), s.Subject(), log.Any, batch...)
		must(t, err)
		check("after appending")
	}
	playRun(t, s, "q", 0)
	mustRewind(t, s, errata.WorkTree{})
	_, _, err := s.Fork(t.Context(), "head", "fork")
	must(t, err)
	check("after a rewind and a fork")
	least := events.Amount("0.000000000000000001")
	sum.Add(sum, mustRat(least))
	models["a"].Add(models["a"], mustRat(least))
	for range 3 {
		must(t, s.AccumulateCost(t.Context(), tally.Cost{Model: "a", USD: least, Run: events.RunRef{ID: "r"}}))
	}
	check("after a repeated cost")
	rebuilt, err := (&projector.Loader{Source: st.Log}).Session(t.Context(), s.Subject(), 0)
	must(t, err)
	costs, err := tally.CostsOf(rebuilt)
	must(t, err)
	wantCosts(t, "rebuilt", costs, sum, models)
}

func mustRat(text events.Amount) *big.Rat {
	v, ok := text.Rat()
	if !ok {
		panic(text)
	}
	return v
}

// A sum of tokens that is too large is an error, not a negative number.
func TestPanelTokensOverflow(t *testing.T) {
	head := projector.NewSession(events.Session("", "s"))
	for range 2000 {
		head.Ledger.Costs = append(head.Ledger.Costs, projector.Cost{Model: "a", Tokens: events.Tokens{Input: 1 << 53}})
	}
	if _, err := tally.CostsOf(head); !errors.Is(err, tally.ErrOverflow) {
		t.Errorf("got the error %v", err)
	}
}

func TestPanelCheckpoint(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		load := func(t *testing.T, id string) *errata.Checkpoint {
			t.Helper()
			c, err := errata.Of(st, id).LoadCheckpoint(t.Context())
			must(t, err)
			return c
		}
		t.Run("E-25 missing, corrupt, cleared", func(t *testing.T) {
			s := errata.Of(st, "e25")
			if c := load(t, "e25"); c != nil {
				t.Errorf("got %+v", c)
			}
			must(t, s.ClearCheckpoint(t.Context()))
			saver := s.SaveCheckpoint("", "q", []string{"a"}, true)
			must(t, saver.Update(t.Context(), answer("a", "half")))
			if c := load(t, "e25"); c == nil || c.Prompt != "q" || !c.Verbose || c.Run != saver.Run() || c.Responses[0].Text != "half" {
				t.Errorf("got %+v", c)
			}
			must(t, s.ClearCheckpoint(t.Context()))
			must(t, s.ClearCheckpoint(t.Context()))
			if c := load(t, "e25"); c != nil {
				t.Errorf("got %+v", c)
			}
			head, err := s.Load(t.Context(), "")
			must(t, err)
			e, err := events.New("test", s.Subject(), &events.CheckpointSaved{ID: "x", Kind: events.CheckpointResume, At: head.Offset(), Responses: []byte(`{"no":"list"}`)})
			must(t, err)
			_, err = st.Append(t.Context(), s.Subject(), log.Any, e)
			must(t, err)
			_, err = s.LoadCheckpoint(t.Context())
			if bad, ok := errors.AsType[*errata.CheckpointError](err); !ok || bad.Offset == 0 {
				t.Errorf("got the error %v", err)
			}
		})
		t.Run("E-26 the order of the panel, also of concurrent updates", func(t *testing.T) {
			panel := []string{"c", "a", "b"}
			saver := errata.Of(st, "e26").SaveCheckpoint("", "q", panel, false)
			var group sync.WaitGroup
			for _, model := range panel {
				group.Go(func() {
					for i := range 5 {
						if err := saver.Update(context.WithoutCancel(t.Context()), answer(model, fmt.Sprint(model, i))); err != nil {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			c := load(t, "e26")
			var have []string
			for _, r := range c.Responses {
				have = append(have, r.Text)
			}
			wantEqual(t, "responses", have, []string{"c4", "a4", "b4"})
			err := saver.Update(t.Context(), answer("d", ""))
			if _, ok := errors.AsType[*errata.UnknownModelError](err); !ok {
				t.Errorf("update with an unknown model: %v", err)
			}
		})
		t.Run("E-27 resume runs again exactly what did not complete", func(t *testing.T) {
			s := errata.Of(st, "e27")
			panel := []string{"done", "timeout", "interrupted", "error", "partial", "silent", "max"}
			saver := s.SaveCheckpoint("", "q", panel, false)
			timeout := errata.Response{ModelID: "timeout", Text: "half", StopReason: errata.StopTimeout}
			for _, r := range []errata.Response{answer("done", "D"), timeout, {ModelID: "interrupted", Interrupted: true}, {ModelID: "error", Error: "x"}, {ModelID: "max", Text: "m", StopReason: errata.StopMaxSteps, Steps: 9}} {
				must(t, saver.Finish(t.Context(), r))
			}
			must(t, saver.Update(t.Context(), answer("partial", "p")))
			c := load(t, "e27")
			wantEqual(t, "remaining", c.Remaining(), []string{"timeout", "interrupted", "error", "partial", "silent"})
			if done := c.Completed(); len(done) != 2 || done[1].Steps != 9 || done[1].StopReason != errata.StopMaxSteps {
				t.Errorf("got %+v", done)
			}
			resumed := errata.Of(st, "e27").Resume(c)
			var fresh []errata.Response
			for _, id := range c.Remaining() {
				fresh = append(fresh, answer(id, "again"))
				must(t, resumed.Finish(t.Context(), fresh[len(fresh)-1]))
			}
			if c := load(t, "e27"); len(c.Remaining()) != 0 {
				t.Errorf("got %+v", c.Remaining())
			}
			merged := c.Merge(fresh)
			if len(merged) != len(panel) || merged[0].Text != "D" || merged[1].Text != "again" {
				t.Errorf("got %+v", merged)
			}
			must(t, resumed.End(t.Context(), merged))
			if c := load(t, "e27"); c != nil {
				t.Errorf("got %+v", c)
			}
			must(t, resumed.End(t.Context(), []errata.Response{{ModelID: "done", Interrupted: true}}))
			if c := load(t, "e27"); c == nil || len(c.Responses) != 1 {
				t.Errorf("a cleared checkpoint was loaded: %+v", c)
			}
		})
	})
}
