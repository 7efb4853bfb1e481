package tavern_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// hostileNumbers are numbers and other values for a numeric field.
var hostileNumbers = []string{"18446744073709551615", "9223372036854775807", "-9223372036854775808", "9007199254740991", "-1", "0", "1e300", "1.5", `"1"`, "null", "[]", "{}", "true"}

// hostileTimes are times and invalid times.
var hostileTimes = []string{`"9999-12-31T23:59:59.999Z"`, `"0000-01-01T00:00:00Z"`, `"1000000000-01-01T00:00:00Z"`, `"soon"`, `""`, "7", "null"}

// hostileTexts are possible values of a text field.
var hostileTexts = []string{`"\u0000\u001b[2J\u202e"`, `"..\/..\/x"`, `"\ud800"`, `""`, "7", "null", `["x"]`, `"` + strings.Repeat("x", 100_000) + `"`}

// hostileSets returns values of session fields, by field.
func hostileSets() map[string][]string {
	sets := map[string][]string{"onEmpty": hostileTexts, "title": hostileTexts, "owner": append(hostileTexts, `"agent/me"`, `"flow/f"`), "status": append(hostileTexts, `"archived"`, `"stopped:"`),
		"statusReason": hostileTexts, "finishedAt": hostileTimes, "archivedAt": hostileTimes}
	for _, n := range hostileNumbers {
		sets["cursors"] = append(sets["cursors"], n, `{"inbox":`+n+`}`)
		sets["settings"] = append(sets["settings"], n, `{"lease":`+n+`,"maxAttempts":`+n+`}`, `{"serial":`+n+`,"dead":`+n+`}`)
		sets["handover"] = append(sets["handover"], n, `{"at":`+n+`}`, `{"refusals":`+n+`,"at":1,"last":"9999-12-31T23:59:59Z"}`)
	}
	for _, at := range hostileTimes {
		sets["lease"] = append(sets["lease"], `{"holder":"w","until":`+at+`}`)
		sets["handover"] = append(sets["handover"], `{"at":3,"refusals":3,"last":`+at+`}`)
		sets["binding"] = append(sets["binding"], `{"vendor":"claude","id":"x","expiresAt":`+at+`}`)
	}
	return sets
}

// hostileRuns are claims about a run: the publisher's own, and another program's.
func hostileRuns(ref events.RunRef, fence events.Offset) (list []events.Payload) {
	maxInt := int64(math.MaxInt64)
	for _, f := range []events.Offset{fence, fence + 1, 0, events.MaxOffset} {
		for _, until := range []int64{0, 1, maxInt, maxInt - 1, 253402300799999, 31556889864403199} {
			list = append(list, &events.RunProgressed{Run: ref, Kind: projector.ItemRenewed, LeaseUntil: &until, Fence: f, Step: maxInt, Seq: maxInt},
				&events.RunProgressed{Run: ref, Kind: "\u202e", LeaseUntil: &until, Fence: f, State: &events.StateChange{From: "run", To: "nowhere"}},
				&events.RunProgressed{Run: ref, Kind: "moved", Fence: f, State: &events.StateChange{From: "nowhere", To: "run"}, Step: 1, Note: strings.Repeat("n", 10_000)})
		}
		list = append(list, &events.RunProgressed{Run: ref, Kind: projector.ItemReleased, LeaseUntil: new(int64), Fence: f}, &events.RunProgressed{Run: ref, Kind: projector.ItemRequeued})
	}
	return append(list, &events.RunCreated{Run: ref, Owner: "flow/" + ref.ID, Parent: &events.Lineage{Session: "flow/" + ref.ID, Run: ref.ID}, After: []events.RunRef{ref}, Template: "document/workflow/none@1", MaxSteps: maxInt},
		&events.RunStarted{Run: ref, Worker: "\u202e\n", Attempt: maxInt, LeaseUntil: maxInt},
		&events.RunFinished{Run: events.RunRef{Kind: ref.Kind, ID: "of somebody else"}, Outcome: "completed", Result: events.Raw("1"), Fence: fence})
}

