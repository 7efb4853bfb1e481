package events_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
)

func TestNew(t *testing.T) {
	sub := events.Session("acme", "s")
	e, err := events.New("urn:x", sub, &events.CheckpointCleared{Kind: "step", Reason: "done"})
	if err != nil {
		t.Fatal(err)
	}
	want := events.Event{Source: "urn:x", Type: events.TypeCheckpointCleared, Subject: sub, ContentType: "application/json", Data: []byte(`{"kind":"step","reason":"done"}`)}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p, err := events.DecodeAs[events.CheckpointCleared](e)
	if err != nil || p.Reason != "done" {
		t.Errorf("DecodeAs = %v, %v, want reason done", p, err)
	}
	_, err = events.DecodeAs[events.CostAccrued](e)
	mustBeInvalid(t, "another type", err, "type")
	_, err = events.New("urn:x", sub, &events.CheckpointCleared{Kind: "step"})
	mustBeInvalid(t, "invalid payload", err, "data.reason")
}

// A payload with zero values is encoded so that Decode accepts it.
func TestEncodeZeroes(t *testing.T) {
	for _, p := range []events.Payload{
		&events.ThreadReplaced{Threads: map[string]events.Replacement{"a": {}}, Others: "keep", Reason: "clear"},
		&events.TurnAppended{ThreadMeta: map[string]events.Raw{"a": events.Raw("1")}},
		&events.TurnAppended{Entries: []events.Entry{{Thread: "a", Bytes: []byte{}}}},
		&events.SessionUpdated{Set: events.Fields{}},
		&events.RunFinished{Run: events.RunRef{Kind: "k", ID: "i"}, Outcome: "failed", Result: events.Raw("null"), Judged: &events.Judged{Threads: map[string]events.JudgedThread{}}},
	} {
		data, err := events.Encode(p)
		if err != nil {
			t.Errorf("%T: %v", p, err)
			continue
		}
		if _, err := events.Decode(p.EventType(), data); err != nil {
			t.Errorf("%T: decode of the encoded %s: %v", p, data, err)
		}
	}
}

