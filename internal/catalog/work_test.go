package catalog

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// dues are all kinds of due work.
var dues = []string{projector.DueQueue, projector.DueOverdue, projector.DueGone, projector.DueHandover, projector.DueFlow, projector.DueAgentLease,
	projector.DueAgentEnded, projector.DueAgentArchived, projector.DueDocument, projector.DueOverlay, projector.DueOrphan}

// compareDue compares in the order of Due.
func compareDue(a, b projector.Due) int {
	key := func(s events.Subject) string { return s.Namespace + "\x00" + s.Kind + "\x00" + s.ID }
	if c := a.At.Compare(b.At); c != 0 {
		return c
	}
	if c := strings.Compare(key(a.Subject), key(b.Subject)); c != 0 {
		return c
	}
	return int(a.About) - int(b.About)
}

// foldWork applies records to a view. If wild is not nil, the view is stopped, killed, damaged, rebuilt, and told to
// forget, at random.
func foldWork(t *rapid.T, path string, records testkit.Records, wild *rand.Rand) *Work {
	t.Helper()
	ctx := t.Context()
	w := newWork(path, current, nullLogger)
	begin := func() events.Offset {
		c, aside, err := w.Begin(ctx)
		must(t, err)
		if len(aside) > 0 {
			t.Fatalf("subjects are quarantined: %v", aside)
		}
		return c.Offset
	}
	at := begin()
	commit := func(v *Work, rec events.Record) {
		must(t, v.Commit(ctx, projector.Cursor{Offset: rec.Offset, EventID: rec.ID, Recorded: rec.Recorded}))
	}
	for i := 0; i < len(records); i++ {
		if records[i].Offset <= at {
			continue
		}
		must(t, w.Apply(ctx, projector.Decode(records[i])))
		last := i == len(records)-1
		if !last && (wild == nil || wild.IntN(24) > 0) {
			continue
		}
		fate := 9
		if !last {
			fate = wild.IntN(9)
		}
		if fate > 0 {
			commit(w, records[i])
			at = records[i].Offset
		}
		switch fate {
		case 0, 1: // crash
			must(t, w.Close())
			w = newWork(path, current, nullLogger)
		case 2:
			must(t, w.Close())
			must(t, os.WriteFile(path, []byte("this is no database, and it is longer than a header of one would be, to be sure of it, by far"), 0o600))
		case 3:
			second := newWork(path, nextSet, nullLogger)
			_, _, err := second.Begin(ctx)
			must(t, err)
			for _, rec := range records[:i+1] {
				must(t, second.Apply(ctx, projector.Decode(rec)))
			}
			commit(second, records[i])
			must(t, second.Replace(ctx))
		case 4:
			must(t, w.Forget(ctx, records[i].Subject))
			commit(w, records[i])
			if all := begin(); all != 0 {
				t.Fatalf("the view continues at %v, want the beginning: other subjects still have effects of the forgotten one", all)
			}
		default:
			continue
		}
		at = begin()
		for i >= 0 && records[i].Offset > at {
			i--
		}
	}
	return w
}

