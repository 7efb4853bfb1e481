package tally_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
)

// forgetting is a store with a word in each place where content stands.
type forgetting struct {
	t  *testing.T
	st *tally.Store
}

func (x forgetting) append(sub events.Subject, payloads ...events.Payload) log.Ack {
	x.t.Helper()
	var evs []events.Event
	for _, p := range payloads {
		evs = append(evs, x.event(sub, p))
	}
	last, err := x.st.Log.Last(x.t.Context(), sub)
	if err != nil && !errors.Is(err, tally.ErrNotFound) {
		x.t.Fatal(err)
	}
	ack, err := x.st.Append(x.t.Context(), sub, log.At(last.Offset), evs...)
	if err != nil {
		x.t.Fatal(err)
	}
	return ack
}

func (x forgetting) event(sub events.Subject, p events.Payload) events.Event {
	x.t.Helper()
	e, err := events.New("urn:test", sub, p)
	if err != nil {
		x.t.Fatal(err)
	}
	return e
}

func (x forgetting) created(id, kind string, change func(*events.SessionCreated)) log.Ack {
	x.t.Helper()
	p := &events.SessionCreated{Kind: kind, CreatedAt: "2026-03-01T12:00:00Z"}
	if change != nil {
		change(p)
	}
	return x.append(events.Session("", id), p)
}

func (x forgetting) doc(kind, id, text string) events.DocRef {
	x.t.Helper()
	if _, err := x.st.Documents().Create(x.t.Context(), kind, id, tally.Write{Data: []byte(text), Title: text}); err != nil {
		x.t.Fatal(err)
	}
	return events.RefOf(events.Document("", kind, id), 0)
}

func entry(thread, turn string) events.Entry {
	text, _ := json.Marshal(map[string]string{"role": "user", "content": turn})
	return events.Entry{Thread: thread, Turn: text}
}

// plan returns the plan for a selection, and the words that remain in the log after it.
func (x forgetting) plan(f tally.Forget) (erasure.Plan, map[string]bool) {
	x.t.Helper()
	f.Dry = true
	r, err := x.st.Forget(x.t.Context(), f)
	if err != nil {
		x.t.Fatalf("Forget %+v: %v", f, err)
	}
	text, err := r.Plan()
	if err != nil {
		x.t.Fatalf("Forget %+v: %v", f, err)
	}
	plan, err := erasure.Decode("plan", text)
	if err != nil {
		x.t.Fatal(err)
	}
	left := make(map[string]bool)
	for rec, err := range x.st.Log.Read(x.t.Context(), events.Range{}) {
		if err != nil {
			x.t.Fatal(err)
		}
		e := rec.Event
		if planned, ok := plan.Find(rec.Offset); ok {
			if e, err = planned.Apply(plan.Receipt, e); err != nil {
				x.t.Fatal(err)
			}
		}
		all := fmt.Sprint(string(e.Data), e.Extensions)
		for _, word := range strings.FieldsFunc(all, func(c rune) bool { return !('A' <= c && c <= 'Z') && !('0' <= c && c <= '9') }) {
			if strings.HasPrefix(word, "WORD") {
				left[word] = true
			}
		}
	}
	return plan, left
}

func (x forgetting) check(name string, f tally.Forget, gone, stay string) erasure.Plan {
	x.t.Helper()
	plan, left := x.plan(f) // also if only another subtest runs: that may need the plan
	x.t.Run(name, func(t *testing.T) {
		for _, word := range strings.Fields(gone) {
			if left["WORD"+word] {
				t.Errorf("WORD%s remains", word)
			}
		}
		for _, word := range strings.Fields(stay) {
			if !left["WORD"+word] {
				t.Errorf("WORD%s is gone", word)
			}
		}
	})
	return plan
}

