package projector_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// The threads of a session that was rewound any number of times equal a fold of its live list alone, at every record,
// in forks too, and wherever its snapshots were taken.
func TestRewoundThreads(t *testing.T) {
	t.Run("W-01 threads after rewinds", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			r := drawRewound(t, func(r *rewound) {
				if rapid.IntRange(0, 3).Draw(t, "look") == 0 {
					r.mustFollow(t, drawRecord(t, r.log))
				}
			})
			for _, id := range r.ids {
				own := r.log.Of(events.Session("", id))
				r.mustFollow(t, own[len(own)-1])
			}
		})
	})
}

// rewound draws sessions in which most rewinds return to a beginning of the live list.
type rewound struct {
	*borders
	ids []string
}

// drawRewound draws sessions, and calls look after each step.
func drawRewound(t *rapid.T, look func(*rewound)) *rewound {
	r := &rewound{borders: drawBorders(t, nil), ids: []string{"s0"}}
	r.add(t, "s0", turnOf("main", 0))
	for n := range rapid.IntRange(6, 30).Draw(t, "steps") {
		r.step(t, n+1)
		look(r)
	}
	return r
}

func turnOf(thread string, n int) *events.TurnAppended {
	return &events.TurnAppended{Entries: []events.Entry{{Thread: thread, Turn: events.Raw(fmt.Sprint(n))}}}
}

// step appends the next event to one of the sessions.
func (r *rewound) step(t *rapid.T, n int) {
	id := rapid.SampledFrom(r.ids).Draw(t, "session")
	m := modelOf(r.log, id, 0)
	threads := m.threads(m.head())
	thread := rapid.SampledFrom([]string{"main", "other"}).Draw(t, "thread")
	have := len(threads[thread])
	p := events.Payload(turnOf(thread, n))
	switch op := rapid.IntRange(0, 15).Draw(t, "op"); {
	case op == 0 && have > 0:
		p = &events.ThreadPinned{Thread: thread, Pins: map[int]bool{rapid.IntRange(0, have-1).Draw(t, "turn"): true}}
	case op == 1 && have > 0:
		with := turnOf("third", n)
		with.Pins = map[string]map[int]bool{thread: {rapid.IntRange(0, have-1).Draw(t, "turn"): true}}
		p = with
	case op == 2:
		with := turnOf("third", n)
		with.ThreadMeta = map[string]events.Raw{thread: events.Raw(fmt.Sprintf(`{"m":%d}`, n))}
		p = with
	case op == 3:
		keep := rapid.IntRange(0, have).Draw(t, "keep")
		items := []events.Item{{Turn: events.Raw(fmt.Sprint(n))}}
		if keep > 0 {
			items = append(items, events.Item{Keep: &[2]int{have - keep, have}})
		}
		p = &events.ThreadReplaced{Threads: map[string]events.Replacement{thread: {Items: items}}, Others: "keep", Reason: "save"}
	case op == 4 && have > 0:
		p = &events.ThreadTruncated{Lengths: map[string]int{thread: rapid.IntRange(0, have-1).Draw(t, "length")}, Reason: "cut"}
	case op == 5 && len(r.ids) < 4:
		p = &events.SessionCreated{Kind: events.KindConversation, CreatedAt: "2026-01-01T00:00:00Z", Fork: &events.Fork{Session: id, Offset: drawRecord(t, m.history).Offset}}
		id = fmt.Sprint("s", len(r.ids))
		r.ids = append(r.ids, id)
	case op == 6:
		own := r.log.Of(events.Session("", id))
		if i := slices.IndexFunc(own, func(rec events.Record) bool { return rec.Type == events.TypeSessionRewound }); i > 0 {
			p = &events.SessionRewound{To: own[i].Offset - 1, Undoes: own[i].Offset}
		}
	case op > 10:
		if live := m.head(); len(live) > 0 { // to one of the last live records
			k := live[max(0, len(live)-1-rapid.IntRange(0, 5).Draw(t, "back"))]
			p = &events.SessionRewound{To: m.history[k-1].Offset}
		}
	}
	r.add(t, id, p)
}

// mustFollow compares a session as of one of its records with a log of its live records, which has no rewind.
func (r *rewound) mustFollow(t *rapid.T, rec events.Record) {
	t.Helper()
	m := modelOf(r.log, rec.Subject.ID, rec.Offset)
	var live testkit.Records
	for _, k := range m.head() {
		if one := m.history[k-1]; one.Type != events.TypeSessionCreated {
			one.Subject = rec.Subject
			live = append(live, one)
		}
	}
	got := mustLoad(t, r.loader(&r.store), rec.Subject, rec.Offset).Threads
	want := make(projector.Threads)
	if len(live) > 0 {
		want = mustLoad(t, &projector.Loader{Source: live}, rec.Subject, 0).Threads
	}
	if got.Hash() != want.Hash() {
		t.Fatalf("%s at %v: got %v, want %v", rec.Subject.ID, rec.Offset, modelView(got), modelView(want))
	}
	if metas := func(threads projector.Threads) map[string]string {
		l := make(map[string]string)
		for name, th := range threads {
			l[name] = string(th.Meta)
		}
		return l
	}; !maps.Equal(metas(got), metas(want)) {
		t.Fatalf("%s at %v: got metadata %v, want %v", rec.Subject.ID, rec.Offset, metas(got), metas(want))
	}
}
