package catalog

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// Ids of responses that are unique by construction.
const (
	idR = "msg_01XFDUDYJgAACzvnptvVoYEL"
	idQ = "0f3a1f6e-5d7b-4a53-9c1e-2b7f6f0b9a11"
)

// responseLog draws costs of a few responses in three sessions and two namespaces.
func responseLog() *rapid.Generator[testkit.Records] {
	return rapid.Custom(func(t *rapid.T) testkit.Records {
		var list testkit.Records
		namespaces, models, responses := []string{"", "other"}, []string{"m", "n"}, []string{"", "chatcmpl-7", idR, idQ}
		if rapid.Bool().Draw(t, "one response") {
			namespaces, models, responses = namespaces[:1], models[:1], responses[2:3]
		}
		for at := events.Offset(1); at <= events.Offset(rapid.IntRange(1, 25).Draw(t, "records")); at++ {
			sub := events.Session(rapid.SampledFrom(namespaces).Draw(t, "namespace"), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "session"))
			p := &events.CostAccrued{Model: rapid.SampledFrom(models).Draw(t, "model"), Purpose: "run", Source: "reported",
				USD: events.Amount(fmt.Sprintf("0.%d", rapid.IntRange(1, 99).Draw(t, "usd"))), Response: rapid.SampledFrom(responses).Draw(t, "response"),
				Tokens: &events.Tokens{Input: 1, Output: rapid.Int64Range(0, 2).Draw(t, "output")}}
			if rapid.Bool().Draw(t, "of a run") {
				p.Run = &events.RunRef{Kind: "k", ID: "1"}
			}
			e, err := events.New("urn:test", sub, p)
			must(t, err)
			e.ID = fmt.Sprintf("event-%d", at)
			list = append(list, events.Record{Event: e, Offset: at})
		}
		return list
	})
}

// Each session shows the costs of the definition, for any split into commits, any crash, and any session that is folded
// again or quarantined. The rows equal those of a fold in one go.
func TestResponsesAgreeWithTheLog(t *testing.T) {
	testkit.NotUnderRace(t)
	rapid.Check(t, func(t *rapid.T) {
		records, dir := responseLog().Draw(t, "log"), temporary(t)
		whole := foldRecords(t, filepath.Join(dir, "whole.db"), current, records, false)
		defer whole.Close()
		split := foldRecords(t, filepath.Join(dir, "split.db"), current, records, true)
		defer func() { split.Close() }()
		last := records[len(records)-1]
		for range rapid.IntRange(0, 2).Draw(t, "again") {
			sub := rapid.SampledFrom(records).Draw(t, "which").Subject
			mustBegin(t, split) // a session that is folded again is not in memory
			must(t, split.Forget(t.Context(), sub))
			for _, rec := range records.Of(sub) {
				must(t, split.Apply(t.Context(), projector.Decode(rec)))
			}
			must(t, split.Commit(t.Context(), projector.Cursor{Offset: last.Offset, EventID: last.ID}))
		}
		mustEqual(t, split, whole)
		mustSpend(t, split, records)

		late := rapid.SampledFrom(records).Draw(t, "in quarantine").Subject
		others := slices.DeleteFunc(slices.Clone(records), func(rec events.Record) bool { return rec.Subject == late })
		if len(others) == 0 {
			return
		}
		mended := foldRecords(t, filepath.Join(dir, "mended.db"), current, others, true)
		defer func() { mended.Close() }()
		must(t, mended.Forget(t.Context(), late))
		for _, rec := range records.Of(late) {
			must(t, mended.Apply(t.Context(), projector.Decode(rec)))
		}
		must(t, mended.Commit(t.Context(), projector.Cursor{Offset: last.Offset, EventID: last.ID}))
		mustSpend(t, mended, records)
	})
}

// mustSpend fails unless each session has spent what the definition says.
func mustSpend(t *rapid.T, c *Catalog, records testkit.Records) {
	t.Helper()
	c.clear()
	for _, rec := range records {
		s, err := c.session(t.Context(), rec.Subject)
		must(t, err)
		if want := spentOf(records, rec.Subject); s.Spent != want {
			t.Fatalf("%s spent %+v, want %+v", rec.Subject, s.Spent, want)
		}
		mustSum(t, c, s, spentOf(records, rec.Subject))
	}
}