// Raw values and unknown fields come back byte for byte.
func TestPayloadKeepsBytes(t *testing.T) {
	const turn = `{ "b":1.0, "a" : "\u003c<\u2028\ud800", "b":1e400}`
	const in = `{"entries":[{"thread":"main","turn":` + turn + `,"x":[ 1 ]}],"y":{"z":0.10}}`
	p, err := events.Decode(events.TypeTurnAppended, []byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(p.(*events.TurnAppended).Entries[0].Turn); got != turn {
		t.Errorf("turn = %s, want %s", got, turn)
	}
	if out, err := events.Encode(p); err != nil || string(out) != in {
		t.Errorf("encoded as %s, %v, want %s", out, err, in)
	}
}

func TestDecodeHostile(t *testing.T) {
	deep := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	for name, data := range map[string]string{
		"deep":           `{"entries":[{"thread":"main","turn":` + deep + `}]}`,
		"deep unknown":   `{"x":` + deep + `,"entries":[{"thread":"main","turn":1}]}`,
		"deep, open":     strings.Repeat(`{"entries":`, 20000),
		"empty":          ``,
		"cut":            `{"entries":[{"thread":"main","turn":1}]`,
		"two values":     `{"entries":[{"thread":"main","turn":1}]} {}`,
		"bytes":          "{\"entries\":[{\"thread\":\"main\",\"turn\":\"\xc0\x80\"}]}",
		"NUL":            "{\"entries\":[{\"thread\":\"main\",\"turn\":\"\x00\"}]}",
		"BOM":            "\xef\xbb\xbf{\"entries\":[{\"thread\":\"main\",\"turn\":1}]}",
		"huge offset":    `{"entries":[{"thread":"main","turn":1}],"pins":{"main":{"` + strings.Repeat("9", 5000) + `":true}}}`,
		"long thread":    `{"entries":[{"thread":"` + strings.Repeat("x", 513) + `","turn":1}]}`,
		"surrogate":      `{"entries":[{"thread":"\ud800","turn":1}]}`,
		"twice":          `{"entries":[],"entries":[{"thread":"main","turn":1}]}`,
		"twice, spelled": `{"x":1,"\u0078":1,"entries":[{"thread":"main","turn":1}]}`,
	} {
		_, err := events.Decode(events.TypeTurnAppended, []byte(data))
		mustBeInvalid(t, name, err, "")
	}
}

func TestEventValidate(t *testing.T) {
	doc := events.Event{ID: "1", Source: "urn:x", Type: events.TypeDocumentWritten, Subject: events.Document("acme", "recipe", "r"), ContentType: "text/plain", Data: []byte("\xff")}
	blob := doc
	blob.Subject.Kind, blob.Subject.ID = events.KindBlob, sha
	part := func(sum string) string {
		return events.DocMeta{Part: &events.Part{Index: 0, Count: 1, SHA256: sum}}.String()
	}
	foreign := turn()
	foreign.Type, foreign.Data, foreign.ContentType = "org.example.x", []byte{0}, "image/png"
	for name, e := range map[string]events.Event{
		"a turn": turn(), "a document": doc, "a blob": blob, "a part": blob.WithExtension(events.ExtDoc, part(sha)), "foreign": foreign,
		"data elsewhere": func() events.Event {
			e := turn()
			e.Data = nil
			return e.WithExtension(events.ExtDataRef, events.BlobRef(sha))
		}(),
		"foreign dataref": foreign.WithExtension(events.ExtDataRef, "https://example.com/x"),
		"its own schema":  func() events.Event { e := turn(); e.DataSchema = events.DataSchema(e.Type); return e }(),
	} {
		if err := e.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, tc := range map[string]struct {
		field  string
		event  events.Event
		change func(*events.Event)
	}{
		"no subject":            {"namespace", turn(), func(e *events.Event) { e.Subject = events.Subject{} }},
		"a turn of a document":  {"subject", turn(), func(e *events.Event) { e.Subject.Kind = "recipe" }},
		"a session as document": {"subject", doc, func(e *events.Event) { e.Subject.Kind = events.KindSession }},
		"no id":                 {"id", turn(), func(e *events.Event) { e.ID = "" }},
		"long id":               {"id", turn(), func(e *events.Event) { e.ID = strings.Repeat("x", 513) }},
		"line break":            {"id", turn(), func(e *events.Event) { e.ID = "a\nb" }},
		"no source":             {"source", turn(), func(e *events.Event) { e.Source = "" }},
		"no URI reference":      {"source", turn(), func(e *events.Event) { e.Source = "http://[" }},
		"no type":               {"type", turn(), func(e *events.Event) { e.Type = "" }},
		"late":                  {"time", turn(), func(e *events.Event) { e.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
		"late in UTC":           {"time", turn(), func(e *events.Event) { e.Time = time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -7200)) }},
		"before Christ":         {"time", turn(), func(e *events.Event) { e.Time = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC) }},
		"content type":          {"datacontenttype", turn(), func(e *events.Event) { e.ContentType = "text/plain" }},
		"content type, spaces":  {"datacontenttype", turn(), func(e *events.Event) { e.ContentType = " application/json" }},
		"schema":                {"dataschema", foreign, func(e *events.Event) { e.DataSchema = "a\x00" }},
		"another schema":        {"dataschema", turn(), func(e *events.Event) { e.DataSchema = "https://example.com/" }},
		"extension name":        {"extension", turn(), func(e *events.Event) { e.Extensions["A"] = "x" }},
		"core as extension":     {"extension", turn(), func(e *events.Event) { e.Extensions["subject"] = "x" }},
		"extension value":       {"x", turn(), func(e *events.Event) { e.Extensions["x"] = "\u0085" }},
		"seen":                  {events.ExtBasis, turn(), func(e *events.Event) { e.Extensions[events.ExtBasis] = "41" }},
		"dataref":               {events.ExtDataRef, turn(), func(e *events.Event) { e.Extensions[events.ExtDataRef] = "urn:x" }},
		"payload":               {"data.entries", turn(), func(e *events.Event) { e.Data = []byte(`{}`) }},
		"no payload":            {"data", turn(), func(e *events.Event) { e.Data = nil }},
		"tallydoc":              {events.ExtDoc, doc, func(e *events.Event) { *e = e.WithExtension(events.ExtDoc, "x") }},
		"id of a blob":          {"subject", blob, func(e *events.Event) { e.Subject.ID = "x" }},
		"part of another":       {events.ExtDoc, blob, func(e *events.Event) { *e = e.WithExtension(events.ExtDoc, part(strings.Repeat("0", 64))) }},
	} {
		tc.change(&tc.event)
		mustBeInvalid(t, name, tc.event.Validate(), tc.field)
	}
}

func TestBasis(t *testing.T) {
	if at, ok := turn().Basis(); at != 41 || !ok {
		t.Errorf("Basis = %v, %v, want 41, true", at, ok)
	}
	if at, ok := (events.Event{}).Basis(); at != 0 || ok {
		t.Errorf("Basis without the extension = %v, %v, want 0, false", at, ok)
	}
}

func TestWithExtension(t *testing.T) {
	a := turn()
	b := a.WithExtension("x", "y")
	if b.Extensions["x"] != "y" || len(b.Extensions) != 3 || len(a.Extensions) != 2 {
		t.Errorf("extensions %v, and with one more %v", a.Extensions, b.Extensions)
	}
}

func TestBlobRef(t *testing.T) {
	if got, ok := events.ParseBlobRef(events.BlobRef(sha)); got != sha || !ok {
		t.Errorf("ParseBlobRef = %q, %v, want %s", got, ok, sha)
	}
	for _, ref := range []string{"", sha, "urn:tally:blob:", "urn:tally:blob:" + sha[1:], "urn:tally:blob:" + strings.ToUpper(sha), "urn:tally:blob:" + sha + "0"} {
		if _, ok := events.ParseBlobRef(ref); ok {
			t.Errorf("ParseBlobRef(%q) is true", ref)
		}
	}
}

func TestDerivedID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.String())
		a, b := parts.Draw(t, "a"), parts.Draw(t, "b")
		x, y := events.DerivedID(a...), events.DerivedID(b...)
		if (x == y) != slices.Equal(a, b) || len(x) != 24 {
			t.Fatalf("ids of %q and %q are %s and %s, want different ones of 24 characters", a, b, x, y)
		}
	})
	if events.DerivedID("a", "b") == events.DerivedID("ab") {
		t.Error("DerivedID does not separate its parts")
	}
}

