package tavern_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

func TestInbox(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		for _, line := range []struct {
			name string
			test func(*testing.T, *tally.Store)
		}{
			{"D-04 message: sent, read by id, amended", inboxRoles},
			{"D-20 message: delivered or refused, answered, overdue", inboxAnswers},
			{"D-21 message past the tree: parents are told in the same append", inboxParents},
			{"D-39 inbox: cursor and messages are in the store alone", inboxStoreAlone},
			{"D-45 delivery: who decides what, and when", inboxDeciders},
			{"D-48 message: what it needs, and once", inboxNeeds},
			{"D-62 inbox is not rewound, and a rewind of its agent leaves its mail", inboxRewinds},
		} {
			t.Run(line.name, func(t *testing.T) { line.test(t, st) })
		}
	})
}

func inboxRoles(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	inboxAgent(t, st, "roles", "")
	in := tavern.InboxOf(st, "roles")
	sent := inboxSend(t, st, "roles", tavern.Message{ID: "m1\n\u202eevil", From: "a", Type: "note", Thread: "t", Body: json.RawMessage(`{"x" : [1,  2]}`)})
	inboxSend(t, st, "roles", inboxNote("a", "another"))

	got, err := in.Message(ctx, sent.ID)
	must(t, err)
	if string(got.Body) != `{"x" : [1,  2]}` || got.Offset != sent.Offset || got.Revision != sent.Offset || got.From != "a" || got.To != "roles" {
		t.Errorf("read %+v", got)
	}
	if at := need(in.At(ctx, sent.Offset)); at.ID != sent.ID {
		t.Errorf("the message at %v has the id %q", sent.Offset, at.ID)
	}
	for _, missing := range []func() error{
		func() error { _, err := in.Message(ctx, "m2"); return err },
		func() error { _, err := in.At(ctx, sent.Offset-1); return err },
		func() error { _, err := in.At(ctx, 1<<40); return err },
		func() error { _, err := tavern.InboxOf(st, "nobody").Message(ctx, sent.ID); return err },
		func() error { _, err := in.Amend(ctx, "m2", sent.Offset, tavern.Text("x")); return err },
		func() error { _, err := in.Amend(ctx, "", sent.Offset, tavern.Text("x")); return err },
		func() error { _, err := in.Amend(ctx, sent.ID, sent.Offset+1, tavern.Text("x")); return err },
	} {
		inboxRefused(t, st, tally.ErrNotFound, missing)
	}
	inboxRefused(t, st, tally.ErrExists, func() error {
		_, err := in.Send(ctx, tavern.Message{ID: sent.ID, From: "b", Type: "note", Thread: "t", Body: tavern.Text("mine")})
		if e, ok := errors.AsType[*tavern.MessageError](err); !ok || e.Have != sent.Offset || e.ID != sent.ID {
			t.Errorf("send another message with a used id: %#v", err)
		}
		return err
	})

	first, err := in.Amend(ctx, sent.ID, sent.Revision, tavern.Text("second"))
	must(t, err)
	again, err := in.Amend(ctx, sent.ID, sent.Revision, tavern.Text("second"))
	if must(t, err); again.Revision != first.Revision {
		t.Errorf("two amendments with the same text have the revisions %v and %v", first.Revision, again.Revision)
	}
	inboxRefused(t, st, log.ErrConflict, func() error {
		_, err := in.Amend(ctx, sent.ID, sent.Revision, tavern.Text("other"))
		if e, ok := errors.AsType[*tavern.AmendError](err); !ok || e.Have != first.Revision || e.Base != sent.Revision {
			t.Errorf("amend an old revision: %#v", err)
		}
		return err
	})
	third, err := in.Amend(ctx, sent.ID, first.Revision, tavern.Text("third"))
	must(t, err)
	got, err = in.Message(ctx, sent.ID)
	must(t, err)
	if string(got.Body) != `"third"` || got.Offset != sent.Offset || got.Revision != third.Revision {
		t.Errorf("the message after two amendments is %+v", got)
	}
	if diff := cmp.Diff([]string{`{"x" : [1,  2]}`, "another", "second", "third"}, inboxBodies(inboxAll(t, st, "roles"))); diff != "" {
		t.Error(diff)
	}
	if followed := inboxTake(t, in, sent.Offset, 3); followed[1].Amends != sent.ID || followed[2].Amends != sent.ID {
		t.Errorf("Follow returned %+v", followed)
	}
	newest, next, err := in.List(ctx, tavern.Page{Newest: true, Limit: 2})
	must(t, err)
	older, none, err := in.List(ctx, tavern.Page{Newest: true, After: next})
	must(t, err)
	if diff := cmp.Diff([]string{"third", "second", "another", `{"x" : [1,  2]}`}, inboxBodies(append(newest, older...))); diff != "" || none != 0 {
		t.Error(diff, none)
	}
}