// hostileItems are metas of turns of a queue.
var hostileItems = []string{
	`{"id":"round1","after":["round2"]}`, `{"id":"round2","after":["round1"]}`, `{"id":"self","after":["self","self"]}`, `{"id":"never","dueAt":"9999-12-31T23:59:59.999Z"}`,
	`{"id":"early","dueAt":"0000-01-01T00:00:00Z"}`, `{"id":"bad due","dueAt":"1000000000-01-01T00:00:00Z"}`, `{"id":"bad priority","priority":1e9}`, `{"id":"bad after","after":[""]}`, `{"id":"claimed"}`, `{"id":7}`, `7`, `null`,
	`{"id":"\u202e\n..","owner":"agent/me","expiresAt":"9999-12-31T23:59:59Z"}`,
}

// hostileLetters are metas of turns of an inbox.
var hostileLetters = []string{
	`{"id":"l1","from":"me","to":"me","type":"t","thread":"t","replyTo":"l1","about":{"inbox":"me","id":"l1"},"malfunction":"overdue"}`,
	`{"id":"l2","from":"me","type":"t","amends":"l3","base":9007199254740991}`, `{"id":"l3","from":"me","type":"t","amends":"l2","base":1}`, `{"id":"l4","from":"me","amends":"l4"}`,
	`{"id":"l5","from":"me","expects":"x","deadline":"9999-12-31T23:59:59.999Z"}`, `{"id":"l5","from":"me","expects":"x","deadline":"0000-01-01T00:00:00Z"}`,
	`{"id":"l6","from":"a/../\n\u202e","expects":"x","deadline":"2000-01-01T00:00:00Z"}`, `{"id":"l7","from":"nobody","deadline":"1000000000-01-01T00:00:00Z"}`, `{"base":18446744073709551615}`, `{"bubble":["me","me"]}`, `7`,
}

// hostileEvents publishes events, without the handles, that no handle would write. It returns how many the log
// accepted.
func hostileEvents(t *testing.T, st *tally.Store, me string) (taken int) {
	t.Helper()
	ctx := t.Context()
	say := func(session string, p events.Payload) {
		expect := log.At(0) // a reader knows the last offset, and may claim to have seen it
		if last, err := st.Log.Last(ctx, st.Session(session).Subject()); err == nil {
			expect = log.At(last.Offset)
		}
		_, err := st.Session(session).Append(ctx, expect, p)
		if _, invalid := errors.AsType[*events.InvalidError](err); err != nil && !invalid && !errors.Is(err, log.ErrConflict) {
			t.Errorf("%s %s: %v", session, p.EventType(), err)
		}
		if err == nil {
			taken++
		}
	}
	item, flow := projector.ItemSession("hostile", "claimed"), "flow/hostile"
	for field, values := range hostileSets() {
		for _, v := range values {
			for _, session := range []string{"queue/hostile", item, "inbox/" + me, "agent/" + me, flow} {
				say(session, &events.SessionUpdated{Set: events.Fields{{Name: field, Value: events.Raw(v)}}})
			}
		}
	}
	for _, meta := range hostileItems {
		say("queue/hostile", &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: events.Raw("1"), Meta: events.Raw(meta)}}})
	}
	for _, meta := range hostileLetters {
		say("inbox/"+me, &events.TurnAppended{Entries: []events.Entry{{Thread: "inbox", Turn: events.Raw("1"), Meta: events.Raw(meta)}}})
	}
	for session, ref := range map[string]events.RunRef{item: {Kind: "item", ID: "claimed"}, flow: {Kind: "workflow", ID: "hostile"}, "queue/hostile": {Kind: "item", ID: "round1"}, "inbox/" + me: {Kind: "item", ID: "claimed"}} {
		fence := events.Offset(1)
		if last, err := st.Log.Last(ctx, st.Session(session).Subject()); err == nil {
			fence = last.Offset
		}
		say(session, &events.RunStarted{Run: ref, Worker: "liar", LeaseUntil: math.MaxInt64})
		for _, p := range hostileRuns(ref, fence+1) {
			say(session, p)
		}
		say(session, &events.SessionRewound{To: fence})
		say(session, &events.ThreadReplaced{Threads: map[string]events.Replacement{"main": {}, "inbox": {}}, Others: "keep", Reason: "clear"})
	}
	for n, parent := range []string{"agent/" + me, "agent/round-2", "agent/round-1"} {
		say(fmt.Sprint("agent/round-", n), &events.SessionCreated{Kind: events.KindAgent, CreatedAt: "2026-01-01T00:00:00Z", Parent: &events.Lineage{Session: parent}})
	}
	return taken
}