// With all these events, the tables equal those of a fold in one go.
func TestWorkIsAFold(t *testing.T) {
	testkit.NotUnderRace(t)
	testkit.Long(t)
	rapid.Check(t, func(t *rapid.T) {
		records, dir := workHistory().Draw(t, "log"), temporary(t)
		whole := foldWork(t, filepath.Join(dir, "whole.db"), records, nil)
		defer whole.Close()
		wild := foldWork(t, filepath.Join(dir, "wild.db"), records, chance(t, "fates"))
		defer wild.Close()
		for _, table := range workForm.tables {
			diff, err := difference(t.Context(), wild.conn, whole.conn, table, current, current)
			must(t, err)
			if diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

// A change of a queue's settings concerns items whose rows are stored, and items that changed since.
func TestSettingsMeetAttempts(t *testing.T) {
	testkit.NotUnderRace(t)
	rapid.Check(t, func(t *rapid.T) {
		g := &workDrawer{t: t, rand: chance(t, "history"), clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), claims: make(map[string][]events.Offset)}
		g.session("queue/q", events.KindQueue)
		turns := &events.TurnAppended{}
		for _, id := range []string{"1", "2"} {
			turns.Entries = append(turns.Entries, events.Entry{Thread: events.MainThread, Turn: events.Raw(`{}`), Meta: fmt.Appendf(nil, `{"id":%q}`, id)})
		}
		g.add("queue/q", turns)
		for range 4 + g.n(8) {
			item := g.of("1", "2")
			session, ref, until := projector.ItemSession("q", item), events.RunRef{Kind: events.KindItem, ID: item}, int64(0)
			switch g.n(4) {
			case 0, 1:
				g.add(session, &events.RunStarted{Run: ref, Worker: "w", LeaseUntil: g.clock.Add(time.Hour).UnixMilli()})
				g.claims[session] = append(g.claims[session], g.at)
			case 2:
				g.add(session, &events.RunProgressed{Run: ref, Kind: projector.ItemFailed, LeaseUntil: &until, Fence: g.fence(session)})
			case 3:
				g.set("queue/q", "settings", g.of(`{"maxAttempts":1}`, `{"maxAttempts":2}`, `null`))
			default:
				g.add(session, &events.RunFinished{Run: ref, Outcome: "completed", Result: events.Raw(`1`), Fence: g.fence(session)})
			}
		}
		dir := temporary(t)
		whole := foldWork(t, filepath.Join(dir, "whole.db"), g.records, nil)
		defer whole.Close()
		split := newWork(filepath.Join(dir, "split.db"), current, nullLogger)
		defer split.Close()
		_, _, err := split.Begin(t.Context())
		must(t, err)
		for i, rec := range g.records {
			must(t, split.Apply(t.Context(), projector.Decode(rec)))
			if i == len(g.records)-1 || g.n(2) == 0 {
				must(t, split.Commit(t.Context(), projector.Cursor{Offset: rec.Offset, EventID: rec.ID, Recorded: rec.Recorded}))
			}
		}
		for _, table := range workForm.tables {
			diff, err := difference(t.Context(), split.conn, whole.conn, table, current, current)
			must(t, err)
			if diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

// Due entries and lists equal the result of checking every subject, in pages of any size.
func TestWorkAgreesWithModel(t *testing.T) {
	testkit.NotUnderRace(t)
	rapid.Check(t, func(t *rapid.T) {
		records, dir := workHistory().Draw(t, "log"), temporary(t)
		must(t, foldWork(t, filepath.Join(dir, WorkFileName), records, nil).Close())
		r, err := OpenWork(t.Context(), dir)
		must(t, err)
		defer r.Close()
		here, there := workModelOf(records, events.DefaultNamespace), workModelOf(records, "elsewhere")
		for _, what := range dues {
			mustBeDue(t, r, what, slices.SortedFunc(slices.Values(append(here.due(records, what), there.due(records, what)...)), compareDue))
		}
		for _, m := range []*workModel{here, there} {
			mustListQueues(t, r, m)
			mustListMail(t, r, m)
			mustListRest(t, r, m)
			mustRestore(t, r, m, records[len(records)-1].Offset)
		}
		at, err := r.Cursor(t.Context())
		must(t, err)
		if at != records[len(records)-1].Offset {
			t.Fatalf("the view is at %v", at)
		}
	})
}

func mustBeDue(t *rapid.T, r WorkReader, what string, want []projector.Due) {
	t.Helper()
	never := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	have, err := r.Due(t.Context(), what, never, 0)
	must(t, err)
	for i := range have {
		if what == projector.DueQueue {
			have[i].About = 0 // any of those whose lease ends first
		}
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
	if len(want) == 0 {
		return
	}
	upto, limit := want[rapid.IntRange(0, len(want)-1).Draw(t, "upto")].At, rapid.IntRange(1, 3).Draw(t, "limit")
	part, err := r.Due(t.Context(), what, upto, limit)
	must(t, err)
	first := slices.DeleteFunc(slices.Clone(have), func(d projector.Due) bool { return d.At.After(upto) })
	if first = first[:min(limit, len(first))]; len(part) != len(first) || !part[0].At.Equal(first[0].At) || !part[len(part)-1].At.Equal(first[len(first)-1].At) {
		t.Fatalf("%s up to %v, at most %d: %v, want %v", what, upto, limit, part, first)
	}
	if none, err := r.Due(t.Context(), what, want[0].At.Add(-time.Millisecond), 0); err != nil || len(none) > 0 {
		t.Fatalf("%s before: %v, %v", what, none, err)
	}
}

func mustListQueues(t *rapid.T, r WorkReader, m *workModel) {
	t.Helper()
	have := readPages(t, func(p WorkPage) ([]QueueListed, error) { return r.Queues(t.Context(), p) }, m.ns, func(l QueueListed) string { return l.ID })
	n := 0
	for _, id := range slices.Sorted(maps.Keys(m.queues)) {
		q := m.queues[id]
		if q.Queue.Last == 0 {
			continue
		}
		n++
		states := map[string]string{}
		want := QueueListed{Namespace: m.ns, ID: id, Title: q.Queue.Title, Owner: q.Queue.Owner, Created: q.Queue.Created, Serial: q.Queue.Settings.Serial, Lease: q.Queue.Settings.LeaseTime(), Attempts: q.Queue.Settings.Attempts(), Pass: q.Queue.Settings.Dead == "pass", OnEmpty: q.Queue.OnEmpty, Head: q.Queue.Last}
		for _, i := range q.Items {
			states[i.ID] = m.state(q, i)
			*map[string]*int{StateReady: &want.Ready, StateClaimed: &want.Claimed, StateWaiting: &want.Waiting, StateDone: &want.Done, StateDead: &want.Dead}[states[i.ID]]++
		}
		if n > len(have) || have[n-1] != want {
			t.Fatalf("queues %+v, want %+v", have, want)
		}
		mustListItems(t, r, m, q, states)
	}
	if n != len(have) {
		t.Fatalf("%d queues, want %d", len(have), n)
	}
}

// state computes the state of an item from its queue.
func (m *workModel) state(q *projector.Work, i *projector.QueueItem) string {
	switch {
	case i.IsDone():
		return StateDone
	case i.IsDead():
		return StateDead
	case i.IsHeld(m.now):
		return StateClaimed
	case isOver(i.ExpiresAt, m.now):
		return StateDead
	case i.Fence == 0 && (len(q.Waits(i)) > 0 || i.Due().After(m.now)):
		return StateWaiting
	}
	return StateReady
}

// mustRestore checks that a stored queue can be folded further.
func mustRestore(t *rapid.T, r WorkReader, m *workModel, upto events.Offset) {
	t.Helper()
	for id, q := range m.queues {
		limit := rapid.IntRange(0, 3).Draw(t, "most")
		have, at, err := r.Queue(t.Context(), m.ns, id, limit)
		must(t, err)
		if at != upto {
			t.Fatalf("queue %s is as of %v, want %v", id, at, upto)
		}
		if diff := cmp.Diff(q.Queue, have.Queue); diff != "" {
			t.Fatalf("queue %s (-want +got):\n%s", id, diff)
		}
		open := maps.Clone(q.Items)
		maps.DeleteFunc(open, func(_ string, i *projector.QueueItem) bool { return i.IsDone() })
		for item := range have.Items {
			if open[item] == nil {
				t.Fatalf("queue %s has item %s, which is done", id, item)
			}
		}
		for item, want := range open {
			if have.Items[item] == nil && mayMiss(q, have, want, limit) {
				continue
			}
			left := *want
			left.After = slices.DeleteFunc(slices.Clone(want.After), func(id string) bool { return q.Items[id] != nil && q.Items[id].IsDone() })
			if diff := cmp.Diff(&left, have.Items[item], cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("item %s of %s (-want +got):\n%s", item, id, diff)
			}
			if waits := q.Waits(want); !slices.Equal(waits, have.Waits(have.Items[item])) {
				t.Fatalf("item %s of %s waits for %q, want %q", item, id, have.Waits(have.Items[item]), waits)
			}
		}
	}
}

// mayMiss reports whether an item may be missing: it is free, has no conditions, and at least limit items precede it.
func mayMiss(q, have *projector.Work, i *projector.QueueItem, limit int) bool {
	for _, o := range q.Items {
		if slices.Contains(o.After, i.ID) {
			return false
		}
	}
	before := 0
	for _, o := range have.Items {
		if q.Queue.CompareTurn(o, i) < 0 {
			before++
		}
	}
	return limit > 0 && before >= limit && i.Fence == 0 && i.Ended == 0 && i.DueAt == "" && len(i.After) == 0 && have.Upto != nil && !have.IsNext(i)
}

func isOver(until events.Timestamp, now time.Time) bool {
	at, ok := until.Time()
	return ok && !ceiling(at).After(now)
}

func mustListItems(t *rapid.T, r WorkReader, m *workModel, q *projector.Work, states map[string]string) {
	t.Helper()
	for _, state := range []string{"", StateReady, StateClaimed, StateWaiting, StateDone, StateDead} {
		var want []ItemListed
		for _, i := range slices.SortedFunc(maps.Values(q.Items), (*projector.QueueItem).CompareOrder) {
			if s := states[i.ID]; s == state || state == "" && s != StateDone {
				want = append(want, ItemListed{*i, s})
			}
		}
		query := ItemQuery{Namespace: m.ns, Queue: q.Queue.ID, State: state, Limit: rapid.IntRange(0, 2).Draw(t, "limit")}
		var have []ItemListed
		for {
			page, err := r.Items(t.Context(), query)
			must(t, err)
			if have = append(have, page...); len(page) == 0 || query.Limit == 0 {
				break
			}
			query.After, query.Index = page[len(page)-1].At, page[len(page)-1].Index
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Fatalf("%s items of %s (-want +got):\n%s", state, q.Queue.ID, diff)
		}
	}
}

func mustListMail(t *rapid.T, r WorkReader, m *workModel) {
	t.Helper()
	have := readPages(t, func(p WorkPage) ([]InboxListed, error) { return r.Inboxes(t.Context(), p) }, m.ns, func(l InboxListed) string { return l.Receiver })
	open := map[[3]string]events.Offset{}
	for _, l := range m.mail.Open() {
		open[[3]string{l.From, l.Receiver, l.ID}] = l.Offset
	}
	asked := 0
	for n, receiver := range slices.Sorted(maps.Keys(m.mail.Inboxes)) {
		in := m.mail.Inboxes[receiver]
		if n >= len(have) || have[n].Receiver != receiver || have[n].Seen != in.Cursor() || have[n].Messages != int64(len(in.Letters)) ||
			have[n].Unread != int64(len(in.Unread())) || have[n].Status != in.Status() || have[n].Head != in.Last {
			t.Fatalf("inboxes %+v, want %+v of %s", have, in, receiver)
		}
		q := MessageQuery{Namespace: m.ns, Receiver: receiver, Unread: rapid.Bool().Draw(t, "unread"), Limit: rapid.IntRange(0, 2).Draw(t, "limit")}
		want := in.Letters
		if q.Unread {
			want = in.Unread()
		}
		for _, l := range want {
			page, err := r.Messages(t.Context(), q)
			must(t, err)
			if len(page) == 0 || page[0].Offset != l.Offset || page[0].Number != l.Index || page[0].ID != l.ID || page[0].From != l.From || page[0].Bytes != int64(l.Bytes) ||
				page[0].Unread != (l.Offset > in.Cursor()) {
				t.Fatalf("messages %+v, want %+v first", page, l)
			}
			q.After, q.Number = l.Offset, l.Index
		}
		if page, err := r.Messages(t.Context(), q); err != nil || len(page) > 0 {
			t.Fatalf("the page after the last message is %+v, error %v", page, err)
		}
		questions, err := questionsOf(t.Context(), r, m.ns, receiver)
		must(t, err)
		for _, l := range questions {
			asked++
			if open[[3]string{l.From, l.Receiver, l.ID}] != l.Offset || !l.Open {
				t.Fatalf("the open questions to %s are %+v, want %v", receiver, l, open)
			}
		}
	}
	for _, l := range m.mail.Open() {
		if m.mail.Inboxes[l.From] == nil {
			asked++ // asked by a sender without an inbox
		}
	}
	if asked != len(open) {
		t.Fatalf("got %d questions, want %d", asked, len(open))
	}
}

func mustListRest(t *rapid.T, r WorkReader, m *workModel) {
	t.Helper()
	status := rapid.SampledFrom([]string{"", "idle", "working", "archived"}).Draw(t, "status")
	agents := readPages(t, func(p WorkPage) ([]Agent, error) { return r.Agents(t.Context(), p, status) }, m.ns, func(a Agent) string { return a.ID })
	var want []Agent
	for _, id := range slices.Sorted(maps.Keys(m.agents)) {
		a := m.agents[id]
		_, purged := events.Timestamp(a.Text("purgedAt")).Time()
		if s := a.Text("status"); a.Kind == events.KindAgent && !purged && (status == "" || s == status || status == "idle" && s == "") {
			want = append(want, Agent{ID: id, Name: a.Text("title"), Owner: a.Text("owner"), Status: s, Reason: a.Text("statusReason"), LastAt: a.LastAt})
		}
	}
	for i, a := range agents {
		agents[i] = Agent{ID: a.ID, Name: a.Name, Owner: a.Owner, Status: a.Status, Reason: a.Reason, LastAt: a.LastAt}
	}
	if !slices.Equal(agents, want) {
		t.Fatalf("agents %+v, want %+v", agents, want)
	}
	onlyOpen := rapid.Bool().Draw(t, "open")
	flows := readPages(t, func(p WorkPage) ([]FlowListed, error) { return r.Flows(t.Context(), p, onlyOpen) }, m.ns, func(l FlowListed) string { return l.ID })
	for _, id := range slices.Sorted(maps.Keys(m.flows)) {
		l := m.flows[id]
		if onlyOpen && !l.ended.IsZero() {
			continue
		}
		if len(flows) == 0 || flows[0].ID != id || flows[0].Held != l.held || flows[0].Run.State != l.State || flows[0].Run.Worker != l.Worker || flows[0].Run.Owner != l.Owner ||
			flows[0].Run.Claim != l.Claim || (flows[0].EndedAt == 0) != l.ended.IsZero() || l.Last() != nil && flows[0].Outcome != l.Last().Outcome {
			t.Fatalf("flows %+v, want %+v", flows, l)
		}
		flows = flows[1:]
	}
	if len(flows) > 0 {
		t.Fatalf("got unknown flows: %+v", flows)
	}
	orphans, err := r.Orphans(t.Context(), m.ns, 0, events.Subject{})
	must(t, err)
	n := 0
	for sub, owner := range m.owners() {
		if at := m.went(owner); !at.IsZero() {
			n++
			if !slices.ContainsFunc(orphans, func(o Orphan) bool { return o.Subject == sub && o.Gone.Equal(ceiling(at)) }) {
				t.Fatalf("the orphans lack %v: %+v", sub, orphans)
			}
		}
	}
	if n != len(orphans) {
		t.Fatalf("got %d orphans, want %d", len(orphans), n)
	}
}

// readPages reads a list in pages of a random size.
func readPages[T any](t *rapid.T, read func(WorkPage) ([]T, error), ns string, id func(T) string) (list []T) {
	t.Helper()
	p := WorkPage{Namespace: ns, Limit: rapid.IntRange(0, 2).Draw(t, "limit")}
	for {
		page, err := read(p)
		must(t, err)
		if list = append(list, page...); len(page) == 0 || p.Limit == 0 {
			return list
		}
		p.After = id(page[len(page)-1])
	}
}

// Two hand-written cases: an answer of a receiver that has left, and an item that waits for a dead one.
func TestWorkByHand(t *testing.T) {
	dir := t.TempDir()
	w := NewWork(dir, nullLogger)
	_, _, err := w.Begin(t.Context())
	must(t, err)
	at := events.Offset(0)
	say := func(id string, p events.Payload) {
		e, err := events.New("urn:test", events.Session("n", id), p)
		must(t, err)
		at++
		must(t, w.Apply(t.Context(), projector.Decode(events.Record{Event: e, Offset: at, Recorded: time.Unix(int64(at), 0)})))
		must(t, w.Commit(t.Context(), projector.Cursor{Offset: at, Recorded: time.Unix(int64(at), 0)}))
	}
	turn := func(thread, meta string) events.Payload {
		return &events.TurnAppended{Entries: []events.Entry{{Thread: thread, Turn: events.Raw(`1`), Meta: events.Raw(meta)}}}
	}
	set := func(name, value string) events.Payload {
		return &events.SessionUpdated{Set: events.Fields{{Name: name, Value: events.Raw(value)}}}
	}
	say("inbox/b", turn("inbox", `{"id":"m","from":"a"}`))
	say("inbox/b", set("status", `"archived"`)) // at 2 s
	r, err := OpenWork(t.Context(), dir)
	must(t, err)
	defer r.Close()
	gone, err := r.Due(t.Context(), projector.DueGone, time.Unix(9, 0), 9)
	if err != nil || len(gone) != 1 || gone[0].Subject != events.Session("n", "inbox/b") || !gone[0].At.Equal(time.Unix(2, 0)) {
		t.Errorf("b's departure: due at %v, error %v", gone, err)
	}
	say("inbox/a", turn("inbox", `{"id":"r","from":"b","replyTo":"m"}`))
	if gone, err = r.Due(t.Context(), projector.DueGone, time.Unix(9, 0), 9); err != nil || len(gone) > 0 {
		t.Errorf("after b's answer: due at %v, error %v", gone, err)
	}

	say("queue/q", turn("main", `{"id":"1"}`))
	say("queue/q", turn("main", `{"id":"2","after":["1"]}`))
	say("item/q/1", &events.RunFinished{Run: events.RunRef{Kind: events.KindItem, ID: "1"}, Outcome: "stopped:so", Result: events.Raw(`1`)})
	for dead, want := range map[string][3]int{`{}`: {1, 1, 0}, `{"dead":"pass"}`: {1, 0, 1}} {
		say("queue/q", set("settings", dead))
		list, err := r.Queues(t.Context(), WorkPage{Namespace: "n"})
		must(t, err)
		if len(list) != 1 || [3]int{list[0].Dead, list[0].Waiting, list[0].Ready} != want {
			t.Errorf("%s: got %+v", dead, list)
		}
	}
	must(t, w.Close())
}
