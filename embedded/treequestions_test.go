package embedded_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/tree/keeper"
	"github.com/tallylog/tally/log"
)

// The owner answers questions about trees from processes that can read the store's directory, and from no user of a
// server.
func TestTreeQuestions(t *testing.T) {
	n := newNoted(t, "")
	url := ""
	l := &embedded.Listen{Address: "127.0.0.1:0", Users: []embedded.Account{{Name: "ann", Password: "secret"}}, Ready: func(at string) { url = at }}
	st := n.open(embedded.Options{Trees: notesOf, Own: true, Listen: l})
	if err := st.Wait(t.Context(), "tree:notes", 0); err != nil {
		t.Fatal(err)
	}
	user, password := mustReadToken(t, n.dir)
	o, err := os.ReadFile(filepath.Join(n.dir, "owner.json"))
	if err != nil {
		t.Fatal(err)
	}
	var of struct{ URL string }
	if err := json.Unmarshal(o, &of); err != nil {
		t.Fatal(err)
	}
	verbs := []string{"keep", "meet", "status", "conflicts", "accept", "restore", "verify", "rebuild", "pull", "resolve"}
	t.Run("a user of a server that listens may ask nothing of a tree", func(t *testing.T) {
		nc := mustConnect(t, as(url, "ann:secret"))
		for _, verb := range append(verbs, "x", "*") {
			subject := "tally.api.v1.tree." + verb
			if !nc.refused(t, func() error { return nc.Publish(subject, []byte(`{"name":"notes"}`)) }) {
				t.Errorf("publishing to %s as a user: got no error", subject)
			}
			if !nc.refused(t, func() error { _, err := nc.SubscribeSync(subject); return err }) {
				t.Errorf("subscribing to %s as a user: got no error", subject)
			}
		}
		if _, err := nc.Request("tally.api.v1.tree.pull", []byte(`{"name":"notes"}`), 200*time.Millisecond); err == nil {
			t.Error("tree.pull as a user: got an answer")
		}
		// Requests to keepers' subjects do not leave the account.
		if m, err := nc.Request("tally.keep.v1.x.y.z.pull", []byte(`{"name":"notes"}`), 5*time.Second); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("got %v, %v, want no responders", m, err)
		}
	})
	nc := mustConnect(t, of.URL, nats.UserInfo(user, password))
	ask := func(verb, question string) string {
		t.Helper()
		m, err := nc.Request("tally.api.v1.tree."+verb, []byte(question), time.Minute)
		if err != nil {
			t.Fatalf("%s: %v", verb, err)
		}
		return string(m.Data)
	}
	t.Run("an attached process is answered", func(t *testing.T) {
		for _, verb := range verbs[:len(verbs)-1] {
			if said := ask(verb, `{"name":"notes"}`); strings.Contains(said, `"error"`) || !strings.Contains(said, `"tree":"notes"`) {
				t.Errorf("%s: got %s", verb, said)
			}
		}
	})
	t.Run("a question names a tree of the store, and has a bound", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(n.dir, "x.named.json"), []byte("secret text"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, question := range []string{`{}`, `{"name":"other"}`, `{"tree":"other-00000000"}`, `{"tree":"../x"}`, `{"tree":".."}`, `{"tree":"` + n.folder + `"}`} {
			if said := ask("pull", question); !strings.Contains(said, `"kind":"notFound"`) || strings.Contains(said, "secret text") {
				t.Errorf("%s: got %s", question, said)
			}
		}
		for _, question := range []string{``, `[]`, `{"name":"` + strings.Repeat("x", 9<<10) + `"}`} {
			if said := ask("pull", question); !strings.Contains(said, `"error"`) {
				t.Errorf("%.20q: got %s", question, said)
			}
		}
		if said := ask("format", `{"name":"notes"}`); !strings.Contains(said, "unknown request") {
			t.Errorf("an unknown verb: got %s", said)
		}
	})
	conflict := events.Document(st.Namespace(), "conflict", "1f0c")
	e := events.Event{Source: "urn:notes", Type: events.TypeDocumentWritten, Subject: conflict, ContentType: events.ContentTypeRaw, Data: []byte("mine")}
	meta := events.DocMeta{Attributes: map[string]string{"tree": "notes", "path": "a", "copy": "a.conflict-0-1f0c"}}
	if _, err := st.Append(t.Context(), conflict, log.At(0), e.WithExtension(events.ExtDoc, meta.String())); err != nil {
		t.Fatal(err)
	}
	if _, err := n.ask(keeper.VerbResolve); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("a question without a conflict's name: got %v", err)
	}
}

