package projector_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// costLog writes costs into a session, one per record from @1.
func costLog(t testing.TB, costs ...events.CostAccrued) (testkit.Records, events.Subject) {
	sub := events.Session("", "s")
	var log testkit.Records
	for i := range costs {
		costs[i].Purpose, costs[i].Source = "run", "reported"
		e, err := events.New("urn:test", sub, &costs[i])
		if err != nil {
			t.Fatal(err)
		}
		e.ID = fmt.Sprint("e", i)
		log = append(log, events.Record{Event: e, Offset: events.Offset(i + 1)})
	}
	return log, sub
}

// Ids of responses that are unique by construction.
const (
	idR = "msg_01XFDUDYJgAACzvnptvVoYEL"
	idQ = "0f3a1f6e-5d7b-4a53-9c1e-2b7f6f0b9a11"
)

func paidFor(model, response string, usd events.Amount, output int64, run string) events.CostAccrued {
	c := events.CostAccrued{Model: model, Response: response, USD: usd, Tokens: &events.Tokens{Output: output}}
	if run != "" {
		c.Run = &events.RunRef{Kind: "k", ID: run}
	}
	return c
}

// Of the costs with one response, the one with the most output counts, of equals the last, for the run of the first.
// The others are listed as their events report them.
func TestOneCostCountsForAResponse(t *testing.T) {
	log, sub := costLog(t,
		paidFor("m", idR, "1", 5, "first"), paidFor("m", "", "10", 5, ""), paidFor("m", idR, "2", 9, "second"),
		paidFor("n", idQ, "100", 0, ""), paidFor("m", idR, "3", 9, "third"), paidFor("m", idR, "4", 8, "fourth"), paidFor("n", idQ, "200", 0, "late"))
	s, err := (&projector.Loader{Source: log}).Session(t.Context(), sub, 0)
	if err != nil {
		t.Fatal(err)
	}
	say := func(list []projector.Cost) (lines []string) {
		for _, c := range list {
			run := ""
			if c.Run != nil {
				run = c.Run.ID
			}
			lines = append(lines, fmt.Sprintf("%v at %v: %s of %s for %q", c.Offset, c.CountsAt(), c.USD, c.Model, run))
		}
		return lines
	}
	want := []string{`@5 at @1: 3 of m for "first"`, `@2 at @2: 10 of m for ""`, `@7 at @4: 200 of n for ""`}
	if diff := cmp.Diff(want, say(s.Ledger.Costs)); diff != "" {
		t.Errorf("costs (-want +got):\n%s", diff)
	}
	want = []string{`@1 at @1: 1 of m for "first"`, `@3 at @3: 2 of m for "second"`, `@4 at @4: 100 of n for ""`, `@6 at @6: 4 of m for "fourth"`}
	if diff := cmp.Diff(want, say(s.Ledger.Superseded)); diff != "" {
		t.Errorf("superseded (-want +got):\n%s", diff)
	}
	if got := s.Ledger.Spent(); got.USD != "213" || got.Events != 3 {
		t.Errorf("spent %+v, want 213 in 3 events", got)
	}
}

// B-11: an id that may not be unique joins no costs, and an id of two models joins only the costs of each model.
func TestDrawnIDsJoinNothing(t *testing.T) {
	log, sub := costLog(t, paidFor("m", "chatcmpl-7", "1", 5, "a"), paidFor("m", "chatcmpl-7", "1", 5, "a"), paidFor("m", idR, "1", 5, ""), paidFor("n", idR, "1", 5, ""))
	s, err := (&projector.Loader{Source: log}).Session(t.Context(), sub, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Ledger.Spent(); got.USD != "4" || got.Events != 4 || len(s.Ledger.Superseded) != 0 {
		t.Errorf("B-11: spent %+v, superseded %v, want 4 in 4 events and none", got, s.Ledger.Superseded)
	}
}

// A response counts at its first cost: a rewind behind that leaves it on the branch.
func TestResponseCountsAtItsFirstCost(t *testing.T) {
	log, sub := costLog(t, paidFor("m", idR, "1", 1, ""), paidFor("m", idQ, "1", 1, ""), paidFor("m", idR, "7", 2, ""))
	e, err := events.New("urn:test", sub, &events.SessionRewound{To: 1})
	if err != nil {
		t.Fatal(err)
	}
	log = append(log, events.Record{Event: e, Offset: 4})
	s, err := (&projector.Loader{Source: log}).Session(t.Context(), sub, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.OnBranch(); got.USD != "7" || got.Events != 1 {
		t.Errorf("costs of the branch are %+v, want the response's cost of 7", got)
	}
}

// The cost of a session does not depend on the order of the costs of a response, on snapshots, or on folding records
// one by one.
func TestOrderOfCostsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(rt, "costs")
		var costs []events.CostAccrued
		for i := range n {
			response := rapid.SampledFrom([]string{"", "chatcmpl-7", idR, idQ}).Draw(rt, "response")
			costs = append(costs, paidFor("m", response, events.Amount(fmt.Sprintf("0.%03d", rapid.IntRange(0, 999).Draw(rt, "usd"))), int64(i), ""))
		}
		log, sub := costLog(t, slices.Clone(costs)...)
		want := mustLoad(rt, &projector.Loader{Source: log}, sub, 0)
		other, _ := costLog(t, rapid.Permutation(costs).Draw(rt, "order")...)
		if got := mustLoad(rt, &projector.Loader{Source: other}, sub, 0); got.Ledger.Spent() != want.Ledger.Spent() || len(got.Ledger.Superseded) != len(want.Ledger.Superseded) {
			rt.Fatalf("spent %+v in one order, %+v in another", want.Ledger.Spent(), got.Ledger.Spent())
		}
		kept := (&projector.Loader{Source: log, Snapshots: &rotting{}}).SetChunks(rapid.IntRange(1, 4).Draw(rt, "chunk"), 2)
		if _, err := kept.Keep(rt.Context(), sub, events.Offset(rapid.IntRange(1, n).Draw(rt, "kept at")), ""); err != nil {
			rt.Fatal(err)
		}
		onebyone := projector.NewSession(sub)
		for _, rec := range log {
			onebyone.Apply(projector.Decode(rec))
		}
		for _, got := range []*projector.Session{mustLoad(rt, kept, sub, 0), onebyone} {
			if diff := cmp.Diff(want.Ledger.Costs, got.Ledger.Costs); diff != "" {
				rt.Fatalf("costs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want.Ledger.Superseded, got.Ledger.Superseded); diff != "" {
				rt.Fatalf("superseded (-want +got):\n%s", diff)
			}
		}
	})
}