func inboxAnswers(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	inboxAgent(t, st, "boss", "")
	inboxAgent(t, st, "hand", "boss")
	ask := func(key string, deadline time.Time) tavern.Message {
		return inboxSend(t, st, "hand", tavern.Message{Key: key, From: "boss", Type: "question", Thread: "build", Correlation: "c-" + key, Expects: "answer", Deadline: deadline, Class: "quick", Body: tavern.Text(key)})
	}
	for _, status := range []string{"archived", "stopped:reaped"} {
		inboxAgent(t, st, "late-"+status, "boss")
		inboxStatus(t, st, "late-"+status, status)
		inboxRefused(t, st, tavern.ErrReceiver, func() error {
			_, err := tavern.InboxOf(st, "late-"+status).Send(ctx, inboxNote("boss", "x"))
			if e, ok := errors.AsType[*tavern.ReceiverError](err); !ok || e.Status != status || errors.Is(err, tally.ErrNotFound) {
				t.Errorf("%s: got the error %v", status, err)
			}
			return err
		})
	}
	inboxRefused(t, st, tally.ErrNotFound, func() error { _, err := tavern.InboxOf(st, "ghost").Send(ctx, inboxNote("boss", "x")); return err })
	inboxRefused(t, st, tavern.ErrReceiver, func() error { // no answer could be delivered
		m := inboxNote("ghost", "x")
		m.Expects = "answer"
		_, err := tavern.InboxOf(st, "hand").Send(ctx, m)
		return err
	})

	soon := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	right, wrong, none := ask("right", soon), ask("wrong", soon), ask("none", soon)
	hand := tavern.InboxOf(st, "hand")
	for i, m := range inboxTake(t, hand, 0, 3) {
		answer := tavern.Message{Body: tavern.Text("re " + m.Correlation)}
		if i == 1 {
			answer.Type = "shrug"
		}
		if i == 2 {
			continue
		}
		for range 2 {
			_, err := hand.Reply(ctx, m, answer)
			must(t, err)
		}
	}
	inboxRefused(t, st, tally.ErrExists, func() error {
		_, err := hand.Reply(ctx, right, tavern.Message{Body: tavern.Text("I have thought again")})
		return err
	})
	inboxRefused(t, st, nil, func() error { _, err := tavern.InboxOf(st, "boss").Reply(ctx, right, inboxNote("", "x")); return err })
	got := inboxAll(t, st, "boss")
	if len(got) != 2 {
		t.Fatalf("the boss got %+v", got)
	}
	for i, want := range []tavern.Message{{ReplyTo: right.ID, Correlation: "c-right", Type: "answer"}, {ReplyTo: wrong.ID, Correlation: "c-wrong", Type: "shrug", Malfunction: tavern.MalfunctionType}} {
		m := got[i]
		if m.ReplyTo != want.ReplyTo || m.Correlation != want.Correlation || m.Type != want.Type || m.Malfunction != want.Malfunction || m.From != "hand" || m.Thread != "build" {
			t.Errorf("answer %d is %+v, want %+v", i, m, want)
		}
	}
	open := slices.DeleteFunc(inboxMail(t, st).Open(), func(l projector.Letter) bool { return l.From != "boss" })
	if len(open) != 1 || open[0].ID != none.ID || open[0].Receiver != "hand" {
		t.Errorf("the open questions are %+v, want only %q", open, none.ID)
	}
}

