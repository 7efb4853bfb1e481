package projector_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Different names of items and queues always have different sessions.
func TestItemSessions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[ab/=2F.é]{1,5}`)
		q, i, q2, i2 := name.Draw(t, "queue"), name.Draw(t, "item"), name.Draw(t, "other queue"), name.Draw(t, "other item")
		s := projector.ItemSession(q, i)
		if queue, item, ok := projector.ItemOf(s); !ok || queue != q || item != i {
			t.Errorf("item %q of queue %q has session %q, for which ItemOf returns item %q of queue %q", i, q, s, item, queue)
		}
		if same := q == q2 && i == i2; (projector.ItemSession(q2, i2) == s) != same {
			t.Errorf("item %q of queue %q and item %q of queue %q: equal sessions for different items, or the reverse", i, q, i2, q2)
		}
	})
	for _, id := range []string{"item/", "item/q", "item/q/", "item//i", "item/a b/i", "queue/q/i", "q"} {
		if _, _, ok := projector.ItemOf(id); ok {
			t.Errorf("ItemOf(%q) is true", id)
		}
	}
}

// queueScript draws the records of a queue and its items, by well-behaved and other workers.
type queueScript struct {
	t      *rapid.T
	facts  []projector.Fact
	claims []events.Offset
	serial bool
}

var queueIDs = []string{"a", "b", "c"}

func (s *queueScript) add(session string, p events.Payload) {
	e, err := events.New("urn:test", events.Session("", session), p)
	if err != nil {
		s.t.Fatal(err)
	}
	at := events.Offset(len(s.facts) + 1)
	s.facts = append(s.facts, projector.Decode(events.Record{Event: e, Offset: at, Recorded: time.UnixMilli(int64(at))}))
	if _, ok := p.(*events.RunStarted); ok {
		s.claims = append(s.claims, at)
	}
}

func (s *queueScript) enqueue(id string) {
	meta := events.ItemMeta{ID: id, Priority: rapid.IntRange(0, 9).Draw(s.t, "priority")}
	for _, other := range queueIDs {
		if other < id && rapid.Bool().Draw(s.t, "after") {
			meta.After = append(meta.After, other)
		}
	}
	raw, err := json.Marshal(map[string]any{"id": meta.ID, "priority": meta.Priority, "after": meta.After})
	if err != nil {
		s.t.Fatal(err)
	}
	if meta.After == nil {
		raw = fmt.Appendf(nil, `{"id":%q,"priority":%d}`, meta.ID, meta.Priority)
	}
	s.add("queue/q", &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: events.Raw("1"), Meta: raw}}})
}

func (s *queueScript) step() {
	id := rapid.SampledFrom(queueIDs).Draw(s.t, "item")
	life, run := projector.ItemSession("q", id), events.RunRef{Kind: "item", ID: id}
	if s.serial {
		life = "queue/q"
	}
	fence := events.Offset(0)
	if len(s.claims) > 0 {
		fence = rapid.SampledFrom(s.claims).Draw(s.t, "fence")
	}
	until := int64(rapid.IntRange(1, 200).Draw(s.t, "until"))
	switch rapid.IntRange(0, 7).Draw(s.t, "what") {
	case 0, 1, 2:
		s.add(life, &events.RunStarted{Run: run, Worker: fmt.Sprint("w", len(s.facts)), LeaseUntil: until})
	case 3:
		s.add(life, &events.RunProgressed{Run: run, Kind: projector.ItemRenewed, LeaseUntil: &until, Fence: fence})
	case 4:
		kind := rapid.SampledFrom([]string{projector.ItemReleased, projector.ItemFailed}).Draw(s.t, "kind")
		s.add(life, &events.RunProgressed{Run: run, Kind: kind, LeaseUntil: new(int64), Fence: fence, Note: "no"})
	case 5:
		outcome := rapid.SampledFrom([]string{"completed", "failed", projector.OutcomeDead}).Draw(s.t, "outcome")
		s.add(life, &events.RunFinished{Run: run, Outcome: outcome, Result: events.Raw("1"), Fence: fence * events.Offset(rapid.IntRange(0, 1).Draw(s.t, "with fence"))})
	case 6:
		s.add(life, &events.RunProgressed{Run: run, Kind: projector.ItemRequeued})
	case 7:
		s.add("queue/q", &events.SessionUpdated{Set: events.Fields{{Name: "settings", Value: events.Raw(`{"maxAttempts":2}`)}}})
	}
}

func drawQueue(t *rapid.T) *queueScript {
	s := &queueScript{t: t, serial: rapid.Bool().Draw(t, "serial")}
	s.add("queue/q", &events.SessionCreated{Kind: "queue", CreatedAt: "2026-01-01T00:00:00Z", Settings: fmt.Appendf(nil, `{"serial":%t}`, s.serial)})
	for _, id := range queueIDs {
		s.enqueue(id)
	}
	for range rapid.IntRange(1, 30).Draw(t, "steps") {
		s.step()
	}
	s.enqueue("a") // exists already
	return s
}

// accepted computes from the records alone which finish of an item counts. It is the first that names the newest claim
// of the item (in a serial queue: of any item) that was not given up, or that stops an unclaimed item. After a finish
// other than completed, a requeue starts over.
func (s *queueScript) accepted(id string) (ended events.Offset, outcome string) {
	holder, mine := events.Offset(0), false
	for _, f := range s.facts {
		ref := projector.RunOf(f.Payload)
		if ref == nil {
			continue
		}
		own := ref.ID == id
		switch p := f.Payload.(type) {
		case *events.RunStarted:
			if own && ended == 0 {
				holder, mine = f.Offset, true
			} else if !own && s.serial && s.open(ref.ID, f.Offset) {
				mine = false
			}
		case *events.RunProgressed:
			switch {
			case own && p.Kind == projector.ItemRequeued && ended != 0 && outcome != "completed":
				ended, outcome = 0, ""
			case own && p.Kind != projector.ItemRenewed && p.LeaseUntil != nil && mine && p.Fence == holder:
				mine = false
			}
		case *events.RunFinished:
			stops := !mine && p.Fence == 0 && p.Outcome == projector.OutcomeDead
			if own && ended == 0 && (mine && p.Fence == holder || stops) {
				ended, outcome, mine = f.Offset, p.Outcome, false
			}
		}
	}
	return ended, outcome
}

// open reports whether an item can be claimed at an offset, because it has not ended before.
func (s *queueScript) open(id string, before events.Offset) bool {
	cut := &queueScript{facts: s.facts[:before-1], serial: s.serial}
	ended, _ := cut.accepted(id)
	return ended == 0
}

func foldQueue(facts []projector.Fact, brief bool) *projector.Work {
	w := projector.NewWork(events.DefaultNamespace, "q", brief)
	for _, f := range facts {
		if w.Concerns(f.Subject) {
			w.Apply(f)
		}
	}
	return w
}

// Exactly one finish counts per item. The open items are the same whether finished ones are dropped or kept. A restored
// state continues like the original.
func TestQueueFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawQueue(t)
		full, brief := foldQueue(s.facts, false), foldQueue(s.facts, true)
		for _, id := range queueIDs {
			i := full.Items[id]
			if ended, outcome := s.accepted(id); i.Ended != ended || i.Outcome != outcome {
				t.Fatalf("item %s: got end %v (%s), want %v (%s)\n%+v", id, i.Ended, i.Outcome, ended, outcome, s.facts)
			}
			if i.Attempts < 0 || i.Fence != 0 && (i.Ended != 0 || !slices.Contains(s.claims, i.Fence)) {
				t.Errorf("item %+v has negative attempts, or a fence without a claim in effect", i)
			}
			// The last requeue refers to another item, which was dropped if it was done.
			if id == "a" {
				continue
			}
			kept := brief.Items[id]
			if (kept == nil) != i.IsDone() {
				t.Fatalf("item is done: %v, but the queue has %+v", i.IsDone(), kept)
			}
			if diff := cmp.Diff(i, kept, cmpopts.IgnoreFields(projector.QueueItem{}, "After")); kept != nil && diff != "" {
				t.Errorf("item (-full +brief):\n%s", diff)
			}
		}
		if full.Queue.Rejected != 1 {
			t.Errorf("%d turns are rejected, want 1", full.Queue.Rejected)
		}
	})
	t.Run("net P1 a queue whose settings were changed before it was created is serial if it was created so", func(t *testing.T) {
		w := projector.NewWork(events.DefaultNamespace, "q", false)
		for i, p := range []events.Payload{
			&events.SessionUpdated{Set: events.Fields{{Name: "settings", Value: events.Raw(`{"maxAttempts":2}`)}}},
			&events.SessionCreated{Kind: "queue", CreatedAt: "2026-01-01T00:00:00Z", Settings: events.Raw(`{"serial":true,"maxAttempts":3}`)},
		} {
			e, err := events.New("urn:test", events.Session("", "queue/q"), p)
			if err != nil {
				t.Fatal(err)
			}
			w.Apply(projector.Decode(events.Record{Event: e, Offset: events.Offset(i + 1)}))
		}
		if got := w.Queue.Settings; !got.Serial || got.MaxAttempts != 2 {
			t.Errorf("got %+v, want a serial queue with two attempts", got)
		}
	})
}

// The state of an item can be stored between any two records.
func TestQueueItemIsStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawQueue(t)
		whole := projector.QueueItem{ID: "a", Run: events.RunRef{Kind: "item", ID: "a"}, At: 2}
		stored := whole
		for _, f := range s.facts {
			whole.Apply(f)
			stored.Apply(f)
			data, err := json.Marshal(stored)
			if err != nil {
				t.Fatal(err)
			}
			stored = projector.QueueItem{}
			if err := json.Unmarshal(data, &stored); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(whole, stored); diff != "" {
			t.Errorf("queue (-whole +stored):\n%s", diff)
		}
	})
}