// MsgID depends on subject, source and id, and on nothing else.
func TestMsgID(t *testing.T) {
	a := turn()
	b := a
	b.Type, b.Data, b.Time, b.Extensions = "x", nil, time.Time{}, nil
	if a.MsgID() != b.MsgID() || len(a.MsgID()) != 22 {
		t.Errorf("got %s and %s, want equal ids of 22 characters", a.MsgID(), b.MsgID())
	}
	seen := map[string]bool{a.MsgID(): true}
	for _, change := range []func(*events.Event){
		func(e *events.Event) { e.ID += "x" }, func(e *events.Event) { e.Source += "x" }, func(e *events.Event) { e.Subject.ID += "x" },
		func(e *events.Event) { e.Subject.Namespace += "x" }, func(e *events.Event) { e.Source, e.ID = "urn", ":tally:ingest"+e.ID },
	} {
		e := a
		change(&e)
		if seen[e.MsgID()] {
			t.Errorf("two identities have the id %s", e.MsgID())
		}
		seen[e.MsgID()] = true
	}
}

func TestDocMetaRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := events.DocMeta{Attributes: rapid.MapOfN(rapid.String(), rapid.String(), 1, 4).Draw(t, "attributes"), Owner: rapid.String().Draw(t, "owner"), Base: 7}
		m.Attributes["hostile"] = "\x00\x7f\u0085\u2028\ufffe\U0001ffff\U0010ffff"
		e := events.Event{ID: "1", Source: "urn:x", Type: events.TypeDocumentWritten, Subject: events.Document("", "doc", "x")}.WithExtension(events.ExtDoc, m.String())
		if err := e.Validate(); err != nil {
			t.Fatalf("%q: %v", m, err)
		}
		got, err := events.ParseDocMeta(m.String())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
	if m, err := events.ParseDocMeta(""); err != nil || m.Attributes != nil {
		t.Errorf("ParseDocMeta of nothing = %v, %v", m, err)
	}
	mustBeInvalid(t, "bytes", events.DocMeta{Attributes: map[string]string{"\xff": ""}}.Validate(), events.ExtDoc)
	mustBeInvalid(t, "bytes in owner", events.DocMeta{Owner: "\xff"}.Validate(), events.ExtDoc)
	mustBeInvalid(t, "bytes in layer", events.DocMeta{Layer: "\xff"}.Validate(), events.ExtDoc)
	mustBeInvalid(t, "bytes in rel", events.DocMeta{Links: []events.Link{{Rel: "\xff", To: "session/s"}}}.Validate(), events.ExtDoc)
	mustBeInvalid(t, "bytes in to", events.DocMeta{Links: []events.Link{{Rel: "r", To: "session/\xff"}}}.Validate(), events.ExtDoc)
}

func TestVocabulary(t *testing.T) {
	types := events.Types()
	if len(types) != 17 || len(slices.Compact(slices.Sorted(slices.Values(types)))) != 17 {
		t.Fatalf("got %d types, want 17 different ones", len(types))
	}
	for _, typ := range types {
		if !events.IsKnown(typ) || events.IsThread(typ) != slices.Contains(events.ThreadTypes(), typ) {
			t.Errorf("%s: known %v, thread %v", typ, events.IsKnown(typ), events.IsThread(typ))
		}
	}
	if events.IsKnown("tally.turn.appended.v2") || events.DataSchema("x") != "" || events.GuardOf("x") != events.GuardAny {
		t.Error("a type outside the vocabulary has a schema or guard, or is known")
	}
}

