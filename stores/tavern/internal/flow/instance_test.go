package flow_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern/internal/flow"
)

// With any records in a session, an instance agrees with the ledger's run, from which views are made, and its last
// visit is in the run's state.
func TestInstanceIsTheLedgers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := testkit.History().Draw(t, "records")
		sub := rapid.SampledFrom(records).Draw(t, "record").Subject
		ledger := projector.NewSession(sub)
		runs := map[string]*flow.Instance{}
		for _, id := range []string{"r0", "r1", "r2", "r3"} {
			runs[id] = &flow.Instance{Run: projector.Run{Kind: "panel", ID: id}}
		}
		for _, rec := range records {
			if rec.Subject != sub {
				continue
			}
			f := projector.Decode(rec)
			if v := ledger.Apply(f); v.Rejected != "" {
				continue
			}
			for _, i := range runs {
				i.Apply(f)
			}
		}
		for id, i := range runs {
			want := ledger.Ledger.Run(events.RunRef{Kind: "panel", ID: id})
			if want == nil {
				want = &projector.Run{Kind: "panel", ID: id}
			}
			if diff := cmp.Diff(*want, i.Run); diff != "" {
				t.Fatalf("run %s: %s", id, diff)
			}
			if i.Visit().State != i.Run.State || i.Over() != (i.Run.Last() != nil) || i.Held && i.Run.Worker == "" || i.Step != int64(len(i.Visits)) {
				t.Fatalf("run %s is %+v", id, i)
			}
		}
	})
}

// Steps returns the status of each step; the cases are written by hand.
func TestSteps(t *testing.T) {
	w, err := flow.Parse([]byte(release))
	if err != nil {
		t.Fatal(err)
	}
	at := func(lost string, states ...string) *flow.Instance {
		i := flow.New("f")
		for n, s := range states {
			i.Visits = append(i.Visits, flow.Visit{State: s, Step: int64(n + 1), Lost: s == lost})
			i.Run.State = s
		}
		return i
	}
	for name, x := range map[string]struct {
		flow *flow.Instance
		want string
	}{
		"begun":                {at("", "build"), "current open skipped open"},
		"on the way":           {at("", "build", "test"), "done current skipped open"},
		"back":                 {at("", "build", "test", "build"), "current done skipped open"},
		"lost, and can return": {at("test", "build", "test", "triage"), "done open current open"},
		"past":                 {at("", "build", "test", "ship"), "done done skipped current"},
		"over":                 {at("", "build", "test", "ship", "shipped"), "done done skipped done"},
		"given up":             {at("test", "build", "test", "triage", "given up"), "done lost done skipped"},
	} {
		have := ""
		for _, s := range x.flow.Steps(w) {
			have += " " + s.Status
		}
		if have[1:] != x.want {
			t.Errorf("%s: got %s, want %s", name, have[1:], x.want)
		}
	}
}