// Whatever a program with write access publishes without the handles: folds stay bounded and quick, nothing panics,
// reads return or are refused, daemons continue, and other programs' data stay valid.
func TestHostileEvents(t *testing.T) {
	testkit.NotUnderRace(t) // one step after the other; TestDaemons covers concurrent daemons there
	storetest.EachDir(t, func(t *testing.T, st *tally.Store, dir string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		flowTemplates(t, st)
		a := need(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{Name: "honest"}))
		me := a.ID()
		q, in := tavern.QueueOf(st, "hostile"), tavern.InboxOf(st, me)
		must(t, q.Create(ctx, tavern.QueueSettings{MaxAttempts: 1000}))
		inboxSend(t, st, me, inboxNote(me, "honest"))
		flowStart(t, st, "suite", "hostile")
		other := tavern.QueueOf(st, "other")
		need(other.Enqueue(ctx, tavern.Item{ID: "a", Body: []byte("1")}))
		if taken := hostileEvents(t, st, me); taken < 300 {
			t.Errorf("the log accepted only %d events", taken)
		}
		tavern.ForgetQueues(st)
		begun := time.Now()
		hostileReads(ctx, t, st, me, q, in)
		work := daemonScan(st)
		for _, now := range []time.Time{need(st.LogTime(ctx)), time.Now().AddDate(1, 0, 0), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)} {
			for _, d := range daemonsOf(st) {
				for range 3 {
					if res, err := d.Decide(ctx, work, now); err != nil || res.Err != nil {
						t.Errorf("%s at %v: %v", d.Name(), now, errors.Join(err, res.Err))
					}
				}
			}
		}
		hostileReads(ctx, t, st, me, q, in)
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("the pass took %v", took)
		}
		must(t, need(other.TryClaim(ctx, "w")).Finish(ctx, nil))
		if s := need(other.Get(ctx, "a")); s.State != tavern.ItemDone {
			t.Errorf("got %+v", s)
		}
		if strings.HasSuffix(t.Name(), "local") {
			hostileView(ctx, t, st, dir, me)
		}
	})
}

// A wait for a time in a million years ends, and does not poll.
func TestHostileWait(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		at       time.Time
		from, to time.Duration
	}{
		{now.Add(-time.Hour), 0, time.Millisecond}, {time.UnixMilli(math.MinInt64), 0, time.Millisecond}, {now.Add(time.Second), time.Second, time.Second + time.Millisecond},
		{time.UnixMilli(math.MaxInt64), time.Hour, 366 * 24 * time.Hour}, {time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), time.Hour, 366 * 24 * time.Hour},
	} {
		if wait := tavern.WaitFor(c.at, now); wait < c.from || wait > c.to {
			t.Errorf("the wait until %v lasts %v", c.at, wait)
		}
	}
}

// hostileReads calls every read.
func hostileReads(ctx context.Context, t *testing.T, st *tally.Store, me string, q *tavern.Queue, in *tavern.Inbox) {
	t.Helper()
	_, _, items := q.List(ctx, tavern.ListQuery{States: []tavern.ItemState{tavern.ItemReady, tavern.ItemWaiting, tavern.ItemClaimed, tavern.ItemDead, tavern.ItemDone}})
	_, _, letters := in.List(ctx, tavern.Page{Newest: true})
	_, agents := tavern.AgentOf(st, me).Info(ctx)
	f, flow := tavern.FlowOf(st, "hostile").State(ctx)
	if flow == nil {
		f.Steps()
		f.Visits()
		f.Allowed()
		f.Incomplete()
	}
	for what, err := range map[string]error{
		"items": items, "letters": letters, "the agent": agents, "the flow": flow, "settings": second(q.Settings(ctx)), "counts": second(q.Counts(ctx)), "an item": second(q.Get(ctx, "claimed")),
		"in a round": second(q.Get(ctx, "round1")), "the cursor": second(in.Cursor(ctx)), "unread": second(in.Unread(ctx)), "handed over": second(in.HandOver(ctx)), "life": second(tavern.LifecycleOf(st, "agent/"+me, nil).Life(ctx)),
		"what is due": second(q.Decide(ctx, time.Now())),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i, err := range tavern.Agents(ctx, st, tavern.AgentFilter{Archived: true}) {
		if err != nil {
			t.Errorf("the agents are %+v, error %v", i, err)
		}
	}
	for _, id := range []string{"l1", "l2", "l3", "l4", "l5", "none"} { // present or not, each call ends
		if _, err := in.Message(ctx, id); err != nil && !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("message %s: %v", id, err)
		}
	}
	for range 3 { // it returns an item, or does not wait
		c, err := q.TryClaim(ctx, "w")
		if empty, ok := errors.AsType[*tavern.EmptyError](err); ok {
			_ = empty.Error()
			break
		}
		if err != nil {
			t.Errorf("claim: %v", err)
			break
		}
		if err := c.Release(ctx); err != nil {
			t.Errorf("release: %v", err)
		}
	}
}