// After an owner was killed, another program may listen at its address. No process asks it.
func TestTreeQuestionsOfStranger(t *testing.T) {
	n := newNoted(t, "mode = \"sync\"\n")
	st := n.keeps()
	if err := n.put(st, "a", "one"); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(n.dir, "owner.json")
	text, err := os.ReadFile(at)
	if err == nil {
		err = st.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	met := make(chan struct{})
	go func() {
		if c, err := l.Accept(); err == nil {
			close(met)
			c.Close()
		}
	}()
	var members map[string]any
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatal(err)
	}
	members["url"] = "nats://" + l.Addr().String()
	if text, err = json.Marshal(members); err == nil {
		err = os.WriteFile(at, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if said, err := n.ask(keeper.VerbState); !errors.Is(err, log.ErrUnavailable) || said.Status.PID != 0 || said.Status.Files != 1 {
		t.Errorf("got %+v, %v", said.Status, err)
	}
	select {
	case <-met:
		t.Error("another program at the owner's address was asked")
	default:
	}
}

// Beside a server that others run, requests about a tree go to a subject that cannot be guessed. The keeper answers
// only to inboxes: a stranger could store its answer elsewhere by another reply subject.
func TestTreeBeside(t *testing.T) {
	n := newNoted(t, "mode = \"async\"\n")
	t.Setenv("XDG_CACHE_HOME", filepath.Join(filepath.Dir(n.dir), "cache"))
	server := mustServe(t, "}")
	st := n.open(embedded.Options{Backend: config.NATS, URL: server.ClientURL()})
	c, err := config.Resolve(n.project, config.Overrides{URL: server.ClientURL()}, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(verb string) (keeper.Answer, error) {
		return keeper.Ask(t.Context(), c, c.Trees[0], verb, keeper.Question{})
	}
	if _, err := ask(keeper.VerbPull); !errors.Is(err, log.ErrUnavailable) {
		t.Errorf("a tree without a keeper: got %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- keeper.Keep(ctx, st, c, notesOf, nil) }()
	n.until("somebody keeps it", func() bool { _, err := ask(keeper.VerbState); return err == nil })
	nc := mustConnect(t, server.ClientURL())
	heard, err := nc.SubscribeSync("tally.keep.>")
	if err == nil {
		err = errors.Join(nc.Flush(), n.put(st, "a", "one"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(keeper.VerbPull); err != nil {
		t.Fatal(err)
	}
	n.shows("a", "one")
	if err := keeper.Keep(t.Context(), st, c, notesOf, nil); err == nil || !strings.Contains(err.Error(), "keeps it already") {
		t.Errorf("a second keeper: got %v", err)
	}
	var question *nats.Msg
	n.until("a question is heard", func() bool {
		m, err := heard.NextMsg(10 * time.Millisecond)
		if err == nil && strings.HasSuffix(m.Subject, ".pull") {
			question = m
		}
		return question != nil
	})
	head, err := st.Log.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	aim := events.Document(st.Namespace(), "note", "forged").NATS()
	before, err := nc.SubscribeSync(aim)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(nc.PublishRequest(question.Subject, aim, question.Data), nc.Publish(question.Subject, question.Data), nc.Flush()); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(keeper.VerbState); err != nil { // the answer to the last request comes last
		t.Fatal(err)
	}
	if m, err := before.NextMsg(100 * time.Millisecond); err == nil {
		t.Errorf("the keeper published %s to %s", m.Data, m.Subject)
	}
	if now, err := st.Log.Head(t.Context()); err != nil || now != head {
		t.Errorf("got head %v, %v, want %v", now, err, head)
	}
	if err := errors.Join(heard.Unsubscribe(), nc.Flush()); err != nil {
		t.Fatal(err)
	}
	if stop(); <-kept != nil {
		t.Error("a requested stop: got an error")
	}
	said, err := ask(keeper.VerbState)
	if !errors.Is(err, log.ErrUnavailable) || said.Status.Files != 1 || said.Status.PID != 0 {
		t.Errorf("got %+v, %v", said.Status, err)
	}
}
