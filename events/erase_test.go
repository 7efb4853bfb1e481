package events_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
)

const receipt = "r7k2p9"

// ofType returns an event with data of a type of the vocabulary.
func ofType(typ, data string) events.Event {
	e := events.Event{ID: "1", Source: "urn:x", Type: typ, Subject: events.Session("", "s"), Data: []byte(data)}
	if strings.HasPrefix(typ, "tally.document.") {
		e.Subject = events.Document("", "doc", "d")
	}
	return e
}

func mustErase(t testing.TB, e events.Event) events.Event {
	t.Helper()
	erased, err := e.Erase(receipt)
	if err != nil {
		t.Fatalf("Erase of %s %s: %v", e.Type, e.Data, err)
	}
	return erased
}

// stored returns the bytes of a message that the server stores.
func stored(e events.Event) int { return len(events.AppendHeader(nil, e)) + len(e.Data) }

// The table of wire.md has an example for each type, with content in every place.
func TestErasedEventsAreDocumented(t *testing.T) {
	seen := make(map[string]bool)
	for _, row := range table(t, "### Vectors: erased events", 3, 18) {
		typ, data, want := row[0], row[1], row[2]
		seen[typ] = true
		e := ofType(typ, data)
		if typ == events.TypeDocumentWritten {
			e.Extensions, e.Data, e.ContentType = map[string]string{events.ExtDoc: data}, []byte("content"), "text/plain"
		}
		if typ != "com.acme.noted.v1" && e.Validate() != nil {
			t.Errorf("%s: the example is invalid: %v", typ, e.Validate())
		}
		erased := mustErase(t, e)
		have := string(erased.Data)
		if typ == events.TypeDocumentWritten {
			have = erased.Extensions[events.ExtDoc]
		}
		if want == "none" {
			want = ""
		}
		if have != want {
			t.Errorf("%s: got\n%s, want\n%s", typ, have, want)
		}
		if strings.Contains(have+fmt.Sprint(erased.Extensions), "SECRET") {
			t.Errorf("%s: content remains: %s %v", typ, have, erased.Extensions)
		}
	}
	for _, typ := range events.Types() {
		if !seen[typ] {
			t.Errorf("wire.md has no erased %s", typ)
		}
	}
}

// Every example of a payload, the smallest ones too.
func TestErase(t *testing.T) {
	schemas := compiledSchemas(t)
	t.Run("X-13 what remains is valid, and fits", func(t *testing.T) {
		for _, x := range mustReadExamples(t) {
			if x.typ == events.ExtDoc {
				continue
			}
			e := ofType(x.typ, x.data)
			erased := mustErase(t, e)
			if erased.Erased() != receipt || stored(erased) > stored(e) {
				t.Errorf("%v: the erased event has the receipt %q and %d bytes, the event has %d", x, erased.Erased(), stored(erased), stored(e))
			}
			if (x.field == "") != isAppendable(erased) {
				t.Errorf("%v: what remains is %q, valid: %v", x, erased.Data, isAppendable(erased))
			}
			if x.field != "" {
				continue
			}
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(erased.Data))
			if err == nil {
				err = schemas[x.typ].Validate(value)
			}
			if err != nil {
				t.Errorf("%v: what remains is %s: %v", x, erased.Data, err)
			}
			mustKeepShape(t, x.String(), e, erased)
		}
	})
	t.Run("X-13 a document's metadata", func(t *testing.T) {
		for _, x := range mustReadExamples(t) {
			if x.typ != events.ExtDoc {
				continue
			}
			e := ofType(events.TypeDocumentWritten, "x").WithExtension(events.ExtDoc, x.data)
			if events.Event.ValidateAttributes(e) != nil {
				continue // no attribute can have this value
			}
			erased := mustErase(t, e)
			if len(erased.Data) > 0 || (x.field == "") != isAppendable(erased) || stored(erased) > stored(e) {
				t.Errorf("%v: what remains is %v %q", x, erased.Extensions, erased.Data)
			}
		}
	})
	t.Run("X-13 redo records", func(t *testing.T) {
		for _, x := range mustReadExamples(t) {
			if x.typ == events.ExtDoc || x.field != "" {
				continue
			}
			c := ofType(x.typ, x.data)
			unit := redoRecord(t, c, events.Event{ID: "2", Source: "urn:x", Type: "com.acme.noted.v1", Subject: c.Subject, Data: []byte("1")})
			erased := mustErase(t, unit)
			if stored(erased) > stored(unit) {
				t.Errorf("%v: the erased redo record has %d bytes, the record has %d", x, stored(erased), stored(unit))
			}
			copies := redone(t, erased)
			want := mustErase(t, c)
			if len(copies) != 2 || !copies[0].Equal(want) || copies[1].Erased() != receipt || len(copies[1].Data) > 0 {
				t.Errorf("%v: the copies are %+v, want %+v", x, copies, want)
			}
		}
	})
}