// Quarantine reverts the responses of a session since the last commit, and leaves stored ones.
func TestResponsesInQuarantine(t *testing.T) {
	a, b := events.Session("", "a"), events.Session("", "b")
	cost := func(sub events.Subject, at events.Offset, usd events.Amount, output int64) projector.Fact {
		return projector.Decode(record(t, sub, at, &events.CostAccrued{Model: "m", USD: usd, Response: idR, Tokens: &events.Tokens{Output: output}, Purpose: "run", Source: "reported"}))
	}
	c := New(t.TempDir(), openingOf, nullLogger)
	defer c.Close()
	_, _, err := c.Begin(t.Context())
	must(t, err)
	must(t, c.Apply(t.Context(), cost(a, 1, "1", 1)))
	must(t, c.Commit(t.Context(), projector.Cursor{Offset: 1, EventID: "event-1"}))
	must(t, c.Apply(t.Context(), cost(a, 2, "2", 3)))
	must(t, c.Apply(t.Context(), cost(b, 3, "4", 2)))
	c.Quarantine(projector.Quarantine{Subject: a, Offset: 4, Reason: "a test"})
	must(t, c.Commit(t.Context(), projector.Cursor{Offset: 4, EventID: "event-4"}))
	c.clear()
	for sub, want := range map[events.Subject]events.Amount{a: "4", b: "0"} { // the cost of b counts for a, which was first
		s, err := c.session(t.Context(), sub)
		must(t, err)
		if s.Spent.USD != want {
			t.Errorf("%s spent %v, want %v", sub, s.Spent.USD, want)
		}
	}
}

// Progress lists the progress of runs in log order, without rejected records.
func TestProgress(t *testing.T) {
	sub, dir := events.Session("", "job/1"), t.TempDir()
	one, two := events.RunRef{Kind: "expert", ID: "1"}, events.RunRef{Kind: "expert", ID: "2"}
	c := New(dir, openingOf, nullLogger)
	_, _, err := c.Begin(t.Context())
	must(t, err)
	for i, p := range []events.Payload{
		&events.RunCreated{Run: one}, &events.RunStarted{Run: one, Raw: events.Raw(`{"type":"startRun"}`)},
		&events.RunProgressed{Run: two, Kind: "delta", Delta: events.Raw(`"x"`)}, &events.RunProgressed{Run: one, Kind: "callTools", Step: 4, Raw: events.Raw(`{"type":"callTools","n":1}`)},
		&events.RunProgressed{Run: one, Kind: "void", Raw: events.Raw(`[]`), Lists: events.Lists{"": {{Thread: "main", To: 1}}}},
		&events.RunProgressed{Run: one, Kind: "stale", Fence: 1, Raw: events.Raw(`{"type":7}`)},
		&events.RunFinished{Run: one, Outcome: "completed", Result: events.Raw(`{"type":"completeRun"}`), Fence: 2}, &events.RunAnnotated{Run: one},
	} {
		must(t, c.Apply(t.Context(), projector.Decode(record(t, sub, events.Offset(i+1), p))))
	}
	must(t, c.Commit(t.Context(), projector.Cursor{Offset: 8, EventID: "event-8"}))
	must(t, c.Close())
	r, err := Open(t.Context(), dir)
	must(t, err)
	defer r.Close()
	for _, q := range []struct {
		projector.ProgressQuery
		want string
	}{
		{projector.ProgressQuery{}, `[expert/1 @2 started 0 19 "startRun"] [expert/2 @3 delta 0 0 ""] [expert/1 @4 callTools 4 26 "callTools"] [expert/1 @6 stale 0 10 ""] [expert/1 @7 finished 0 22 "completeRun"] `},
		{projector.ProgressQuery{Run: one, After: 2, Limit: 2}, `[expert/1 @4 callTools 4 26 "callTools"] [expert/1 @6 stale 0 10 ""] `},
		{projector.ProgressQuery{Run: two}, `[expert/2 @3 delta 0 0 ""] `},
		{projector.ProgressQuery{Run: events.RunRef{Kind: "item", ID: "1"}}, ""},
	} {
		q.Namespace, q.Session = "default", sub.ID
		list, err := r.Progress(t.Context(), q.ProgressQuery)
		must(t, err)
		got := ""
		for _, p := range list {
			got += fmt.Sprintf("[%v %v %s %d %d %q] ", p.Run, p.Offset, p.Kind, p.Step, p.Bytes, p.Name)
		}
		if got != q.want {
			t.Errorf("%+v: %s\nwant %s", q.ProgressQuery, got, q.want)
		}
	}
	if list, err := r.Progress(t.Context(), projector.ProgressQuery{Namespace: "other", Session: sub.ID}); err != nil || len(list) > 0 {
		t.Errorf("got the list %v, error %v", list, err)
	}
}