// hostileView waits for the view of all records, and lists its rows.
func hostileView(ctx context.Context, t *testing.T, st *tally.Store, dir, me string) {
	t.Helper()
	head := need(st.Log.Head(ctx))
	var r catalog.WorkReader
	for at := events.Offset(0); at < head; time.Sleep(10 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("the view stays at %v, the head is %v", at, head)
		}
		var err error
		if r, err = catalog.OpenWork(ctx, dir); err != nil {
			continue
		}
		at, _ = r.Cursor(ctx)
		if at < head {
			r.Close()
		}
	}
	defer r.Close()
	page := catalog.WorkPage{Namespace: st.Namespace()}
	for what, err := range map[string]error{
		"queues": second(r.Queues(ctx, page)), "items": second(r.Items(ctx, catalog.ItemQuery{Namespace: page.Namespace, Queue: "hostile"})), "inboxes": second(r.Inboxes(ctx, page)),
		"agents": second(r.Agents(ctx, page, "")), "flows": second(r.Flows(ctx, page, false)), "orphans": second(r.Orphans(ctx, page.Namespace, 0, events.Subject{})),
	} {
		if err != nil {
			t.Errorf("the view, %s: %v", what, err)
		}
	}
	heads := make(map[string]events.Offset) // of the view's subjects
	for _, i := range need(r.Inboxes(ctx, page)) {
		heads["inbox/"+i.Receiver] = i.Head
	}
	for _, l := range need(r.Queues(ctx, page)) {
		heads["queue/"+l.ID] = l.Head
	}
	for _, a := range need(r.Agents(ctx, page, "")) {
		heads["agent/"+a.ID] = a.Head
	}
	for id, at := range heads {
		if last := need(st.Log.Last(ctx, events.Session(page.Namespace, id))); last.Offset != at {
			t.Errorf("the view has %s up to %v, want %v", id, at, last.Offset)
		}
	}
	if heads["inbox/"+me] == 0 || heads["queue/hostile"] == 0 || heads["agent/"+me] == 0 {
		t.Errorf("the heads in the view are %v", heads)
	}
	for _, what := range []string{projector.DueQueue, projector.DueOverdue, projector.DueGone, projector.DueHandover, projector.DueFlow, projector.DueAgentLease, projector.DueAgentEnded, projector.DueAgentArchived, projector.DueOrphan} {
		if _, err := r.Due(ctx, what, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), 100); err != nil {
			t.Errorf("the view, due %s: %v", what, err)
		}
	}
}

// An item of 47 MiB of bytes or 63 MiB of text is returned whole, on each backend. 64 MiB of bytes exceed the largest
// value in base64, and are refused with nothing written.
func TestHostileItem(t *testing.T) {
	testkit.NotUnderRace(t)
	testkit.OnlySoak(t)
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		ctx, q := t.Context(), tavern.QueueOf(st, "large")
		bytesOf := func(mib int) []byte { return bytes.Repeat([]byte("0123456\xff"), mib<<17) }
		flowRefused[*events.InvalidError](t, st, "64 MiB of bytes", func() error { return second(q.Enqueue(ctx, tavern.Item{ID: "large", Body: bytesOf(64)})) })
		for n, body := range [][]byte{bytesOf(47), []byte(`"` + strings.Repeat("x", 63<<20) + `"`)} {
			need(q.Enqueue(ctx, tavern.Item{ID: fmt.Sprint(n), Body: body}))
			c := need(q.TryClaim(ctx, "w"))
			if !bytes.Equal(c.Item.Body, body) {
				t.Errorf("got %d bytes, want %d", len(c.Item.Body), len(body))
			}
			must(t, c.Finish(ctx, nil))
		}
	})
}