func newForgetting(t *testing.T) forgetting {
	x := forgetting{t, storetest.Memory(t, tally.Config{Actor: "me"})}
	ctx := t.Context()
	large, err := x.st.PutBlob(ctx, []byte("WORD1 a file that only s names"))
	if err != nil {
		t.Fatal(err)
	}
	shared, err := x.st.PutBlob(ctx, []byte("WORD2 a file that s and o name"))
	if err != nil {
		t.Fatal(err)
	}
	blob := func(ref string) events.DocRef {
		sum, _ := events.ParseBlobRef(ref)
		return events.DocRef("document/blob/" + sum)
	}
	imported, both := x.doc(events.KindFile, "imported/a.txt", "WORD3"), x.doc(events.KindFile, "both", "WORD4")
	secret := x.doc("sealed", "s-1", "WORD5")
	x.doc("doc", "plan.md", "WORD6")
	s, o := events.Session("", "s"), events.Session("", "o")
	x.created("s", "conversation", func(p *events.SessionCreated) {
		p.Title, p.CWD, p.Raw, p.Settings = "WORD7", "WORD8", events.Raw(`"WORD9"`), events.Raw(`{"a":"WORD10"}`)
		p.Formats = map[string]events.FileFormat{"a": {Doc: imported}, "b": {Doc: both}}
	})
	x.created("o", "conversation", func(p *events.SessionCreated) { p.Formats = map[string]events.FileFormat{"b": {Doc: both}} })
	x.append(s, &events.TurnAppended{Entries: []events.Entry{entry("main", "WORD11 first turn of them"), entry("side", "WORD12"), entry("main", "WORD13")}, ThreadMeta: map[string]events.Raw{"side": events.Raw(`"WORD14"`)}})
	x.append(s, &events.CheckpointSaved{ID: "c", Kind: "rewind", At: 1, Prompt: "WORD15", Files: []events.SavedFile{{Path: "WORD16", Blob: blob(large)}, {Path: "f", Blob: blob(shared)}}},
		&events.RunCreated{Run: events.RunRef{Kind: "k", ID: "r"}, Input: events.Raw(`"WORD17"`), Secrets: secret},
		&events.RunFinished{Run: events.RunRef{Kind: "k", ID: "r"}, Outcome: "completed", Result: events.Raw(`{"copy":` + string(entry("", "WORD11 first turn of them").Turn) + `,"x":"WORD18"}`)},
		&events.ThreadReplaced{Threads: map[string]events.Replacement{"main": {Items: []events.Item{{Turn: entry("", "WORD11 first turn of them").Turn}, {Turn: entry("", "WORD19").Turn}}}}, Others: "keep", Reason: "compact"})
	x.append(o, &events.CheckpointSaved{ID: "c", Kind: "rewind", At: 1, Files: []events.SavedFile{{Path: "WORD20", Blob: blob(shared)}}})
	if _, err := x.st.AppendAll(ctx, log.Part{Subject: s, Events: []events.Event{x.event(s, &events.TurnAppended{Entries: []events.Entry{entry("late", "WORD21")}})}},
		log.Part{Subject: o, Events: []events.Event{x.event(o, &events.TurnAppended{Entries: []events.Entry{entry("main", "WORD22")}})}}); err != nil {
		t.Fatal(err)
	}
	head, err := x.st.Log.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	x.created("child", "conversation", func(p *events.SessionCreated) { p.Parent, p.Title = &events.Lineage{Session: "s"}, "WORD23" })
	x.created("grandchild", "conversation", func(p *events.SessionCreated) { p.Parent, p.Title = &events.Lineage{Session: "child"}, "WORD24" })
	x.created("zfork", "conversation", func(p *events.SessionCreated) { p.Fork, p.Title = &events.Fork{Session: "s", Offset: head}, "WORD25" })
	x.created("afork", "conversation", func(p *events.SessionCreated) {
		p.Fork, p.Title = &events.Fork{Session: "zfork", Offset: head + 3}, "WORD26"
	})
	for _, kind := range []string{events.KindQueue, events.KindInbox, events.KindFlow, events.KindLock, events.KindAgent, events.KindItem} {
		x.created(kind+"/w", kind, func(p *events.SessionCreated) { p.Title = "WORD27" })
	}
	return x
}