func inboxParents(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	for _, a := range [][2]string{{"p", ""}, {"a", "p"}, {"b", "p"}, {"a1", "a"}, {"b1", "b"}, {"a11", "a1"}, {"x", "y"}, {"y", "x"}, {"x1", "x"}} {
		inboxAgent(t, st, "t-"+a[0], map[bool]string{true: "t-" + a[1]}[a[1] != ""])
	}
	notices := func() map[string]int {
		n := make(map[string]int)
		for who, in := range inboxMail(t, st).Inboxes {
			for _, l := range in.Letters {
				if l.Type == tavern.TypeNotice && strings.HasPrefix(who, "t-") {
					n[who[2:]]++
				}
			}
		}
		return n
	}
	for _, c := range []struct{ from, to, told string }{
		{"a", "p", ""},         // up
		{"p", "a", ""},         // down
		{"a", "a", ""},         // to itself
		{"a", "b", "p"},        // to a sibling
		{"a1", "user", "a"},    // past its parent
		{"user", "a1", "a"},    // past it, the other way
		{"a", "user", "p"},     //
		{"p", "user", ""},      // no agent is above
		{"a1", "b1", "a b"},    // both parents
		{"a", "b1", "b p"},     //
		{"a11", "a", "a1"},     // past one
		{"x1", "user", "x"},    // above x is y, and above y is x
		{"ci", "a1", "a"},      // a sender that is not an agent
		{"x", "y", ""},         // each is the other's parent
		{"x1", "y", "x"},       //
		{"a1", "b1", "a p"},    // with b stopped
		{"x1", "user", "gone"}, // with both stopped: a circle of parents
	} {
		told := strings.Fields(c.told)
		switch c.told {
		case "a p":
			inboxStatus(t, st, "t-b", "stopped:reaped")
		case "gone":
			inboxStatus(t, st, "t-x", "archived")
			inboxStatus(t, st, "t-y", "archived")
			told = nil
		}
		name := func(id string) string {
			if id == "user" || id == "ci" {
				return id
			}
			return "t-" + id
		}
		before := notices()
		sent, err := tavern.InboxOf(st, name(c.to)).Send(ctx, inboxNote(name(c.from), c.from+" to "+c.to))
		must(t, err)
		var got []string
		for who, n := range notices() {
			if n > before[who] {
				got = append(got, who)
			}
			if n > before[who]+1 {
				t.Errorf("%s to %s: %s got two notices", c.from, c.to, who)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, told) {
			t.Errorf("%s to %s: notices went to %q, want %q", c.from, c.to, got, told)
		}
		for _, who := range got {
			parent := tavern.InboxOf(st, name(who))
			all := inboxAll(t, st, name(who))
			found, err := parent.About(ctx, all[len(all)-1])
			if must(t, err); found.Offset != sent.Offset || found.To != sent.To {
				t.Errorf("%s to %s: the notice leads %s to %+v", c.from, c.to, who, found)
			}
		}
	}
}

func inboxStoreAlone(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	fresh := func() *tavern.Inbox { return tavern.InboxOf(st, "alone") } // without a cache
	must(t, fresh().Open(ctx, "a program"))
	must(t, fresh().Open(ctx, "again"))
	var sent []tavern.Message
	for i := range 5 {
		sent = append(sent, inboxSend(t, st, "alone", inboxNote("a", fmt.Sprint(i))))
	}
	check := func(cursor events.Offset, unread int) {
		t.Helper()
		if at := need(fresh().Cursor(ctx)); at != cursor {
			t.Errorf("the cursor is at %v, want %v", at, cursor)
		}
		if n := need(fresh().Unread(ctx)); n != unread {
			t.Errorf("got %d unread messages, want %d", n, unread)
		}
		fold := inboxMail(t, st).Inboxes["alone"]
		if fold.Cursor() != cursor || len(fold.Unread()) != unread {
			t.Errorf("the fold has the cursor %v and %d unread messages, want %v and %d", fold.Cursor(), len(fold.Unread()), cursor, unread)
		}
	}
	check(0, 5)
	must(t, fresh().Seen(ctx, sent[1].Offset))
	check(sent[1].Offset, 3)
	records := inboxRecords(t, st)
	must(t, fresh().Seen(ctx, sent[1].Offset))
	must(t, fresh().Seen(ctx, sent[0].Offset))
	if n := inboxRecords(t, st); n != records {
		t.Error("a repeated mark wrote a record")
	}
	check(sent[1].Offset, 3)
	inboxRefused(t, st, log.ErrConflict, func() error { return fresh().Seen(ctx, sent[4].Offset+100) })
	inboxRefused(t, st, log.ErrConflict, func() error { _, err := fresh().SeenPart(ctx, sent[0].Offset); return err })
	if got := inboxTake(t, fresh(), need(fresh().Cursor(ctx)), 3); got[0].ID != sent[2].ID {
		t.Errorf("the message after the cursor is %q", got[0].Body)
	}

	h, err := fresh().Refused(ctx, sent[2].Offset, "busy")
	must(t, err)
	h2, err := fresh().Refused(ctx, sent[2].Offset, "busy\x1b[31m")
	must(t, err)
	if now := need(fresh().HandOver(ctx)); h.Refusals != 1 || h2.Refusals != 2 || now.Refusals != 2 || now.At != sent[2].Offset || now.Reason != "busy\x1b[31m" {
		t.Errorf("the refusals are %+v, %+v and %+v", h, h2, now)
	}
	check(sent[1].Offset, 3)

	// The work and the cursor are one append.
	part, err := fresh().SeenPart(ctx, sent[2].Offset)
	must(t, err)
	stale, err := fresh().SeenPart(ctx, sent[2].Offset)
	must(t, err)
	_, err = st.AppendAll(ctx, part, inboxTurn(st, "work-alone", "done"))
	must(t, err)
	inboxRefused(t, st, log.ErrConflict, func() error {
		_, err := st.AppendAll(ctx, stale, inboxTurn(st, "work-alone", "done twice"))
		return err
	})
	check(sent[2].Offset, 2)
	if now := need(fresh().HandOver(ctx)); now.Refusals != 0 {
		t.Errorf("a seen message has refusals: %+v", now)
	}
	if now := inboxMail(t, st).Inboxes["alone"].Fields.HandOver; now == nil || now.Refusals != 0 {
		t.Errorf("in the fold a seen message has refusals: %+v", now)
	}

	must(t, fresh().Archive(ctx, "not needed"))
	must(t, fresh().Archive(ctx, "not needed"))
	inboxRefused(t, st, tavern.ErrReceiver, func() error { _, err := fresh().Send(ctx, inboxNote("a", "x")); return err })
	check(sent[2].Offset, 2)
	must(t, fresh().Seen(ctx, sent[4].Offset))
	inboxRefused(t, st, tavern.ErrReceiver, func() error { _, err := fresh().Send(ctx, inboxNote("a", "x")); return err })
	check(sent[4].Offset, 0)
	inboxRefused(t, st, tally.ErrNotFound, func() error { return tavern.InboxOf(st, "never").Archive(ctx, "") })
}

func inboxDeciders(t *testing.T, st *tally.Store) {
	ctx, ns := t.Context(), st.Namespace()
	inboxAgent(t, st, "d-boss", "")
	inboxAgent(t, st, "d-hand", "d-boss")
	deadline := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	question := inboxNote("d-boss", "well?")
	question.Expects, question.Deadline = "answer", deadline
	asked := func() (projector.Letter, events.Offset) {
		m := inboxMail(t, st)
		open := slices.DeleteFunc(m.Open(), func(l projector.Letter) bool { return l.From != "d-boss" })
		if len(open) == 0 {
			return projector.Letter{}, m.At
		}
		return open[0], m.At
	}
	made := func(d tavern.Decision, err error, want bool) {
		t.Helper()
		must(t, err)
		if got, err := d.Make(ctx, st); err != nil || got != want {
			t.Errorf("made the decision: %v, error %v, want %v", got, err, want)
		}
	}

	// A deadline passes, and two daemons decide.
	sent := inboxSend(t, st, "d-hand", question)
	ask, at := asked()
	early, err := tavern.Overdue(ns, ask, at, deadline.Add(-time.Millisecond))
	if must(t, err); len(early.Parts) != 0 || !early.Next.Equal(deadline) {
		t.Errorf("due before the deadline: %+v", early)
	}
	one, err := tavern.Overdue(ns, ask, at, deadline)
	made(one, err, true)
	two, err := tavern.Overdue(ns, ask, at, deadline.Add(time.Hour))
	made(two, err, false)
	if open, _ := asked(); open.ID != "" {
		t.Errorf("the open questions are %+v", open)
	}
	got := inboxAll(t, st, "d-boss")
	if len(got) != 1 || got[0].Type != tavern.TypeMalfunction || got[0].Malfunction != tavern.MalfunctionOverdue || got[0].ReplyTo != sent.ID || got[0].From != tavern.Delivery {
		t.Fatalf("the sender got %+v", got)
	}
	if about := need(tavern.InboxOf(st, "d-boss").About(ctx, got[0])); about.Offset != sent.Offset {
		t.Errorf("the notice is about %+v", about)
	}

	// An answer arrives between the read and the decision.
	sent = inboxSend(t, st, "d-hand", question)
	ask, at = asked()
	_, err = tavern.InboxOf(st, "d-hand").Reply(ctx, sent, tavern.Message{Body: tavern.Text("yes")})
	must(t, err)
	answered, err := tavern.Overdue(ns, ask, at, deadline)
	made(answered, err, false)
	if n := len(inboxAll(t, st, "d-boss")); n != 2 {
		t.Errorf("the sender has %d messages, want 2", n)
	}

	// A receiver is stopped with unread mail after a daemon has read that it was running.
	sent = inboxSend(t, st, "d-hand", inboxNote("d-boss", "read me"))
	unread := inboxMail(t, st).Inboxes["d-hand"].Unread()
	last := unread[len(unread)-1]
	alive, err := tavern.Gone(ns, last, "working", 1<<40)
	made(alive, err, false)
	inboxStatus(t, st, "d-hand", "stopped:failed")
	stale, err := tavern.Gone(ns, last, "stopped:failed", at) // the answer came after at
	made(stale, err, false)
	gone, err := tavern.Gone(ns, last, "stopped:failed", inboxMail(t, st).At)
	made(gone, err, true)
	made(gone, err, false)
	got = inboxAll(t, st, "d-boss")
	if m := got[len(got)-1]; m.Malfunction != tavern.MalfunctionGone || m.ReplyTo != sent.ID || len(got) != 3 {
		t.Errorf("the sender got %+v", got)
	}
	// The sender of a malfunction gets no malfunction.
	notice, err := tavern.Gone(ns, inboxMail(t, st).Inboxes["d-boss"].Letters[2], "archived", 1<<40)
	if must(t, err); len(notice.Parts) != 0 {
		t.Errorf("a malfunction caused the malfunction %+v", notice)
	}

	// A receiver always refuses.
	refused := inboxSend(t, st, "d-boss", inboxNote("d-boss", "to myself"))
	letters := inboxMail(t, st).Inboxes["d-boss"].Letters
	letter, now := letters[len(letters)-1], deadline
	h := projector.HandOver{}
	var waits []time.Duration
	for range 12 {
		d, err := tavern.HandOverDue(ns, letter, h, inboxMail(t, st).At, now)
		must(t, err)
		waits = append(waits, d.Next.Sub(now))
		if told := len(d.Parts) > 0; told != (h.Refusals >= tavern.MaxRefusals) {
			t.Errorf("notice after %d refusals: %v", h.Refusals, told)
		}
		made(d, nil, h.Refusals == tavern.MaxRefusals)
		h = projector.HandOver{At: refused.Offset, Refusals: h.Refusals + 1, Last: events.TimestampOf(now)}
	}
	want := []time.Duration{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}
	for i := range want {
		want[i] *= time.Second
	}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Errorf("the waits differ: %s", diff)
	}
}

