package tally_test

import (
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
)

// Costs may be of runs of any kind. Runs of two kinds with the same id have separate costs.
func TestCosts(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		s := st.Session("s")
		ids := make(map[string]bool)
		for _, kind := range []string{"panel", "tally", "trajectory"} {
			for range 2 { // a repeated call is the same cost
				ack, err := s.AddCost(t.Context(), tally.Cost{Model: "m", USD: "0.1", Run: events.RunRef{Kind: kind, ID: "r"}})
				must(t, err)
				rec, err := st.Log.Record(t.Context(), ack.First)
				must(t, err)
				if ids[rec.ID] = true; rec.Source != "urn:tally:cost" {
					t.Errorf("got source %q, want urn:tally:cost", rec.Source)
				}
			}
		}
		// events.DerivedID("cost", "s", "r", "m", "run", ""): the ids of panels in existing stores have no kind
		if len(ids) != 3 || !ids["e25aAsv9V86L8dlp6eY1p9Es"] {
			t.Errorf("got ids %v, want 3 with e25aAsv9V86L8dlp6eY1p9Es", ids)
		}
		_, err := s.AddCost(t.Context(), tally.Cost{Model: "m", USD: "0.05"})
		must(t, err)
		costs, err := s.Costs(t.Context())
		must(t, err)
		if spent := costs.Spent; spent.Total.USD != "0.35" || len(spent.Runs) != 3 || spent.Runs[events.RunRef{Kind: "tally", ID: "r"}].USD != "0.1" {
			t.Errorf("got costs %+v, want 0.35 in 3 runs", spent)
		}
		if costs, err := st.Session("nobody").Costs(t.Context()); err != nil || costs.Spent.Total.Events != 0 {
			t.Errorf("costs of a missing session: got %+v, %v, want none", costs, err)
		}
	})
}

// A response that was reported more than once, as while it streamed, counts once: the report with the most output
// counts, for the run of the first.
func TestCostsOfAResponse(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		s, run := st.Session("s"), events.RunRef{Kind: "turn", ID: "r"}
		for _, c := range []tally.Cost{
			{Model: "m", USD: "0.1", Tokens: &events.Tokens{Output: 1}, Run: run, Response: "msg_01XFDUDYJgAACzvnptvVoYEL"}, {Model: "m", USD: "0.3", Tokens: &events.Tokens{Output: 9}, Response: "msg_01XFDUDYJgAACzvnptvVoYEL"},
			{Model: "m", USD: "0.2", Tokens: &events.Tokens{Output: 5}, Response: "msg_01XFDUDYJgAACzvnptvVoYEL"}, {Model: "m", USD: "1", Response: "msg_01XFDUDYJgAACzvnptvVoYEM"},
		} {
			_, err := s.AddCost(t.Context(), c)
			must(t, err)
		}
		costs, err := s.Costs(t.Context())
		must(t, err)
		if all := costs.Spent; all.Total.USD != "1.3" || all.Total.Events != 2 || all.Runs[run].USD != "0.3" {
			t.Errorf("got costs %+v, want 1.3 in 2 events", all)
		}
		now, err := s.Load(t.Context(), "")
		must(t, err)
		if list := now.Ledger.Superseded; len(list) != 2 || list[0].USD != "0.1" || list[1].USD != "0.2" {
			t.Errorf("superseded costs: got %+v, want 0.1 and 0.2", list)
		}
	})
}