func TestForget(t *testing.T) {
	x := newForgetting(t)
	all := strings.Fields("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27")
	without := func(gone string) string {
		return strings.Join(slices.DeleteFunc(slices.Clone(all), func(w string) bool { return slices.Contains(strings.Fields(gone), w) }), " ")
	}
	const ofSession = "1 3 5 7 8 9 10 11 12 13 14 15 16 17 18 19 21"
	plan := x.check("L-4 a session", tally.Forget{Session: "s", Reason: "asked"}, ofSession, without(ofSession))
	t.Run("X-14 forks follow the sessions of which they are forks", func(t *testing.T) {
		var order []string
		for _, sub := range plan.Subjects {
			if sub.IsSession() {
				order = append(order, sub.ID)
			}
		}
		if got := strings.Join(order, " "); got != "s zfork afork" {
			t.Errorf("the plan folds %s", got)
		}
	})
	t.Run("X-18 who, why and what", func(t *testing.T) {
		says := plan.Says()
		if says.By != "me" || says.Reason != "asked" || says.Scope != "session s" || says.Records == 0 || says.Bytes == 0 || plan.Document() != events.Document("", "receipt", plan.Receipt) {
			t.Errorf("the receipt is %+v", says)
		}
	})
	children := ofSession + " 23 24"
	x.check("L-4 a session and its children", tally.Forget{Session: "s", Children: true}, children, without(children))
	x.check("L-4 a thread", tally.Forget{Session: "s", Thread: "side"}, "12", without("12"))
	x.check("L-4 a document", tally.Forget{Document: "doc/plan.md"}, "6", without("6"))
	x.check("L-4 a shared document goes with the last session that names it", tally.Forget{Before: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}, "1 2 3 4 5 7 20 22 26", "6 27")
	x.check("L-4 a namespace", tally.Forget{Namespace: "default"}, without("27"), "27")
	x.check("X-17 only kinds", tally.Forget{Before: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), Kinds: []string{"conversation"}}, "7 26", "6 27")
	turn := x.check("X-15 a turn, and equal turns", tally.Forget{Session: "s", Turn: 1}, "", without("11"))
	t.Run("X-15 a record that contains the turn is listed", func(t *testing.T) {
		if listed := strings.Join(turn.Unreached, "\n"); !strings.Contains(listed, events.TypeRunFinished) || len(turn.Records) != 2 {
			t.Errorf("%d records lose content, and listed is\n%s", len(turn.Records), listed)
		}
	})
	x.check("a record", tally.Forget{Record: turn.Records[0].Offset}, "12 13 14", without("11 12 13 14"))
	t.Run("X-17 work is refused by name", func(t *testing.T) {
		for _, kind := range []string{events.KindQueue, events.KindInbox, events.KindFlow, events.KindLock, events.KindAgent, events.KindItem} {
			_, err := x.st.Forget(t.Context(), tally.Forget{Session: kind + "/w"})
			if work, ok := errors.AsType[*tally.KindError](err); !ok || work.Have != kind || !strings.Contains(err.Error(), kind+"/w") {
				t.Errorf("%s: %v", kind, err)
			}
		}
	})
	t.Run("a selection that says nothing or too much", func(t *testing.T) {
		for _, f := range []tally.Forget{{}, {Session: "s", Document: "doc/plan.md"}, {Thread: "main"}, {Session: "s", Turn: -1}, {Session: "s", Children: true, Turn: 1},
			{Session: "s", Reason: strings.Repeat("x", 5000)}, {Namespace: "a b"}} {
			if _, err := x.st.Forget(t.Context(), f); err == nil {
				t.Errorf("%+v: no error", f)
			}
		}
		for _, f := range []tally.Forget{{Session: "none"}, {Session: "s", Turn: 99}, {Session: "s", Thread: "none"}, {Document: "doc/none"}, {Record: 9999}, {Session: "o", Record: turn.Records[0].Offset}} {
			if _, err := x.st.Forget(t.Context(), f); !errors.Is(err, tally.ErrNotFound) {
				t.Errorf("%+v: %v, want ErrNotFound", f, err)
			}
		}
	})
	t.Run("X-23 nobody can change the records", func(t *testing.T) {
		r, err := x.st.Forget(t.Context(), tally.Forget{Session: "s"})
		if text, _ := r.Plan(); !errors.Is(err, errors.ErrUnsupported) || r.ID == "" || !bytes.Contains(text, []byte(r.ID)) {
			t.Errorf("%v, receipt %q", err, r.ID)
		}
	})
}

// Sessions are due by the log's time, each namespace by its own rule.
func TestDue(t *testing.T) {
	x := newForgetting(t)
	other, err := x.st.In("acme")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Session("job/a").Create(t.Context(), events.SessionCreated{Kind: "job", CreatedAt: "2026-03-01T12:00:00Z"}); err != nil {
		t.Fatal(err)
	}
	t.Run("X-17 rules of namespaces", func(t *testing.T) {
		now, err := x.st.LogTime(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		list, err := x.st.Due(t.Context(), []tally.Retention{{Sessions: time.Hour}, {Namespace: "acme", Jobs: 2 * time.Hour}})
		var got []string
		for _, f := range list {
			got = append(got, fmt.Sprint(f.Namespace, f.Kinds, now.Sub(f.Before).Round(time.Minute)))
		}
		if want := "[acme[job] 2h0m0s default[conversation transcript] 1h0m0s]"; err != nil || fmt.Sprint(got) != want {
			t.Errorf("due is %v, %v, want %s", got, err, want)
		}
	})
}