func inboxNeeds(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	inboxAgent(t, st, "needs", "")
	in := tavern.InboxOf(st, "needs")
	whole := func() tavern.Message {
		return tavern.Message{Key: "k", From: tavern.User, Type: "note", Thread: "t", Body: tavern.Text("x"), Meta: events.Fields{{Name: "x-color", Value: events.Raw(`{"r" : 1.0}`)}}}
	}
	for field, lack := range map[string]func(*tavern.Message){
		"from":                 func(m *tavern.Message) { m.From = "" },
		"to":                   func(m *tavern.Message) { m.To = "somebody else" },
		"type":                 func(m *tavern.Message) { m.Type = "" },
		"thread":               func(m *tavern.Message) { m.Thread = "" },
		"body":                 func(m *tavern.Message) { m.Body = nil },
		"class":                func(m *tavern.Message) { m.Class = "urgent" },
		"meta":                 func(m *tavern.Message) { m.Meta = events.Fields{{Name: "from", Value: events.Raw(`"b"`)}} },
		"data.entries[0].turn": func(m *tavern.Message) { m.Body = json.RawMessage(`{`) },
		"subject":              func(m *tavern.Message) { m.From = strings.Repeat("x", 600) },
	} {
		m := whole()
		lack(&m)
		inboxRefused(t, st, nil, func() error {
			_, err := in.Send(ctx, m)
			if wrong, ok := errors.AsType[*events.InvalidError](err); !ok || !strings.Contains(wrong.Field, strings.TrimPrefix(field, "data.")) {
				t.Errorf("%s: got the error %v", field, err)
			}
			return err
		})
	}
	inboxRefused(t, st, nil, func() error { _, err := tavern.InboxOf(st, "\xff").Send(ctx, whole()); return err })

	first := inboxSend(t, st, "needs", whole())
	later := whole()
	later.Deadline = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // as of a program that computes the deadline at each call
	records := inboxRecords(t, st)
	for _, m := range []tavern.Message{whole(), later} {
		if again := inboxSend(t, st, "needs", m); again.ID != first.ID || again.Offset != first.Offset {
			t.Errorf("a second send returned %+v, the first %+v", again, first)
		}
	}
	if n := inboxRecords(t, st); n != records {
		t.Errorf("a second send of a message appended %d records", n-records)
	}
	other := whole()
	other.From = "b"
	if m := inboxSend(t, st, "needs", other); m.ID == first.ID {
		t.Error("two senders got the same id")
	}
	got := need(in.Message(ctx, first.ID))
	if raw, _ := got.Meta.Get("x-color"); string(raw) != `{"r" : 1.0}` || len(got.Meta) != 1 {
		t.Errorf("the sender's own fields are %s", got.Meta)
	}
	// A turn that another program appended without Send is a message too.
	_, err := st.Session("inbox/needs").Append(ctx, log.Any, &events.TurnAppended{Entries: []events.Entry{
		{Thread: "inbox", Turn: events.Raw(`1`)}, {Thread: "other", Turn: events.Raw(`2`)}, {Thread: "inbox", Bytes: []byte{0xff}, Meta: events.Raw(`{"from":7}`)},
	}})
	must(t, err)
	all := inboxAll(t, st, "needs")
	if n := len(all); n != 4 || string(all[2].Body) != "1" || !bytes.Equal(all[3].Bytes, []byte{0xff}) || all[3].Malformed == "" || need(in.Unread(ctx)) != 4 {
		t.Errorf("the messages with one that was not sent by Send are %+v", all)
	}
}

