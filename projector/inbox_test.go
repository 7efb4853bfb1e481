package projector_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// inboxFact is a record of a receiver's inbox.
func inboxFact(at events.Offset, receiver string, p events.Payload) projector.Fact {
	return projector.Fact{Record: events.Record{Event: events.Event{Type: p.EventType(), Subject: projector.InboxSubject("", receiver)}, Offset: at}, Payload: p}
}

func inboxTurns(metas ...string) *events.TurnAppended {
	p := new(events.TurnAppended)
	for _, m := range metas {
		p.Entries = append(p.Entries, events.Entry{Thread: projector.InboxThread, Turn: events.Raw(`"x"`), Meta: events.Raw(m)})
	}
	return p
}

func inboxSet(name, value string) *events.SessionUpdated {
	return &events.SessionUpdated{Set: events.Fields{{Name: name, Value: events.Raw(value)}}}
}

// The records determine the open, unread and read messages.
func TestMail(t *testing.T) {
	const q = `{"id":"q","from":"a","to":"b","type":"question","thread":"t","expects":"answer"}`
	for name, c := range map[string]struct {
		facts  []projector.Fact
		open   []projector.MessageRef
		cursor events.Offset
		unread []events.Offset // of b
	}{
		"a question":                   {facts: []projector.Fact{inboxFact(1, "b", inboxTurns(q))}, open: []projector.MessageRef{{Inbox: "b", ID: "q"}}, unread: []events.Offset{1}},
		"answered":                     {facts: []projector.Fact{inboxFact(1, "b", inboxTurns(q)), inboxFact(2, "a", inboxTurns(`{"id":"r","from":"b","replyTo":"q"}`))}, unread: []events.Offset{1}},
		"answered by another sender":   {facts: []projector.Fact{inboxFact(1, "b", inboxTurns(q)), inboxFact(2, "a", inboxTurns(`{"id":"r","from":"c","replyTo":"q"}`))}, open: []projector.MessageRef{{Inbox: "b", ID: "q"}}, unread: []events.Offset{1}},
		"answered to another receiver": {facts: []projector.Fact{inboxFact(1, "b", inboxTurns(q)), inboxFact(2, "c", inboxTurns(`{"id":"r","from":"b","replyTo":"q"}`))}, open: []projector.MessageRef{{Inbox: "b", ID: "q"}}, unread: []events.Offset{1}},
		"a malfunction":                {facts: []projector.Fact{inboxFact(1, "b", inboxTurns(q)), inboxFact(2, "a", inboxTurns(`{"id":"r","from":"delivery","replyTo":"q","malfunction":"overdue","about":{"inbox":"b","id":"q"}}`))}, unread: []events.Offset{1}},
		"one id, two receivers":        {facts: []projector.Fact{inboxFact(1, "b", inboxTurns(q)), inboxFact(2, "c", inboxTurns(q)), inboxFact(3, "a", inboxTurns(`{"id":"r","from":"b","replyTo":"q"}`))}, open: []projector.MessageRef{{Inbox: "c", ID: "q"}}, unread: []events.Offset{1}},
		"an amended question":          {facts: []projector.Fact{inboxFact(1, "b", inboxTurns(q)), inboxFact(2, "b", inboxTurns(`{"id":"q2","from":"a","expects":"answer","amends":"q"}`))}, open: []projector.MessageRef{{Inbox: "b", ID: "q"}}, unread: []events.Offset{1, 2}},
		"seen":                         {facts: []projector.Fact{inboxFact(1, "b", inboxTurns(q)), inboxFact(2, "b", inboxTurns(`{}`, `{}`)), inboxFact(3, "b", inboxTurns(`{}`)), inboxFact(4, "b", inboxSet("cursors", `{"inbox":2}`))}, open: []projector.MessageRef{{Inbox: "b", ID: "q"}}, cursor: 2, unread: []events.Offset{3}},
		"two in one record":            {facts: []projector.Fact{inboxFact(2, "b", inboxTurns(`{}`, `{"deadline":7}`))}, unread: []events.Offset{2, 2}},
		"set back":                     {facts: []projector.Fact{inboxFact(1, "b", inboxTurns(`{}`)), inboxFact(2, "b", inboxSet("cursors", `{"inbox":1}`)), inboxFact(3, "b", inboxSet("cursors", `null`))}, unread: []events.Offset{1}},
		"replaced, and still there":    {facts: []projector.Fact{inboxFact(1, "b", inboxTurns(`{}`)), inboxFact(2, "b", &events.ThreadReplaced{Threads: map[string]events.Replacement{projector.InboxThread: {}}, Others: "keep", Reason: "clear"})}, unread: []events.Offset{1}},
		"another session's thread":     {facts: []projector.Fact{{Record: events.Record{Event: events.Event{Subject: events.Session("", "agent/b")}, Offset: 1}, Payload: inboxTurns(q)}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := new(projector.Mail)
			for _, f := range c.facts {
				m.Apply(f)
			}
			var open []projector.MessageRef
			for _, l := range m.Open() {
				open = append(open, l.Ref())
			}
			b := m.Inboxes["b"]
			if b == nil {
				b = new(projector.Inbox)
			}
			var unread []events.Offset
			for _, l := range b.Unread() {
				unread = append(unread, l.Offset)
			}
			if diff := cmp.Diff(c.open, open); diff != "" {
				t.Errorf("open messages (-want +got):\n%s", diff)
			}
			if !slices.Equal(unread, c.unread) || b.Cursor() != c.cursor {
				t.Errorf("got unread %v, cursor %v, want %v and %v", unread, b.Cursor(), c.unread, c.cursor)
			}
		})
	}
}