// isAppendable reports whether an event is valid, apart from being erased.
func isAppendable(e events.Event) bool {
	e.Extensions = maps.Clone(e.Extensions)
	delete(e.Extensions, events.ExtErased)
	return e.Validate() == nil
}

// mustKeepShape compares what folds count: entries, items, references, costs.
func mustKeepShape(t testing.TB, name string, e, erased events.Event) {
	t.Helper()
	before, err := events.Decode(e.Type, e.Data)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	after, err := events.Decode(e.Type, erased.Data)
	if err != nil {
		t.Fatalf("%s: what remains is %s: %v", name, erased.Data, err)
	}
	if b, a := shapeOf(before), shapeOf(after); b != a {
		t.Errorf("%s: what remains is %s, with\n%s, want\n%s", name, erased.Data, a, b)
	}
}

// shapeOf spells what folds count in a payload.
func shapeOf(p events.Payload) string {
	var b strings.Builder
	turn := func(thread string, at events.Timestamp, run *events.RunRef, pinned bool, keep *[2]int) {
		fmt.Fprintf(&b, "%q at %q pinned %v ", thread, at, pinned)
		if keep != nil {
			fmt.Fprintf(&b, "keeps %v ", *keep)
		}
		if run != nil {
			fmt.Fprintf(&b, "run %v ", *run)
		}
	}
	switch p := p.(type) {
	case *events.TurnAppended:
		for _, e := range p.Entries {
			turn(e.Thread, e.Timestamp, e.Run, e.Pinned, nil)
		}
		fmt.Fprint(&b, p.Pins, slices.Sorted(maps.Keys(p.ThreadMeta)))
	case *events.ThreadReplaced:
		for _, name := range slices.Sorted(maps.Keys(p.Threads)) {
			fmt.Fprintf(&b, "%q: ", name)
			for _, it := range p.Threads[name].Items {
				turn(name, it.Timestamp, it.Run, it.Pinned, it.Keep)
			}
		}
		b.WriteString(p.Others)
	case *events.ThreadTruncated:
		fmt.Fprint(&b, p.Lengths)
	case *events.ThreadPinned:
		fmt.Fprint(&b, p.Thread, p.Pins)
	case *events.SessionRewound:
		fmt.Fprint(&b, p.To, p.Undoes, p.Checkpoint)
	case *events.SessionCreated:
		fmt.Fprint(&b, p.Kind, p.CreatedAt, p.Fork)
		if p.Parent != nil {
			fmt.Fprint(&b, p.Parent.Session, p.Parent.Offset)
		}
		if p.Origin != nil {
			fmt.Fprint(&b, p.Origin.Format, p.Origin.Marker)
		}
	case *events.CostAccrued:
		fmt.Fprint(&b, p.Model, p.USD, p.Tokens, p.Run, p.Response, p.Purpose, p.Source, events.TermsOf(p.Raw))
	case *events.RunCreated:
		fmt.Fprint(&b, p.Run, p.After, p.DueAt, p.CreatedAt)
	case *events.RunStarted:
		fmt.Fprint(&b, p.Run, p.Attempt, p.LeaseUntil)
	case *events.RunProgressed:
		fmt.Fprint(&b, p.Run, p.Kind, p.Seq, p.Step, p.State, p.Fence, p.LeaseUntil != nil)
	case *events.RunFinished:
		word, _, _ := strings.Cut(p.Outcome, ":")
		fmt.Fprint(&b, p.Run, word, p.FinishedAt, p.Fence)
	case *events.RunAnnotated:
		fmt.Fprint(&b, p.Run, p.TouchedAt)
	case *events.CheckpointSaved:
		fmt.Fprint(&b, p.ID, p.Kind, p.At, p.Run, p.Step, p.Lengths)
	case *events.CheckpointCleared:
		fmt.Fprint(&b, p.Kind, p.ID)
	case *events.DocumentDeleted:
		fmt.Fprint(&b, p.Reason == events.ReasonPurged, p.Reason == events.ReasonRenamed, p.To)
	}
	var pieces []string
	for _, l := range events.ListsOf(p) {
		for _, piece := range l {
			pieces = append(pieces, fmt.Sprint(piece))
		}
	}
	slices.Sort(pieces)
	fmt.Fprint(&b, " lists ", pieces)
	return b.String()
}