func inboxRewinds(t *testing.T, st *tally.Store) {
	ctx := t.Context()
	inboxAgent(t, st, "back", "")
	agent := st.Session("agent/back")
	_, err := agent.AppendTurns(ctx, events.MainThread, json.RawMessage(`"one"`))
	must(t, err)
	inboxSend(t, st, "back", inboxNote("a", "mail"))
	_, err = agent.AppendTurns(ctx, events.MainThread, json.RawMessage(`"two"`))
	must(t, err)
	move, err := agent.PlanRewind(ctx, "#1", "")
	must(t, err)
	_, err = agent.Move(ctx, move)
	must(t, err)
	in := tavern.InboxOf(st, "back")
	delivered := func() {
		t.Helper()
		if got := inboxBodies(inboxAll(t, st, "back")); !slices.Equal(got, []string{"mail"}) || need(in.Unread(ctx)) != 1 {
			t.Errorf("delivered %q", got)
		}
		o, err := in.Session().Outline(ctx)
		if must(t, err); o.Len(projector.InboxThread) != 1 {
			t.Errorf("the thread has %d turns", o.Len(projector.InboxThread))
		}
	}
	delivered()
	for _, position := range []string{"start", "#1"} {
		_, err = in.Session().PlanRewind(ctx, position, "")
		if _, ok := errors.AsType[*tally.KindError](err); !ok {
			t.Errorf("rewind to %s: %v", position, err)
		}
	}
	first := inboxAll(t, st, "back")[0].Offset
	_, err = in.Session().Append(ctx, log.Since(first, events.TypeSessionRewound), &events.SessionRewound{To: 1})
	must(t, err)
	delivered()
	if last := need(in.Session().Outline(ctx)).Ledger(); len(last.Rejected) != 1 || last.Kind != events.KindInbox {
		t.Errorf("the rewind was not rejected: %+v", last.Rejected)
	}
}

