package embedded_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// A misspelled type of the vocabulary is refused wherever it comes from. In a log, as of another version, it stays
// readable and changes nothing. cmd/testdata/script/append.txtar has the program's part.
func TestUnknownTypes(t *testing.T) {
	const misspelled, nearest = "tally.turn.appendd.v1", events.TypeTurnAppended
	event := turn("typo", "hi")
	event.Type, event.Subject, event.ContentType = misspelled, events.Session("", "s1"), events.ContentTypeJSON
	text, err := events.AppendJSON(nil, event)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := mustStart(t, embedded.ServerOptions{Dir: dir})
	t.Run("X-05 Go", func(t *testing.T) {
		_, err := s.Log().Append(t.Context(), event.Subject, log.Any, event)
		if invalid, ok := errors.AsType[*events.InvalidError](err); !ok || invalid.Field != "type" || !strings.Contains(err.Error(), nearest) {
			t.Errorf("got %v, want an InvalidError of the type that names %s", err, nearest)
		}
	})
	t.Run("X-05 raw NATS", func(t *testing.T) {
		user, password := mustReadToken(t, dir)
		nc, err := nats.Connect(s.URL(), nats.UserInfo(user, password))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		m, err := nc.Request("tally.api.v1.append", []byte(`{"subject":"session/s1","events":[`+string(text)+`]}`), time.Minute)
		if err != nil || m.Header.Get("Nats-Service-Error-Code") != "invalid" || !strings.Contains(string(m.Data), nearest) {
			t.Errorf("got %s, %v, want the code invalid and %s", m.Data, err, nearest)
		}
	})
	t.Run("X-05 stored by another version", func(t *testing.T) {
		server := mustServe(t, "}")
		home(t, nil)
		st := mustOpen(t, embedded.Options{Backend: "nats", URL: server.ClientURL()})
		mustAppend(t, st.Log, event.Subject, turn("before", "hello"))
		nc, err := nats.Connect(server.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		header, data := events.EncodeBinary(event)
		js, err := nc.JetStream()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.PublishMsg(&nats.Msg{Subject: event.Subject.NATS(), Header: header, Data: data}); err != nil {
			t.Fatal(err)
		}
		var exported string
		for rec, err := range st.Log.Read(t.Context(), events.Range{Subject: event.Subject, After: 1}) {
			if err != nil {
				t.Fatal(err)
			}
			line, err := events.AppendJSON(nil, rec.Event)
			if err != nil {
				t.Fatal(err)
			}
			exported += string(line)
		}
		if exported != string(text) {
			t.Errorf("the log has %s, want %s", exported, text)
		}
		o, err := st.Session("s1").Outline(t.Context())
		if err != nil || o.Len(events.MainThread) != 1 || len(o.Ledger().Unknown) != 1 || len(o.Ledger().Rejected) != 0 {
			t.Errorf("got %v, want one turn and one event of an unknown type", err)
		}
	})
}

// A program registers its types when it opens a store: as the owner, attached, in memory and on a server that others
// run. Owners check schemas for all programs.
func TestTypesOfPrograms(t *testing.T) {
	home(t, nil)
	dir := filepath.Join(t.TempDir(), "store")
	server := mustServe(t, "}")
	typ := events.Define[any]("com.acme.vote.v1", events.WithThread).Schema([]byte(`{"required":["for"],"properties":{"for":{"type":"string"}}}`))
	local := embedded.Options{Backend: "local", Store: dir}
	places := []struct {
		name string
		embedded.Options
		isChecked bool
	}{{"owner", local, true}, {"attached", local, true}, {"memory", embedded.Options{Backend: "memory"}, true}, {"server", embedded.Options{Backend: "nats", URL: server.ClientURL()}, false}}
	for _, p := range places {
		sub := events.Session("", p.name)
		p.Types = []events.Type{typ.Type}
		st := mustOpen(t, p.Options)
		t.Run("X-06 "+p.name, func(t *testing.T) {
			for data, field := range map[string]string{`{"for":"b"}`: "", `{"for":7}`: "data/for"} {
				e, err := typ.New(sub, json.RawMessage(data))
				if err != nil {
					t.Fatal(err)
				}
				_, err = st.Append(t.Context(), sub, log.Any, e)
				invalid, ok := errors.AsType[*events.InvalidError](err)
				if want := field != "" && p.isChecked; ok != want || ok && invalid.Field != field || err != nil && !ok {
					t.Errorf("%s: got %v, want refused: %v, at %q", data, err, want, field)
				}
			}
		})
		t.Run("X-07 "+p.name, func(t *testing.T) {
			other, doc := events.Define[any](typ.Name, events.InLedger).Type, events.Document("", events.KindType, typ.Name)
			if p.name != "memory" { // each opens its own
				p.Types = []events.Type{other}
				p.ConfigDir = t.TempDir()
				_, err := embedded.Open(t.Context(), p.Options)
				if e, ok := errors.AsType[*events.TypeError](err); !ok || e.Field != "moves" {
					t.Errorf("another movement: got %v, want a TypeError of moves", err)
				}
			}
			_, err := st.Documents().Save(t.Context(), doc.Kind, doc.ID, tally.Write{Data: []byte(`{"moves":"ledger"}`)})
			if _, ok := errors.AsType[*events.TypeError](err); ok != p.isChecked {
				t.Errorf("another movement as a document: got %v, want refused: %v", err, p.isChecked)
			}
			_, err = st.Documents().Create(t.Context(), events.KindType, "com.acme.bad.v1", tally.Write{Data: []byte(`{"moves":7}`)})
			if _, ok := errors.AsType[*events.InvalidError](err); !ok {
				t.Errorf("an invalid document of a type: got %v, want an InvalidError", err)
			}
		})
	}
	look := local
	look.Look, look.Existing, look.Types = true, true, []events.Type{events.Define[any]("com.acme.new.v1", events.InLedger).Type}
	mustOpen(t, look) // attached, as the owner has the store open: it registers
	none := embedded.Options{Backend: "local", Store: filepath.Join(t.TempDir(), "none"), Existing: true, Types: look.Types}
	mustOpen(t, none) // there is no store to write to
}

// BenchmarkSchema compares appends of a type with a schema and of one without, to a store of this machine. The appends
// alternate, so that both meet the same load.
func BenchmarkSchema(b *testing.B) {
	with := events.Define[json.RawMessage]("com.acme.vote.v1", events.WithThread).Schema([]byte(`{"type":"object","required":["for"],"properties":{"for":{"type":"string","maxLength":3},"n":{"type":"integer"}}}`))
	without := events.Define[json.RawMessage]("com.acme.note.v1", events.WithThread)
	st, err := embedded.Open(b.Context(), embedded.Options{ConfigDir: b.TempDir(), Backend: "local", Store: filepath.Join(b.TempDir(), "store"), Types: []events.Type{with.Type, without.Type}})
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	sub := events.Session("", "s")
	var took [2]time.Duration
	for b.Loop() {
		for i, typ := range []events.TypeOf[json.RawMessage]{without, with} {
			e, err := typ.New(sub, json.RawMessage(`{"for":"a","n":7}`))
			begun := time.Now()
			if err == nil {
				_, err = st.Append(b.Context(), sub, log.Any, e)
			}
			if took[i] += time.Since(begun); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "with/without")
}