// The meta of a turn is either decoded completely or refused. Unknown members are kept.
func FuzzMessageMeta(f *testing.F) {
	for _, seed := range []string{
		`{"id":"q","from":"a","to":"b","type":"question","thread":"t","expects":"answer","deadline":"2026-01-01T00:00:00Z","bubble":["x","\u202e\n"],"x-color":{"r" : 1.0}}`,
		`{"about":{"inbox":"b","id":"q","more":[1]},"malfunction":"overdue","replyTo":"q"}`, `{"from":"a","from":"b"}`, `null`, `[]`, ``, `{"base":-1}`, `{"bubble":[]}`, `{"base":18446744073709551615}`, `{"deadline":"soon"}`, "{\"id\":\"\xff\"}", `{"id":"\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := projector.ParseMessageMeta(raw)
		if err != nil {
			return
		}
		written, err := m.Encode()
		if err != nil {
			t.Fatalf("%q was parsed but cannot be encoded: %v", raw, err)
		}
		again, err := projector.ParseMessageMeta(written)
		if err != nil {
			t.Fatalf("%q is encoded as %q, which cannot be parsed: %v", raw, written, err)
		}
		if diff := cmp.Diff(m, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%q, encoded and parsed again (-first +again):\n%s", raw, diff)
		}
		_ = m.Validate()
		letters := projector.LettersOf(inboxFact(1, "b", inboxTurns(string(raw))))
		if len(letters) != 1 || letters[0].Malformed != "" || letters[0].Recorded != (time.Time{}) {
			t.Fatalf("letters with meta %q: got %+v, want one that is not malformed", raw, letters)
		}
	})
}

// A name of a message is at most as long as an id: a command receives it in its environment.
func TestNamesOfMessages(t *testing.T) {
	for field, set := range map[string]func(*projector.MessageMeta, string){
		"id":          func(m *projector.MessageMeta, s string) { m.ID = s },
		"type":        func(m *projector.MessageMeta, s string) { m.Type = s },
		"thread":      func(m *projector.MessageMeta, s string) { m.Thread = s },
		"replyTo":     func(m *projector.MessageMeta, s string) { m.ReplyTo = s },
		"correlation": func(m *projector.MessageMeta, s string) { m.Correlation = s },
		"expects":     func(m *projector.MessageMeta, s string) { m.Expects = s },
		"amends":      func(m *projector.MessageMeta, s string) { m.Amends = s },
		"malfunction": func(m *projector.MessageMeta, s string) { m.Malfunction = s },
		"bubble":      func(m *projector.MessageMeta, s string) { m.Bubble = []string{"a", s} },
		"about.inbox": func(m *projector.MessageMeta, s string) { m.About = &projector.MessageRef{Inbox: s, ID: "i"} },
		"about.id":    func(m *projector.MessageMeta, s string) { m.About = &projector.MessageRef{Inbox: "i", ID: s} },
	} {
		t.Run("B-07 the bound of "+field, func(t *testing.T) {
			m := projector.MessageMeta{ID: "i", From: "f", To: "t", Type: "t", Thread: "m"}
			set(&m, strings.Repeat("x", events.MaxIDLen))
			if err := m.Validate(); err != nil {
				t.Errorf("%d bytes: %v", events.MaxIDLen, err)
			}
			set(&m, strings.Repeat("x", events.MaxIDLen+1))
			if invalid, ok := errors.AsType[*events.InvalidError](m.Validate()); !ok || invalid.Field != field {
				t.Errorf("%d bytes: got %v, want an *InvalidError of %s", events.MaxIDLen+1, invalid, field)
			}
		})
	}
}