// A sender may not set the fields of amendments and notices: it cannot answer for another agent, or change another
// agent's messages.
func TestInboxForged(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	ctx, in := t.Context(), tavern.InboxOf(st, tavern.User)
	inboxAgent(t, st, "a", "")
	must(t, tavern.InboxOf(st, "b").Open(ctx, ""))
	must(t, tavern.InboxOf(st, "mallory").Open(ctx, ""))
	asked := inboxSend(t, st, "b", tavern.Message{From: "a", Type: "question", Thread: "work", Body: tavern.Text("?"), Expects: "answer"})
	note := inboxSend(t, st, tavern.User, inboxNote("a", "mine"))
	told := inboxNote("mallory", "no")
	told.ReplyTo, told.Malfunction, told.About = asked.ID, tavern.MalfunctionGone, &projector.MessageRef{Inbox: "b", ID: asked.ID}
	newer := inboxNote("mallory", "not his")
	newer.Amends = note.ID
	for name, do := range map[string]func() error{
		"a malfunction": func() error { _, err := tavern.InboxOf(st, "a").Send(ctx, told); return err },
		"in parts":      func() error { _, _, err := tavern.InboxOf(st, "a").SendParts(ctx, told); return err },
		"a newer text":  func() error { _, err := in.Send(ctx, newer); return err },
		"as an answer": func() error {
			_, err := in.Reply(ctx, note, tavern.Message{Body: tavern.Text("x"), Amends: note.ID})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inboxRefused(t, st, nil, do)
			if _, ok := errors.AsType[*events.InvalidError](do()); !ok {
				t.Errorf("got the error %v", do())
			}
		})
	}
	if open := inboxMail(t, st).Open(); len(open) != 1 {
		t.Errorf("got %d open questions, want that of a", len(open))
	}
	if m := need(in.Message(ctx, note.ID)); string(m.Body) != `"mine"` {
		t.Errorf("the message is %s", m.Body)
	}
}

