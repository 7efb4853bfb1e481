package tavern_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
)

// role is one of the original's five kinds of documents: how a document with a text is created, read and updated.
type role struct {
	create func(id, text string) error
	read   func(id string) (text string, revision events.Offset, err error)
	update func(id string, base events.Offset, text string) error
}

// rolesOf returns the five roles in a store.
func rolesOf(t *testing.T, st *tally.Store) map[string]role {
	ctx, d, w, in := t.Context(), st.Documents(), tavern.WorkflowsOf(st), tavern.InboxOf(st, "roles")
	must(t, in.Open(ctx, "a program"))
	template := func(text string) []byte {
		return fmt.Appendf(nil, `{"title":%q,"initial":"a","states":{"a":{"to":["z"]},"z":{"end":true}}}`, text)
	}
	agent := func(id string) string { return fmt.Sprintf("8f14e45f-ceea-467f-a0e6-%012d", len(id)) }
	node := func(id, text string) []byte {
		return fmt.Appendf(nil, "---\nid: %s\ntitle: N\nstate: idle\n---\n\n## Assignment\n\n%s\n", agent(id), text)
	}
	return map[string]role{
		"document": {
			func(id, text string) error { return second(d.Create(ctx, "doc", id, tally.Write{Data: []byte(text)})) },
			func(id string) (string, events.Offset, error) {
				doc, err := d.Read(ctx, "doc", id)
				if err != nil {
					return "", 0, err
				}
				return string(doc.Data), doc.Offset, nil
			},
			func(id string, base events.Offset, text string) error {
				return second(d.Update(ctx, "doc", id, base, tally.Write{Data: []byte(text)}))
			},
		},
		"message": {
			func(id, text string) error {
				return second(in.Send(ctx, tavern.Message{ID: id, From: "a", Type: "note", Thread: "t", Body: tavern.Text(text)}))
			},
			func(id string) (text string, _ events.Offset, err error) {
				m, err := in.Message(ctx, id)
				if err == nil {
					err = json.Unmarshal(m.Body, &text)
				}
				return text, m.Revision, err
			},
			func(id string, base events.Offset, text string) error {
				return second(in.Amend(ctx, id, base, tavern.Text(text)))
			},
		},
		"queue": {
			func(id, text string) error {
				return tavern.QueueOf(st, id).Create(ctx, tavern.QueueSettings{OnEmpty: text})
			},
			func(id string) (string, events.Offset, error) {
				s, err := tavern.QueueOf(st, id).Settings(ctx)
				return s.OnEmpty, s.Revision, err
			},
			func(id string, base events.Offset, text string) error {
				return tavern.QueueOf(st, id).Configure(ctx, tavern.QueueSettings{OnEmpty: text, Revision: base})
			},
		},
		"agent node": {
			func(id, text string) error {
				return second(tavern.NewAgent(ctx, st, tavern.NewAgentOptions{File: node(id, text)}))
			},
			func(id string) (string, events.Offset, error) {
				i, err := tavern.AgentOf(st, agent(id)).Info(ctx)
				if err != nil {
					return "", 0, err
				}
				return i.Assignment, i.Revision, nil
			},
			func(id string, base events.Offset, text string) error {
				return tavern.AgentOf(st, agent(id)).Save(ctx, base, node(id, text))
			},
		},
		"workflow template": {
			func(id, text string) error { return second(w.Create(ctx, id, template(text))) },
			func(id string) (string, events.Offset, error) {
				got, err := w.Read(ctx, id)
				if err != nil {
					return "", 0, err
				}
				return got.Title, got.Revision, nil
			},
			func(id string, base events.Offset, text string) error {
				return second(w.Update(ctx, id, base, template(text)))
			},
		},
	}
}

// Each of the five roles is created, read and updated, and reports a conflict: it exists, it is missing, it has
// changed. A refused call writes nothing.
func TestRoles(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		for name, r := range rolesOf(t, st) {
			refused := func(t *testing.T, want error, err error, before events.Offset) {
				t.Helper()
				if !errors.Is(err, want) || queueHead(t, st) != before {
					t.Errorf("got %v, want %v; the head moved from %v to %v", err, want, before, queueHead(t, st))
				}
			}
			is := func(t *testing.T, id, want string) (revision events.Offset) {
				t.Helper()
				text, revision, err := r.read(id)
				if err != nil || text != want || revision == 0 {
					t.Errorf("the text is %q at %v, error %v; want %q", text, revision, err, want)
				}
				return revision
			}
			id := "one " + name
			t.Run("D-04 D-52 "+name+": create", func(t *testing.T) {
				must(t, r.create(id, "first"))
				is(t, id, "first")
				before := queueHead(t, st)
				refused(t, tally.ErrExists, r.create(id, "again"), before)
				is(t, id, "first")
			})
			t.Run("D-04 D-52 "+name+": read", func(t *testing.T) {
				_, _, err := r.read("none: " + name)
				refused(t, tally.ErrNotFound, err, queueHead(t, st))
				must(t, r.create("another "+name, "other"))
				is(t, "another "+name, "other")
				is(t, id, "first")
			})
			t.Run("D-04 D-52 "+name+": update", func(t *testing.T) {
				first := is(t, id, "first")
				must(t, r.update(id, first, "second"))
				now := is(t, id, "second")
				before := queueHead(t, st)
				refused(t, log.ErrConflict, r.update(id, first, "third"), before)
				refused(t, tally.ErrNotFound, r.update("none: "+name, now, "third"), before)
				if after := is(t, id, "second"); after != now || now == first {
					t.Errorf("the revisions are %v, %v and %v", first, now, after)
				}
				is(t, "another "+name, "other")
				must(t, r.update(id, now, strings.Repeat("long ", 100)+"text"))
				is(t, id, strings.Repeat("long ", 100)+"text")
			})
		}
	})
}
