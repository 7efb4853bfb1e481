package tavern_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// inboxAgent creates the session of an agent with a parent, as far as mail needs it.
func inboxAgent(t testing.TB, st *tally.Store, id, parent string) {
	t.Helper()
	created := events.SessionCreated{Kind: events.KindAgent, CreatedAt: "2026-01-01T00:00:00Z"}
	if parent != "" {
		created.Parent = &events.Lineage{Session: "agent/" + parent}
	}
	_, err := st.Session("agent/"+id).Create(t.Context(), created)
	must(t, err)
}

// inboxStatus sets the status of an agent.
func inboxStatus(t testing.TB, st *tally.Store, id, status string) {
	t.Helper()
	_, err := st.Session("agent/"+id).Update(t.Context(), nil, func(*projector.Outline) ([]events.Payload, error) {
		return []events.Payload{&events.SessionUpdated{Set: events.Fields{{Name: "status", Value: tavern.Text(status)}}}}, nil
	})
	must(t, err)
}

// inboxNote returns a message with the required fields.
func inboxNote(from, text string) tavern.Message {
	return tavern.Message{From: from, Type: "note", Thread: "work", Body: tavern.Text(text)}
}

// inboxSend sends a message that must arrive.
func inboxSend(t testing.TB, st *tally.Store, to string, m tavern.Message) tavern.Message {
	t.Helper()
	got, err := tavern.InboxOf(st, to).Send(t.Context(), m)
	must(t, err)
	return got
}

// inboxAll lists all messages of an inbox, by pages of a few.
func inboxAll(t testing.TB, st *tally.Store, receiver string) (all []tavern.Message) {
	t.Helper()
	page := tavern.Page{Limit: 3}
	for {
		list, next, err := tavern.InboxOf(st, receiver).List(t.Context(), page)
		must(t, err)
		if all = append(all, list...); next == 0 {
			return all
		}
		page.After = next
	}
}

// inboxBodies returns the bodies of messages as text.
func inboxBodies(list []tavern.Message) (texts []string) {
	for _, m := range list {
		var s string
		if json.Unmarshal(m.Body, &s) != nil {
			s = string(m.Body)
		}
		texts = append(texts, s)
	}
	return texts
}

// inboxTake follows an inbox until a number of messages arrived.
func inboxTake(t testing.TB, in *tavern.Inbox, after events.Offset, n int) (list []tavern.Message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience(time.Minute))
	defer cancel()
	for m, err := range in.Follow(ctx, after) {
		must(t, err)
		if list = append(list, m); len(list) == n {
			return list
		}
	}
	t.Fatalf("got only %d of %d messages", len(list), n)
	return nil
}

// inboxMail folds all inboxes of a store.
func inboxMail(t testing.TB, st *tally.Store) *projector.Mail {
	t.Helper()
	m := new(projector.Mail)
	for rec, err := range st.Log.Read(t.Context(), events.Range{Namespace: st.Namespace(), Kind: events.KindSession}) {
		must(t, err)
		m.Apply(projector.Decode(need(projector.Resolve(t.Context(), st.Log, rec, st.MaxValue()))))
	}
	return m
}

// inboxRecords counts the records of a store.
func inboxRecords(t testing.TB, st *tally.Store) (n int) {
	t.Helper()
	for _, err := range st.Log.Read(t.Context(), events.Range{}) {
		must(t, err)
		n++
	}
	return n
}

// inboxRefused checks that a call fails and writes nothing.
func inboxRefused(t testing.TB, st *tally.Store, want error, do func() error) {
	t.Helper()
	before := inboxRecords(t, st)
	err := do()
	if err == nil || want != nil && !errors.Is(err, want) {
		t.Errorf("the error is %v, want %v", err, want)
	}
	if n := inboxRecords(t, st) - before; n != 0 {
		t.Errorf("a call wrote %d records and was refused with %v", n, err)
	}
}

// inboxTurn makes an append of turns to a session, as a consumer's work.
func inboxTurn(st *tally.Store, session string, text string) log.Part {
	sub := events.Session(st.Namespace(), session)
	p := &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: events.Raw(fmt.Sprintf("%q", text))}}}
	return log.Part{Subject: sub, Events: []events.Event{need(events.New(st.Source(), sub, p))}}
}