// A page of large messages ends early, and the next page continues after it.
func TestInboxLargePages(t *testing.T) {
	testkit.NotUnderRace(t)
	st := storetest.Memory(t, tally.Config{})
	in, body := tavern.InboxOf(st, tavern.User), tavern.Text(strings.Repeat("x", 7<<20))
	for range 4 {
		inboxSend(t, st, tavern.User, tavern.Message{From: "a", Type: "note", Thread: "work", Body: body})
	}
	for _, newest := range []bool{false, true} {
		first, next, err := in.List(t.Context(), tavern.Page{Newest: newest})
		must(t, err)
		rest, end, err := in.List(t.Context(), tavern.Page{Newest: newest, After: next})
		must(t, err)
		if len(first) != 3 || len(rest) != 1 || end != 0 {
			t.Errorf("got pages of %d and %d messages and then the position %v", len(first), len(rest), end)
		}
	}
}

// A sender to an inbox that no receiver reads does not read the inbox either, once it has snapshots.
func TestInboxUnreadCostsSendersLittle(t *testing.T) {
	testkit.OnlyFull(t, "TestInbox sends and reads")
	testkit.NotUnderRace(t)
	st := storetest.Open(t, "local")
	must(t, tavern.InboxOf(st, "program").Open(t.Context(), ""))
	in := tavern.InboxOf(st, "program")
	const n = 500 // enough for a snapshot
	for range n {
		_, err := in.Send(t.Context(), inboxNote("a", "unread"))
		must(t, err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		before := st.Log.RecordsRead()
		inboxSend(t, st, "program", inboxNote("a", "one more"))
		read := st.Log.RecordsRead() - before
		if read < n/2 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a send read %d records", read)
		}
	}
}