func compiledSchemas(t testing.TB) map[string]*jsonschema.Schema {
	t.Helper()
	compiled, c := make(map[string]*jsonschema.Schema), jsonschema.NewCompiler()
	for _, typ := range schemaTypes() {
		if typ == events.ExtDoc {
			continue
		}
		if err := c.AddResource(events.DataSchema(typ), mustSchema(t, typ)); err != nil {
			t.Fatal(err)
		}
		s, err := c.Compile(events.DataSchema(typ))
		if err != nil {
			t.Fatalf("%s: %v", typ, err)
		}
		compiled[typ] = s
	}
	return compiled
}

// redoRecord returns a redo record of events, as package log writes it.
func redoRecord(t testing.TB, list ...events.Event) events.Event {
	t.Helper()
	type redone struct {
		Subject string     `json:"subject"`
		Event   events.Raw `json:"event"`
	}
	var unit struct {
		Events []redone `json:"events"`
	}
	for _, e := range list {
		raw, err := events.AppendJSON(nil, e)
		if err != nil {
			t.Fatal(err)
		}
		unit.Events = append(unit.Events, redone{e.Subject.NATS(), raw})
	}
	data, err := json.Marshal(unit)
	if err != nil {
		t.Fatal(err)
	}
	return events.Event{ID: "u", Source: "urn:tally:log", Type: events.TypeUnitAppended, Subject: events.Document("", events.KindUnit, "log"), ContentType: events.ContentTypeJSON, Data: data}
}

// redone returns the events of a redo record.
func redone(t testing.TB, unit events.Event) (list []events.Event) {
	t.Helper()
	var u struct {
		Events []struct {
			Subject string
			Event   json.RawMessage
		}
	}
	if err := json.Unmarshal(unit.Data, &u); err != nil {
		t.Fatal(err)
	}
	for _, r := range u.Events {
		sub, err := events.ParseNATS(r.Subject)
		if err != nil {
			t.Fatal(err)
		}
		e, err := events.ParseJSON(sub.Namespace, r.Event)
		if err != nil {
			t.Fatal(err)
		}
		e.Subject = sub
		list = append(list, e)
	}
	return list
}

func TestEraseKeepsThePlace(t *testing.T) {
	e := ofType(events.TypeTurnAppended, `{"entries":[{"thread":"main","turn":"SECRET","meta":{"before":" \n","eol":"\r\n","redacted":2,"x":"SECRET"}}]}`)
	e.ContentType = events.ContentTypeJSON
	e.Extensions = map[string]string{events.ExtLine: "p/s.jsonl:0+20", events.ExtLineOwner: "claude/p/s", events.ExtBasis: events.Offset(41).Padded(), events.ExtActor: "SECRET", "x": "SECRET"}
	erased := mustErase(t, e)
	want := e
	want.ContentType, want.Data = "", []byte(`{"entries":[{"thread":"main","turn":{},"meta":{"before":" \n","eol":"\r\n"}}]}`)
	want.Extensions = map[string]string{events.ExtLine: "p/s.jsonl:0+20", events.ExtLineOwner: "claude/p/s", events.ExtBasis: events.Offset(41).Padded(), events.ExtErased: receipt}
	if !erased.Equal(want) {
		t.Errorf("got %+v, want %+v", erased, want)
	}
	if again, err := erased.Erase("other1"); err != nil || !again.Equal(erased) {
		t.Errorf("erased again: %+v, %v", again, err)
	}
	mustBeInvalid(t, "an erased event that is appended", erased.Validate(), events.ExtErased)
	for _, bad := range []string{"", "r7k2p9x", "R7", "a b", "é"} {
		_, err := e.Erase(bad)
		mustBeInvalid(t, "receipt "+bad, err, events.ExtErased)
	}
	bare := events.Event{ID: "1", Source: "urn:x", Type: "com.acme.noted.v1", Subject: e.Subject}
	if have := mustErase(t, bare); !have.Equal(bare) {
		t.Errorf("an event without content became %+v", have)
	}
}

// Data by reference have little room: the structure of many entries does not fit.
func TestEraseOfDataByReference(t *testing.T) {
	one := `{"thread":"main","turn":"SECRET"}`
	e := ofType(events.TypeTurnAppended, "").WithExtension(events.ExtDataRef, events.BlobRef(strings.Repeat("a", 64)))
	_, err := e.Erase(receipt)
	mustBeInvalid(t, "without the data", err, events.ExtDataRef)
	e.Data = []byte(`{"entries":[` + one + `]}`)
	if erased := mustErase(t, e); erased.Extensions[events.ExtDataRef] != "" || string(erased.Data) != `{"entries":[{"thread":"main","turn":{}}]}` {
		t.Errorf("got %+v", erased)
	}
	e.Data = []byte(`{"entries":[` + one + strings.Repeat(","+one, 9) + `]}`)
	_, err = e.Erase(receipt)
	mustBeInvalid(t, "with many entries", err, "data")
	doc := ofType(events.TypeDocumentWritten, "").WithExtension(events.ExtDataRef, events.BlobRef(strings.Repeat("a", 64)))
	if erased := mustErase(t, doc); erased.Extensions[events.ExtDataRef] != "" || len(erased.Data) > 0 {
		t.Errorf("got %+v", erased)
	}
}

