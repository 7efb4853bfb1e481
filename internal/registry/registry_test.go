package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// newStore returns a store in memory whose log has a gate.
func newStore(t testing.TB) *tally.Store {
	t.Helper()
	g := NewGate()
	l := logtest.OpenOn(t, memlog.New(memlog.Config{}), log.Config{Host: log.Host{Admit: g.Admit}})
	g.Watch(l)
	st, err := tally.Open(t.Context(), l, tally.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

const voteSchema = `{"type":"object","required":["for"],"properties":{"for":{"type":"string","maxLength":3},"a/b~c":{"type":"integer"}}}`

func voteType(moves, schema string, offsets ...string) events.Type {
	return events.Type{Name: "com.acme.vote.v1", Moves: moves, Schema: json.RawMessage(schema), Offsets: offsets}
}

func mustRegister(t testing.TB, st *tally.Store, typ events.Type, replace bool) Entry {
	t.Helper()
	e, _, err := Register(t.Context(), st, typ, replace)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func mustBeInvalid(t *testing.T, what string, err error, field, reason string) {
	t.Helper()
	invalid, ok := errors.AsType[*events.InvalidError](err)
	if !ok || invalid.Field != field || !strings.Contains(invalid.Reason, reason) {
		t.Errorf("%s: got %v, want an InvalidError of %s with %q", what, err, field, reason)
	}
}

// A document of a type says what it means, and nothing else.
func TestParse(t *testing.T) {
	for data, want := range map[string][2]string{
		`{`:                                  {"data", ""},
		`[]`:                                 {"data", ""},
		`{"moves":"thread","moves":"x"}`:     {"data", "moves"},
		`{}`:                                 {"moves", "want thread or ledger"},
		`{"moves":"both"}`:                   {"moves", `"both"`},
		`{"moves":"thread","schem":{}}`:      {"schem", "want moves, schema and offsets"},
		`{"moves":"thread","name":"other"}`:  {"name", "com.acme.x"},
		`{"moves":"thread","offsets":["a"]}`: {"offsets[0]", "not a JSON pointer"},
		`{"moves":"thread","offsets":["/a","/a~2"]}`:                                     {"offsets[1]", "not a JSON pointer"},
		`{"moves":"thread","schema":{"type":7}}`:                                         {"schema/type", ""},
		`{"moves":"thread","schema":null}`:                                               {"schema", ""},
		`{"moves":"thread","schema":{"pattern":"("}}`:                                    {"schema/pattern", "regex"},
		`{"moves":"thread","schema":{"$ref":"#/$defs/x"}}`:                               {"schema", "$defs"},
		`{"moves":"thread","schema":{"$ref":"https://example.com/s.json"}}`:              {"schema", "https://example.com/s.json"},
		`{"moves":"thread","schema":{"$ref":"file:///etc/passwd"}}`:                      {"schema", "file:///etc/passwd"},
		`{"moves":"thread","schema":{"$schema":"https://example.com/draft"}}`:            {"schema", "https://example.com/draft"},
		`{"moves":"thread","schema":{"title":"` + strings.Repeat("x", maxSchema) + `"}}`: {"schema", "at most 65536"},
	} {
		_, err := Parse("com.acme.x", []byte(data))
		mustBeInvalid(t, data[:min(len(data), 80)], err, want[0], want[1])
	}
	// What a schema refers to is bounded: it costs nothing to write.
	doubled := func(last string) string {
		var b strings.Builder
		b.WriteString(`{"$ref":"#/$defs/0","$defs":{`)
		for i := range 40 {
			fmt.Fprintf(&b, `"%d":{"allOf":[{"$ref":"#/$defs/%d"},{"$ref":"#/$defs/%d"}]},`, i, i+1, i+1)
		}
		return b.String() + `"40":` + last + `}}`
	}
	for schema, want := range map[string]string{
		doubled(`{}`): "more than 4096 rules",
		`{"properties":{"a":{"items":{"$ref":"#"}}}}`:                                                            "# refers to itself",
		`{"$dynamicRef":"#a","$defs":{"a":{"$dynamicAnchor":"a"}}}`:                                              "dynamic reference",
		`{"additionalProperties":{"not":{"dependentSchemas":{"b":{"prefixItems":[{"anyOf":[{"$ref":"#"}]}]}}}}}`: "# refers to itself",
	} {
		_, err := Parse("com.acme.x", []byte(`{"moves":"thread","schema":`+schema+`}`))
		mustBeInvalid(t, schema[:min(len(schema), 80)], err, "schema", want)
	}
	for name, want := range map[string]string{"": "type", "tally.x.v1": "type", events.TypeCostAccrued: "name", strings.Repeat("x", events.MaxIDLen+1): "type", "a\nb": "type"} {
		_, err := Parse(name, []byte(`{"moves":"thread"}`))
		mustBeInvalid(t, name, err, want, "")
	}
	full := `{"name":"com.acme.x","moves":"ledger","schema":` + voteSchema + `,"offsets":["/a~1b/0","/c~0"]}`
	for _, name := range []string{"", "com.acme.x"} {
		typ, err := Parse(name, []byte(full))
		if err != nil || typ.Name != "com.acme.x" || typ.Moves != events.InLedger || string(typ.Schema) != voteSchema || len(typ.Offsets) != 2 {
			t.Errorf("Parse(%q): %v, %v", name, typ, err)
		}
		data, err := Encode(typ)
		if again, err2 := Parse(typ.Name, data); err != nil || err2 != nil || !(Entry{Type: again}).HasSchema(typ) || (Entry{Type: again}).Agree(typ) != nil {
			t.Errorf("Encode: %s, %v, %v", data, err, err2)
		}
	}
}

// The gate checks data against the schema of their type, as it is at the moment.
func TestSchemas(t *testing.T) {
	st := newStore(t)
	sub := events.Session("", "s")
	n := 0
	vote := func(data string, change ...func(*events.Event)) error {
		n++
		e := events.Event{ID: fmt.Sprint(n), Source: "urn:t", Type: "com.acme.vote.v1", Subject: sub, ContentType: events.ContentTypeJSON, Data: []byte(data)}
		for _, f := range change {
			f(&e)
		}
		_, err := st.Append(t.Context(), sub, log.Any, e)
		return err
	}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	must("not registered", vote(`7`))
	first := mustRegister(t, st, voteType(events.WithThread, voteSchema), false)
	must("as the schema says", vote(`{"for":"a","a/b~c":1e0}`))
	for data, want := range map[string][2]string{
		``: {"data", ""}, `{`: {"data", ""}, `[]`: {"data", "object"}, `{}`: {"data", "for"},
		`{"for":7}`: {"data/for", "string"}, `{"for":"long"}`: {"data/for", "3"}, `{"for":"a","a/b~c":"x"}`: {"data/a~1b~0c", "integer"},
		`{"for":7,"a/b~c":"x"}`: {"data/a~1b~0c", "integer"}, // the first place
	} {
		mustBeInvalid(t, data, vote(data), want[0], want[1])
	}
	mustBeInvalid(t, "text", vote(`{"for":"a"}`, func(e *events.Event) { e.ContentType = "text/plain" }), "datacontenttype", "text/plain")
	long := `{"for":"a","more":"` + strings.Repeat("x", events.MaxData) + `"}`
	must("by reference", vote(long))
	mustBeInvalid(t, "by reference", vote(strings.Replace(long, `"a"`, "7", 1)), "data/for", "string")
	many := `{"for":"a","more":[0` + strings.Repeat(",0", maxValues)
	mustBeInvalid(t, "many values", vote(many+`]}`), "data", "at most 262144")
	must("as many values as there may be", vote(many[:len(many)-2*6]+`]}`))
	_, err := st.Append(t.Context(), sub, log.Any, events.Event{Source: "urn:t", Type: events.TypeTurnAppended, Data: []byte(`{"entries":[{"thread":"main","turn":1}]}`)},
		events.Event{Source: "urn:t", Type: "com.acme.vote.v1", Data: []byte(`{}`)})
	mustBeInvalid(t, "one of two", err, "data", "for")
	if o, err := st.Session("s").Outline(t.Context()); err != nil || o.Len(events.MainThread) != 0 {
		t.Errorf("a part of a refused append is stored: %v", err)
	}

	if e := mustRegister(t, st, voteType(events.WithThread, `true`), false); e.Last != first.Last {
		t.Error("a program that opens the store replaced a schema")
	}
	second := mustRegister(t, st, voteType(events.WithThread, ` {"type" : "integer"} `), true)
	if e := mustRegister(t, st, voteType(events.WithThread, `{"type":"integer"}`), true); e.Last != second.Last || e.Since != first.Since {
		t.Errorf("the same schema again: got %+v, want revision %v", e, second.Last)
	}
	must("as the new schema says", vote(`7`))
	mustBeInvalid(t, "as the old schema said", vote(`{"for":"a"}`), "data", "integer")
	mustRegister(t, st, voteType(events.WithThread, ``), true)
	must("without a schema", vote(`"x"`))
	all, err := All(t.Context(), st.Log)
	if err != nil || len(all) != 1 || all[0].Since != first.Since || all[0].Schema != nil {
		t.Errorf("All: %v, %v", all, err)
	}
}

// The movement and the offsets of a name never change, also if many programs register it at once.
func TestMovesNeverChange(t *testing.T) {
	ctx := t.Context()
	t.Run("X-07 changed", func(t *testing.T) {
		st := newStore(t)
		mustRegister(t, st, voteType(events.WithThread, "", "/a"), false)
		for field, typ := range map[string]events.Type{"moves": voteType(events.InLedger, "", "/a"), "offsets": voteType(events.WithThread, "", "/b")} {
			_, _, err := Register(ctx, st, typ, true)
			if e, ok := errors.AsType[*events.TypeError](err); !ok || e.Field != field || e.Name != typ.Name {
				t.Errorf("got %v, want a TypeError of %s", err, field)
			}
			data, _ := Encode(typ)
			_, err = st.Documents().Save(ctx, events.KindType, typ.Name, tally.Write{Data: data})
			if e, ok := errors.AsType[*events.TypeError](err); !ok || e.Field != field {
				t.Errorf("written as a document: got %v, want a TypeError of %s", err, field)
			}
		}
		_, err := st.Documents().Delete(ctx, events.KindType, "com.acme.vote.v1", 1, "")
		mustBeInvalid(t, "deleted", err, "type", "not deleted")
		_, err = st.Documents().Create(ctx, events.KindType, "com.acme.other.v1", tally.Write{Data: []byte(`{"moves":1}`)})
		mustBeInvalid(t, "invalid", err, "data", "moves")
		team, err := st.In("team")
		if err != nil {
			t.Fatal(err)
		}
		_, err = team.Documents().Create(ctx, events.KindType, "com.acme.other.v1", tally.Write{Data: []byte(`{"moves":"thread"}`)})
		mustBeInvalid(t, "elsewhere", err, "subject", "namespace default")
	})
	t.Run("X-07 at once", func(t *testing.T) {
		for range 50 {
			st := newStore(t)
			var all sync.WaitGroup
			moves, refused := [2]string{events.WithThread, events.InLedger}, [2]int{}
			var mu sync.Mutex
			for i := range 8 {
				all.Go(func() {
					data, _ := Encode(voteType(moves[i%2], ""))
					var err error
					if i < 4 {
						_, _, err = Register(ctx, st, voteType(moves[i%2], ""), false)
					} else { // without a look at the log
						_, err = st.Documents().Save(ctx, events.KindType, "com.acme.vote.v1", tally.Write{Data: data})
					}
					mu.Lock()
					defer mu.Unlock()
					if _, ok := errors.AsType[*events.TypeError](err); ok {
						refused[i%2]++
					} else if err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			have := make(map[string]int)
			for rec, err := range st.Log.Read(ctx, events.Range{Kind: events.KindType}) {
				if err != nil {
					t.Fatal(err)
				}
				typ, err := Parse("com.acme.vote.v1", rec.Data)
				if err != nil {
					t.Fatal(err)
				}
				have[typ.Moves]++
			}
			if len(have) != 1 || refused[0]+refused[1] != 4 || refused[0]*refused[1] != 0 {
				t.Fatalf("registered %v, refused %v: want one movement, and the four programs with the other one refused", have, refused)
			}
		}
	})
	t.Run("a log without an owner", func(t *testing.T) {
		l := logtest.OpenOn(t, memlog.New(memlog.Config{}), log.Config{})
		for i, data := range []string{`7`, `{"moves":"thread"}`, `{"moves":"ledger"}`, `{"moves":"thread","schema":true}`, `{"moves":"x"}`} {
			e := events.Event{ID: fmt.Sprint(i), Source: "urn:t", Type: events.TypeDocumentWritten, Data: []byte(data)}
			if _, err := l.Append(ctx, Subject("com.acme.vote.v1"), log.Any, e); err != nil {
				t.Fatal(err)
			}
		}
		e, err := Find(ctx, l, "com.acme.vote.v1")
		if err != nil || e.Moves != events.WithThread || e.Since != 2 || e.Last != 4 || string(e.Schema) != "true" {
			t.Errorf("got %+v, %v, want the first movement and the last schema", e, err)
		}
	})
}

// A registration whose outcome is unknown keeps its name, because it may be stored later. One that failed does not.
func TestClaims(t *testing.T) {
	g := NewGate()
	g.Watch(logtest.OpenOn(t, memlog.New(memlog.Config{}), log.Config{}))
	ask := func(moves string) (func([]log.Ack, error), error) {
		data, _ := Encode(voteType(moves, ""))
		return g.Admit(context.Background(), []log.Part{{Subject: Subject("com.acme.vote.v1"), Events: []events.Event{{Type: events.TypeDocumentWritten, Data: data}}}})
	}
	for i, end := range []error{log.ErrFull, log.ErrUnknown} {
		settle, err := ask(events.WithThread)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ask(events.InLedger); err == nil {
			t.Error("another movement is admitted while the first one is written")
		}
		settle(nil, end)
		settle, err = ask(events.InLedger)
		if (err == nil) != (i == 0) {
			t.Errorf("after %v: got %v", end, err)
		}
		if err == nil {
			settle(nil, log.ErrFull)
		}
	}
}