// A call without an acknowledgement is repeated, and stored once.
func TestInboxFaults(t *testing.T) {
	storetest.EachFault(t, func(t *testing.T, st *tally.Store, call storetest.Call) {
		ctx, in := t.Context(), tavern.InboxOf(st, "hand")
		sent := func(_ tavern.Message, err error) error { return err }
		inboxAgent(t, st, "boss", "")
		inboxAgent(t, st, "hand", "boss")
		inboxAgent(t, st, "other", "boss")
		var m tavern.Message
		call("Send", 1, func() (err error) { m, err = in.Send(ctx, inboxNote("boss", "x")); return err })
		call("Send, with a notice", 2, func() error { return sent(in.Send(ctx, inboxNote("other", "psst"))) })
		call("Send, twice", 2, func() error {
			n := inboxNote("other", "once")
			n.Key = "k"
			return errors.Join(sent(in.Send(ctx, n)), sent(in.Send(ctx, n)))
		})
		call("Reply, twice", 1, func() error {
			answer := tavern.Message{Body: tavern.Text("y")}
			return errors.Join(sent(in.Reply(ctx, m, answer)), sent(in.Reply(ctx, m, answer)))
		})
		call("Amend", 1, func() error { return sent(in.Amend(ctx, m.ID, m.Revision, tavern.Text("z"))) })
		call("Refused", 1, func() error { _, err := in.Refused(ctx, m.Offset, ""); return err })
		call("Seen", 1, func() error { return in.Seen(ctx, m.Offset) })
		call("Open", 1, func() error { return tavern.InboxOf(st, "ci").Open(ctx, "") })
		call("Archive", 1, func() error { return tavern.InboxOf(st, "ci").Archive(ctx, "") })
	})
}

// A body may be as large as a value. A larger one is refused before anything is written.
func TestInboxLargeBodies(t *testing.T) {
	testkit.OnlyFull(t, "TestInboxLargePages reads large bodies")
	testkit.NotUnderRace(t)
	st := storetest.Memory(t, tally.Config{MaxValue: 20 << 20})
	inboxAgent(t, st, "big", "")
	in := tavern.InboxOf(st, "big")
	for i, n := range []int{4 << 20, 9 << 20, 19 << 20} {
		body := tavern.Text(strings.Repeat("x", n))
		m := inboxNote("a", "")
		m.Body, m.Key = body, fmt.Sprint(i)
		sent := inboxSend(t, st, "big", m)
		if again := inboxSend(t, st, "big", m); again.Offset != sent.Offset {
			t.Errorf("a message of %d bytes, sent twice, is at %v and %v", n, sent.Offset, again.Offset)
		}
		if got := inboxTake(t, in, sent.Offset-1, 1)[0]; !bytes.Equal(got.Body, body) {
			t.Errorf("a message of %d bytes was read with %d", n, len(got.Body))
		}
	}
	if n := need(in.Unread(t.Context())); n != 3 {
		t.Errorf("got %d unread messages", n)
	}
	inboxRefused(t, st, nil, func() error {
		_, err := in.Send(t.Context(), tavern.Message{From: "a", Type: "note", Thread: "t", Body: tavern.Text(strings.Repeat("x", 20<<20))})
		if _, ok := errors.AsType[*events.InvalidError](err); !ok {
			t.Errorf("send a body that is too large: %v", err)
		}
		return err
	})
}