// padded returns the message of an erased event with a payload of n bytes: blanks follow the first brace, or are all.
func padded(e events.Event, n int) (header map[string][]string, text string, payload []byte) {
	header, data := events.EncodeBinary(e)
	blanks := strings.Repeat(" ", n-len(data))
	if len(data) > 0 {
		payload = []byte("{" + blanks + string(data[1:]))
	} else {
		payload = []byte(blanks)
	}
	return header, "NATS/1.0\r\n" + string(events.AppendHeader(nil, e)) + "\r\n", payload
}

// An erased event is read without the blanks that keep the length of its record.
func TestErasedOnTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		examples := []events.Event{
			ofType(events.TypeTurnAppended, `{"entries":[{"thread":"main","turn":"SECRET"}]}`),
			ofType(events.TypeDocumentWritten, "SECRET").WithExtension(events.ExtDoc, `{"base":3}`),
			ofType("com.acme.noted.v1", " SECRET"), ofType(events.TypeCostAccrued, "SECRET"),
		}
		e := rapid.SampledFrom(examples).Draw(t, "event")
		erased, err := e.Erase(receipt)
		if err != nil {
			t.Fatal(err)
		}
		header, text, payload := padded(erased, len(erased.Data)+rapid.IntRange(0, 300).Draw(t, "room"))
		have, err := events.DecodeMessage(e.Subject.NATS(), header, payload)
		if err != nil || !have.Equal(erased) {
			t.Fatalf("got %+v, %v, want %+v", have, err, erased)
		}
		fast, ok := events.DecodeWire(e.Subject.NATS(), text, payload)
		if !ok || !fast.Equal(erased) {
			t.Fatalf("got %+v, %v, want %+v", fast, ok, erased)
		}
		raw, err := events.AppendJSON(nil, erased)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := events.ParseJSON("", raw); err != nil || !again.Equal(erased) {
			t.Fatalf("got %+v, %v, want %+v", again, err, erased)
		}
	})
}

// A type of another vocabulary has no structure, and its reader does not see an erased event.
func TestErasedForeignEvent(t *testing.T) {
	type note struct{ Text string }
	noted := events.Define[note]("com.acme.noted.v1", events.InLedger)
	e, err := noted.New(events.Session("", "s"), note{"SECRET"})
	if err != nil {
		t.Fatal(err)
	}
	e.ID, e.Source, e.DataSchema = "1", "urn:x", "urn:SECRET"
	erased := mustErase(t, e)
	if v, ok, err := noted.In(erased); ok || err != nil || v.Text != "" || len(erased.Data) > 0 || erased.DataSchema != "" {
		t.Errorf("got %v, %v, %v of %+v", v, ok, err, erased)
	}
}

func FuzzErase(f *testing.F) {
	for _, x := range mustReadExamples(f) {
		if i := slices.Index(events.Types(), x.typ); i >= 0 {
			f.Add(uint8(i), []byte(x.data), "")
		}
	}
	f.Add(uint8(15), []byte("x"), `{"title":"t","part":{"index":0,"count":1,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}}`)
	f.Fuzz(func(t *testing.T, typ uint8, data []byte, meta string) {
		types := events.Types()
		e := ofType(types[int(typ)%len(types)], string(data))
		if meta != "" {
			e = e.WithExtension(events.ExtDoc, meta)
		}
		if e.ValidateAttributes() != nil {
			return
		}
		isValid := e.Validate() == nil
		erased, err := e.Erase(receipt)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) == 0 {
			return // there may be nothing to remove
		}
		if erased.Erased() != receipt || isAppendable(erased) != isValid || stored(erased) > stored(e) {
			t.Fatalf("what remains of %q is %q %v: %d bytes of %d, valid %v, was %v", data, erased.Data, erased.Extensions, stored(erased), stored(e), isAppendable(erased), isValid)
		}
		if isValid && e.Type != events.TypeDocumentWritten {
			mustKeepShape(t, string(data), e, erased)
		}
		_, text, payload := padded(erased, len(erased.Data)+7)
		if have, ok := events.DecodeWire(e.Subject.NATS(), text, payload); !ok || !have.Equal(erased) {
			t.Fatalf("read as %+v, %v, want %+v", have, ok, erased)
		}
	})
}
