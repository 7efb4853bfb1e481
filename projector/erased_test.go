package projector_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

const receipt = "r7k2p9"

// erase returns a copy of a log in which some records are erased.
func erase(t interface {
	Helper()
	Fatalf(string, ...any)
}, log testkit.Records, which func(events.Record) bool) testkit.Records {
	t.Helper()
	erased := slices.Clone(log)
	for i, rec := range erased {
		if !which(rec) {
			continue
		}
		e, err := rec.Event.Erase(receipt)
		if err != nil {
			t.Fatalf("%v: %v", rec.Offset, err)
		}
		erased[i].Event = e
	}
	return erased
}

// countable is what readers count, order and locate in a session.
type countable struct {
	Live     []projector.Interval
	Stale    []events.Offset
	Rejected []events.Offset
	Rewinds  []projector.Rewind
	Turns    []string // thread, offset, index, run and pin of each
	Spent    projector.Total
	OnBranch projector.Total
	Costs    []projector.Cost
	Runs     []string
	Points   []string
	Fork     *events.Fork
	Kind     string
	LastAt   events.Timestamp
}

func countableOf(s *projector.Session) (c countable) {
	l := s.Ledger
	c.Live = s.History.Live(s.Offset())
	c.Stale, c.Spent, c.OnBranch, c.Costs, c.Fork, c.Kind, c.LastAt = l.Stale, l.Spent(), s.OnBranch(), l.Costs, l.Fork, l.Kind, l.LastAt
	for _, r := range l.Rejected {
		c.Rejected = append(c.Rejected, r.Offset)
	}
	for _, r := range l.Rewinds {
		r.Reason = ""
		c.Rewinds = append(c.Rewinds, r)
	}
	for _, name := range s.Threads.Names() {
		c.Turns = append(c.Turns, name)
		for _, t := range s.Threads.Turns(name) {
			c.Turns = append(c.Turns, fmt.Sprint(t.Offset, t.Index, t.Run, t.Pinned, t.Timestamp))
		}
	}
	for _, r := range l.Runs {
		c.Runs = append(c.Runs, fmt.Sprint(r.Ref(), r.At, r.Created, r.State, r.Starts, r.Claim, r.Attempt, r.LeaseUntil, r.Fenced, r.Progress, len(r.Results), r.DueAt, r.After))
	}
	for _, p := range l.Checkpoints {
		c.Points = append(c.Points, fmt.Sprint(p.Kind, p.ID))
	}
	return c
}

// Whichever records are erased, everything that readers count stays, the other turns keep their bytes, and loads with
// snapshots equal loads without.
func TestErasedRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := testkit.History().Draw(t, "log")
		gone := make(map[events.Offset]bool)
		for _, rec := range log {
			gone[rec.Offset] = rapid.Bool().Draw(t, "erased")
		}
		after := erase(t, log, func(rec events.Record) bool { return gone[rec.Offset] })
		rec := drawRecord(t, log)
		was, is := mustLoad(t, &projector.Loader{Source: log}, rec.Subject, rec.Offset), mustLoad(t, &projector.Loader{Source: after}, rec.Subject, rec.Offset)
		if diff := cmp.Diff(countableOf(was), countableOf(is)); diff != "" {
			t.Fatalf("%s at %v (-before +after):\n%s", rec.Subject, rec.Offset, diff)
		}
		for _, name := range was.Threads.Names() {
			for i, before := range was.Threads.Turns(name) {
				turn := is.Threads.Turns(name)[i]
				switch {
				case !gone[turn.Offset]:
					if diff := cmp.Diff(before, turn); diff != "" {
						t.Fatalf("a turn of %v that is not erased (-before +after):\n%s", turn.Offset, diff)
					}
				case turn.Erased != receipt || len(turn.Raw) > 2 || turn.ID != "" || turn.Bytes != nil:
					t.Fatalf("a turn of %v, which is erased, is %+v", turn.Offset, turn)
				}
			}
		}
		l := (&projector.Loader{Source: after, Snapshots: &snapshot.Mem{}}).SetChunks(3, 2)
		if _, err := l.Keep(t.Context(), rec.Subject, rec.Offset, ""); err != nil {
			t.Fatal(err)
		}
		mustEqualLoads(t, after, (&projector.Loader{Source: after, Snapshots: l.Snapshots}).SetChunks(3, 2), drawRecord(t, log))
		v, err := l.Verify(t.Context(), nil)
		if err != nil || len(v.Findings) > 0 {
			t.Fatalf("verify: got %v, %v, want nothing", v.Findings, err)
		}
	})
}