func TestIsJSON(t *testing.T) {
	for media, want := range map[string]bool{
		"application/json": true, "Application/JSON ; charset=utf-8": true, "text/json": true, "application/ld+json": true,
		"": false, "text/plain": false, "application/jsonl": false, "application/json-patch": false, "json": false, "application/xml; a=+json": false,
	} {
		if got := events.IsJSON(media); got != want {
			t.Errorf("IsJSON(%q) = %v, want %v", media, got, want)
		}
	}
}

// hugeNumber matches numbers for which the schema's reader would need very long.
var hugeNumber = regexp.MustCompile(`[0-9.][eE][+-]?[0-9]{3}`)

// FuzzDecodePayload checks that a decoded payload is JSON that the schema accepts, and that its encoding decodes and
// encodes to the same bytes.
func FuzzDecodePayload(f *testing.F) {
	types := events.Types()
	for _, x := range mustReadExamples(f) {
		if n := slices.Index(types, x.typ); n >= 0 {
			f.Add(uint8(n), []byte(x.data))
		}
	}
	c := jsonschema.NewCompiler()
	schemas := map[string]*jsonschema.Schema{}
	for _, typ := range schemaTypes() {
		if err := c.AddResource(typ+":", mustSchema(f, typ)); err != nil {
			f.Fatal(err)
		}
		schemas[typ] = c.MustCompile(typ + ":")
	}
	f.Fuzz(func(t *testing.T, n uint8, data []byte) {
		typ := types[int(n)%len(types)]
		p, err := events.Decode(typ, data)
		if err != nil {
			mustBeInvalid(t, typ, err, "")
			return
		}
		if p == nil {
			return // a document
		}
		if !json.Valid(data) {
			t.Fatalf("Decode accepted %q, which is not JSON", data)
		}
		if len(data) < 10000 && !hugeNumber.Match(data) {
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
			if err == nil {
				err = schemas[typ].Validate(value)
			}
			if err != nil {
				t.Fatalf("%s: Decode accepted %s, the schema does not: %v", typ, data, err)
			}
		}
		out, err := events.Encode(p)
		if err != nil {
			t.Fatalf("encode the payload of %s: %v", data, err)
		}
		again, err := events.Decode(typ, out)
		if err != nil {
			t.Fatalf("%s is encoded as %s, which Decode refuses: %v", data, out, err)
		}
		if second, err := events.Encode(again); err != nil || !bytes.Equal(out, second) {
			t.Fatalf("%s is encoded as %s, and then as %s, %v", data, out, second, err)
		}
	})
}

// Validate of a payload returns the same error each time, although its threads are a map.
func TestFirstErrorIsStable(t *testing.T) {
	p := &events.ThreadTruncated{Lengths: map[string]int{}, Reason: "r"}
	for name := range maps.Keys(map[string]int{"d": 0, "b": 0, "a": 0, "c": 0}) {
		p.Lengths[name] = -1
	}
	for range 20 {
		mustBeInvalid(t, "four errors", p.Validate(), `data.lengths["a"]`)
	}
}

func TestErrors(t *testing.T) {
	cause := errors.New("bad checksum")
	for want, err := range map[string]error{
		"invalid id: missing":             &events.InvalidError{Field: "id", Reason: "missing"},
		"invalid: missing":                &events.InvalidError{Reason: "missing"},
		"damaged record @7":               &events.DamageError{Offset: 7},
		"damaged record @7: bad checksum": &events.DamageError{Offset: 7, Err: cause},
		"the append is stored, but tree t does not show it: a: bad checksum": &events.TreeError{Tree: "t", Path: "a", Err: cause},
		"the append is stored, but a tree does not show it: bad checksum":    &events.TreeError{Err: cause},
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
	if !errors.Is(&events.DamageError{Err: cause}, cause) {
		t.Error("a *DamageError does not match its reason")
	}
	if got := (events.RunRef{Kind: "panel", ID: "r1"}).String(); got != "panel/r1" {
		t.Errorf("RunRef.String = %s, want panel/r1", got)
	}
}

// EncodeStructured refuses an event with invalid attributes.
func TestEncodeStructuredRefuses(t *testing.T) {
	e := turn()
	e.ID = ""
	header, payload, err := events.EncodeStructured(e)
	mustBeInvalid(t, "no id", err, "id")
	if header != nil || payload != nil {
		t.Errorf("got header %v and payload %q with the error", header, payload)
	}
}
