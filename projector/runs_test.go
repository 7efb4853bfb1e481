package projector_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

func mustFold(t testing.TB, log testkit.Records, sub events.Subject) *projector.Session {
	t.Helper()
	s, err := (&projector.Loader{Source: log}).Session(t.Context(), sub, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRunSaysWhoWorksOnIt(t *testing.T) {
	run := events.RunRef{Kind: "item", ID: "1"}
	released := int64(0)
	renewed := int64(900)
	log := &testkit.Records{}
	for i, p := range []events.Payload{
		&events.RunCreated{Run: run, Owner: "ada", Parent: &events.Lineage{Session: "p", Run: "r"}, Template: "document/workflow/w@3", Setting: events.Raw(`{"a":1}`),
			After: []events.RunRef{{Kind: "item", ID: "0"}}, DueAt: "2026-01-01T00:00:00Z", CreatedAt: "2026-01-01T00:00:00Z"},
		&events.RunCreated{Run: run, Owner: "eve", DueAt: "2027-01-01T00:00:00Z"}, // the first one counts
		&events.RunStarted{Run: run, Worker: "w1", Attempt: 1, LeaseUntil: 500},
		&events.RunProgressed{Run: run, Kind: "renewed", LeaseUntil: &renewed, Fence: 3},
		&events.RunStarted{Run: run, Worker: "w2", Attempt: 2, LeaseUntil: 700},
		&events.RunProgressed{Run: run, Kind: "step", State: &events.StateChange{To: "of the first worker"}, LeaseUntil: &renewed, Fence: 3},
		&events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw(`"of the first worker"`), Fence: 3},
		&events.RunProgressed{Run: run, Kind: "step", State: &events.StateChange{To: "half"}, Fence: 5},
		&events.RunFinished{Run: run, Outcome: "failed", Result: events.Raw(`1`), Fence: 5},
		&events.RunProgressed{Run: run, Kind: "released", LeaseUntil: &released},
		&events.RunProgressed{Run: run, Kind: "step", Fence: 4}, // not a claim
	} {
		mustAddTo(t, log, s1, events.Offset(i+1), p)
	}
	want := &projector.Run{Kind: "item", ID: "1", At: 1, Created: 1, CreatedAt: "2026-01-01T00:00:00Z", Owner: "ada", Parent: &events.Lineage{Session: "p", Run: "r"},
		Template: "document/workflow/w@3", Setting: 1, After: []events.RunRef{{Kind: "item", ID: "0"}}, DueAt: "2026-01-01T00:00:00Z", State: "half", Starts: 2,
		Claim: 5, Worker: "w2", Attempt: 2, Fenced: []events.Offset{6, 7, 11}, Progress: 3, Results: []projector.Result{{Offset: 9, Outcome: "failed", Size: 1}}}
	s := mustFold(t, *log, s1)
	if diff := cmp.Diff(want, s.Ledger.Run(run)); diff != "" {
		t.Errorf("run (-want +got):\n%s", diff)
	}
	if len(s.Ledger.Rejected) > 0 {
		t.Errorf("rejected: got %v, want none", s.Ledger.Rejected)
	}
}

func mustAddTo(t testing.TB, log *testkit.Records, sub events.Subject, at events.Offset, p events.Payload) {
	t.Helper()
	e, err := events.New("urn:test", sub, p)
	if err != nil {
		t.Fatal(err)
	}
	e.ID = fmt.Sprint("e", at)
	*log = append(*log, events.Record{Event: e, Offset: at})
}

// Without a session.created, the kind of a session follows from its id, also in snapshots.
func TestKindByID(t *testing.T) {
	for id, want := range map[string]string{"job/1": "job", "queue/q": "queue", "item/q/1": "item", "s": "conversation", "panel/x": "conversation"} {
		sub := events.Session("", id)
		log := &testkit.Records{}
		mustAddTo(t, log, sub, 1, aTurn("t"))
		l := &projector.Loader{Source: log, Snapshots: &rotting{}}
		if _, err := l.Keep(t.Context(), sub, 0, ""); err != nil {
			t.Fatal(err)
		}
		for _, l := range []*projector.Loader{l, {Source: log}} {
			s, err := l.Session(t.Context(), sub, 0)
			if err != nil || s.Ledger.Kind != want {
				t.Errorf("kind of %s: got %s, %v, want %s", id, s.Ledger.Kind, err, want)
			}
		}
		mustAddTo(t, log, sub, 2, &events.SessionCreated{Kind: "mine", CreatedAt: "2026-01-01T00:00:00Z"})
		if s := mustFold(t, *log, sub); s.Ledger.Kind != "mine" {
			t.Errorf("kind of %s after session.created: got %s, want mine", id, s.Ledger.Kind)
		}
	}
}

// Runs and checkpoints are found by their identity, in folded, loaded and hand-made ledgers.
func TestLedgerLookups(t *testing.T) {
	log := &testkit.Records{}
	for i := range 20 {
		mustAddTo(t, log, s1, events.Offset(2*i+1), &events.RunStarted{Run: events.RunRef{Kind: fmt.Sprint("k", i%2), ID: fmt.Sprint(i / 2)}})
		mustAddTo(t, log, s1, events.Offset(2*i+2), &events.CheckpointSaved{ID: fmt.Sprint(i / 2), Kind: []string{events.CheckpointStep, events.CheckpointResume}[i%2], Step: int64(i)})
	}
	kept := &projector.Loader{Source: log, Snapshots: &rotting{}}
	if _, err := kept.Keep(t.Context(), s1, 30, ""); err != nil {
		t.Fatal(err)
	}
	loaded, err := kept.Session(t.Context(), s1, 0)
	if err != nil {
		t.Fatal(err)
	}
	outline, err := kept.Outline(t.Context(), s1, 0)
	if err != nil {
		t.Fatal(err)
	}
	onebyone := projector.NewSession(s1)
	for _, rec := range *log {
		onebyone.Apply(projector.Decode(rec))
	}
	byHand := &projector.Ledger{Runs: loaded.Ledger.Runs, Checkpoints: loaded.Ledger.Checkpoints}
	for name, l := range map[string]*projector.Ledger{"loaded": loaded.Ledger, "outline": outline.Ledger(), "one by one": onebyone.Ledger, "by hand": byHand} {
		for _, want := range l.Runs {
			if l.Run(want.Ref()) != want {
				t.Errorf("%s: Run(%v) is another run", name, want.Ref())
			}
		}
		for _, want := range l.Checkpoints {
			if l.Checkpoint(want.Kind, want.ID) != want {
				t.Errorf("%s: Checkpoint(%s, %s) is another checkpoint", name, want.Kind, want.ID)
			}
		}
		if len(l.Runs) != 20 || len(l.Checkpoints) != 20 || l.Run(events.RunRef{Kind: "k0", ID: "77"}) != nil || l.Checkpoint("step", "77") != nil {
			t.Errorf("%s: got %d runs and %d checkpoints, want 20 each and none for 77", name, len(l.Runs), len(l.Checkpoints))
		}
	}
}

// Unknown members of every type do not change the fold, and the records keep them unchanged.
func TestUnknownMembersPassThrough(t *testing.T) {
	run := events.RunRef{Kind: "k", ID: "r"}
	list := []events.Payload{
		created(), aTurn("one"), aTurn("two"), &events.ThreadPinned{Thread: "main", Pins: map[int]bool{0: true}},
		&events.SessionUpdated{Set: events.Fields{{Name: "title", Value: events.Raw(`"t"`)}}}, &events.RunCreated{Run: run}, &events.RunStarted{Run: run, Raw: events.Raw(`{}`)},
		&events.RunProgressed{Run: run, Kind: "k"}, &events.RunFinished{Run: run, Outcome: "failed", Result: events.Raw(`[]`)}, &events.RunAnnotated{Run: run},
		&events.CheckpointSaved{ID: "c", Kind: "rewind"}, &events.CheckpointCleared{Kind: "step", Reason: "r"},
		&events.CostAccrued{Model: "m", USD: "1", Response: "x", Purpose: "run", Source: "reported"}, &events.SessionRewound{To: 2},
		&events.ThreadReplaced{Threads: map[string]events.Replacement{"aside": {}}, Others: "keep", Reason: "source"}, &events.ThreadTruncated{Lengths: map[string]int{"main": 1}, Reason: "r"},
	}
	plain, odd, seen := &testkit.Records{}, &testkit.Records{}, make(map[string]bool)
	const novel = `{"zz9novel":{"a": 1.0,"a b":[null]},"zz9Other":"\u2028",`
	for i, p := range list {
		mustAddTo(t, plain, s1, events.Offset(i+1), p)
		mustAddTo(t, odd, s1, events.Offset(i+1), p)
		rec := &(*odd)[i]
		rec.Data = []byte(novel + strings.TrimPrefix(string(rec.Data), "{"))
		seen[rec.Type] = true
		decoded, err := events.Decode(rec.Type, rec.Data)
		if err != nil {
			t.Fatalf("%s: %v", rec.Data, err)
		}
		if again, err := events.Encode(decoded); err != nil || !strings.HasSuffix(string(again), `"zz9novel":{"a": 1.0,"a b":[null]},"zz9Other":"\u2028"}`) {
			t.Errorf("%s: encoded as %s, %v, want the unknown members unchanged", rec.Type, again, err)
		}
	}
	for _, typ := range events.Types() {
		if !seen[typ] && !strings.Contains(typ, "document") {
			t.Errorf("no record of type %s in the test", typ)
		}
	}
	l := &projector.Loader{Source: odd, Snapshots: &rotting{}}
	if _, err := l.Keep(t.Context(), s1, 9, ""); err != nil {
		t.Fatal(err)
	}
	s, err := l.Session(t.Context(), s1, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := mustFold(t, *plain, s1)
	if have, want := jsonOf(t, s.Ledger), jsonOf(t, want.Ledger); have != want || s.Threads.Hash() != mustFold(t, *plain, s1).Threads.Hash() {
		t.Errorf("ledger with unknown members:\n%s\nwithout:\n%s", have, want)
	}
	n := 0
	for rec, err := range l.Records(t.Context(), s) {
		whole, err2 := l.Whole(t.Context(), rec)
		if err != nil || err2 != nil || string(whole.Data) != string((*odd)[n].Data) || !strings.HasPrefix(string(whole.Data), novel) {
			t.Errorf("record %v: got %s, %v, %v, want the unknown members unchanged", rec.Offset, whole.Data, err, err2)
		}
		n++
	}
	if n != len(list) {
		t.Errorf("got %d records, want %d", n, len(list))
	}
	if v, err := l.Verify(t.Context(), nil); err != nil || len(v.Findings) > 0 {
		t.Errorf("verify: got findings %v, %v, want none", v.Findings, err)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