// Erased revisions of documents stay revisions, without content.
func TestErasedDocuments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := testkit.Documents().Draw(t, "log")
		gone := make(map[events.Offset]bool)
		for _, rec := range log {
			gone[rec.Offset] = rec.Type != events.TypeUnitAppended && rapid.Bool().Draw(t, "erased")
		}
		after := erase(t, log, func(rec events.Record) bool { return gone[rec.Offset] })
		for doc := range testkit.ModelOf(log) {
			if doc.Kind == events.KindBlob {
				continue // see TestErasedBlob
			}
			was, wasErr := (&projector.Loader{Source: log}).Document(t.Context(), doc, 0)
			is, isErr := (&projector.Loader{Source: after}).Document(t.Context(), doc, 0)
			if fmt.Sprint(wasErr) != fmt.Sprint(isErr) || was.Head != is.Head || was.Exists() != is.Exists() || len(was.Revisions) != len(is.Revisions) || len(was.Rejected) != len(is.Rejected) {
				t.Fatalf("%s: got %+v, %v, want %+v, %v", doc, is, isErr, was, wasErr)
			}
			for i, rev := range is.Revisions {
				if wasErased := after[rev.Offset-1].Erased() != ""; wasErased != (rev.Erased == receipt) || wasErased && rev.Size > 0 {
					t.Fatalf("%s: the revision of %v, erased %v, is %+v", doc, rev.Offset, wasErased, rev)
				}
				if rev.Deleted != was.Revisions[i].Deleted || rev.RenamedTo != was.Revisions[i].RenamedTo || rev.IsPurge() != was.Revisions[i].IsPurge() {
					t.Fatalf("%s: the revision is %+v, want %+v", doc, rev, was.Revisions[i])
				}
			}
		}
	})
}

// Turns that records refer to by lists, and forks and undone rewinds of erased records.
func TestErasedReferences(t *testing.T) {
	t.Run("X-14 a fork of an erased session", func(t *testing.T) {
		st := &story{t: t}
		sub, fork := events.Session("", "s"), events.Session("", "f")
		first := st.add(sub, aTurn("SECRET"))
		st.add(sub, aTurn("more"))
		st.add(fork, &events.SessionCreated{Kind: "conversation", CreatedAt: "2026-03-01T12:00:00Z", Fork: &events.Fork{Session: "s", Offset: first}})
		st.add(fork, aTurn("own"))
		after := erase(t, st.records, func(rec events.Record) bool { return rec.Subject == sub })
		s := mustSession(t, &projector.Loader{Source: after}, fork, 0)
		turns := s.Threads.Turns("main")
		if len(turns) != 2 || turns[0].Erased != receipt || turns[1].Erased != "" || !strings.Contains(string(turns[1].Raw), "own") {
			t.Errorf("got %+v", turns)
		}
	})
	t.Run("X-14 undo and redo across an erased rewind", func(t *testing.T) {
		st := &story{t: t}
		sub := events.Session("", "s")
		first := st.add(sub, aTurn("one"))
		second := st.add(sub, aTurn("two"))
		back := st.add(sub, &events.SessionRewound{To: first, Reason: "SECRET"})
		undone := st.add(sub, &events.SessionRewound{To: second, Undoes: back})
		st.add(sub, &events.SessionRewound{To: first, Undoes: undone})
		after := erase(t, st.records, func(events.Record) bool { return true })
		for at := range st.records {
			was := mustSession(t, &projector.Loader{Source: st.records}, sub, events.Offset(at+1))
			is := mustSession(t, &projector.Loader{Source: after}, sub, events.Offset(at+1))
			if diff := cmp.Diff(countableOf(was), countableOf(is)); diff != "" {
				t.Errorf("at @%d (-before +after):\n%s", at+1, diff)
			}
		}
	})
	t.Run("X-14 lists of erased turns", func(t *testing.T) {
		st := &story{t: t}
		sub := events.Session("", "s")
		st.add(sub, aTurn("SECRET"))
		st.add(sub, aTurn("two"))
		lists := events.Lists{"/messages": {{Thread: "main", To: 2}}}
		run := events.RunRef{Kind: "turn", ID: "1"}
		kept := st.add(sub, &events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw(`{"messages":[]}`), Lists: lists})
		own := st.add(sub, &events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw(`{"messages":[],"x":"SECRET"}`), Lists: lists})
		wrong := st.add(sub, &events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw(`{"messages":[]}`), Lists: events.Lists{"/messages": {{Thread: "main", To: 3}}}})
		after := erase(t, st.records, func(rec events.Record) bool { return rec.Offset == 1 || rec.Offset >= own })
		l := &projector.Loader{Source: after}
		rec, err := l.Record(context.Background(), kept)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := l.Whole(context.Background(), rec.Record)
		if err != nil || !strings.Contains(string(whole.Data), `"messages":[{},`) || !strings.Contains(string(whole.Data), "two") {
			t.Errorf("got %s, %v", whole.Data, err)
		}
		s := mustSession(t, l, sub, 0)
		if len(s.Ledger.Rejected) != 1 || s.Ledger.Rejected[0].Offset != wrong || len(s.Ledger.Run(run).Results) != 2 {
			t.Errorf("got rejected %v, results %v", s.Ledger.Rejected, s.Ledger.Run(run).Results)
		}
	})
}

// A blob that was erased is not damaged: its reader gets the receipt.
func TestErasedBlob(t *testing.T) {
	const sum = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b" // of "secret"
	doc := events.Document("", events.KindBlob, sum)
	log := testkit.Records{{Offset: 1, Event: events.Event{ID: "part-0-of-1", Source: "urn:tally:blob", Type: events.TypeDocumentWritten, Subject: doc, ContentType: events.ContentTypeRaw, Data: []byte("secret")}}}
	if data, err := projector.Blob(t.Context(), log, "", sum, 100); err != nil || string(data) != "secret" {
		t.Fatalf("got %q, %v", data, err)
	}
	_, err := projector.Blob(t.Context(), erase(t, log, func(events.Record) bool { return true }), "", sum, 100)
	if err == nil || !strings.Contains(err.Error(), "it is erased (receipt "+receipt+")") {
		t.Errorf("got %v", err)
	}
}
