package tavern_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/stores/tavern"
)

func TestSameMessage(t *testing.T) {
	t.Run("net Q2 a message with the id of another one is refused if anything that its receiver reads differs", func(t *testing.T) {
		onFakeClock(t, func(t *testing.T, st *tally.Store) {
			inboxAgent(t, st, "a", "")
			inboxAgent(t, st, "b", "")
			inboxAgent(t, st, "c", "")
			in, first := tavern.InboxOf(st, "b"), inboxNote("a", "x")
			first.ID, first.Type, first.Thread = "id", "note", "t"
			sent := need(in.Send(t.Context(), first))
			again := first
			again.Expects, again.Deadline = "answer", time.Now().Add(time.Hour) // as a sender may say later
			for _, m := range []tavern.Message{first, again} {
				if have, err := in.Send(t.Context(), m); err != nil || have.Offset != sent.Offset {
					t.Errorf("the same message is at %v, %v, want %v", have.Offset, err, sent.Offset)
				}
			}
			for what, change := range map[string]func(m *tavern.Message){
				"sender": func(m *tavern.Message) { m.From = "c" },
				"type":   func(m *tavern.Message) { m.Type = "question" },
				"thread": func(m *tavern.Message) { m.Thread = "u" },
				"reply":  func(m *tavern.Message) { m.ReplyTo = "x" },
				"body":   func(m *tavern.Message) { m.Body = tavern.Text("y") },
			} {
				m := first
				change(&m)
				_, err := in.Send(t.Context(), m)
				if other, is := errors.AsType[*tavern.MessageError](err); !is || other.Have != sent.Offset {
					t.Errorf("a message with another %s: %v", what, err)
				}
			}
		})
	})
}
