package events_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
)

const sha = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// turn is an event as a producer would make it.
func turn() events.Event {
	return events.Event{
		ID: "019a8f3e-7c41-7d2a-9b1e-1f2d3c4b5a69", Source: "urn:tally:ingest", Type: events.TypeTurnAppended,
		Subject: events.Session("acme", "travel/berlin"), Time: time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC),
		ContentType: events.ContentTypeJSON, Data: []byte(`{"entries":[{"thread":"main","turn":{"role":"user"}}]}`),
		Extensions: map[string]string{events.ExtActor: "ada", events.ExtBasis: events.Offset(41).Padded()},
	}
}

func TestEncodeBinary(t *testing.T) {
	e := turn()
	e.Extensions[events.ExtActor] = "Ada \"the\" 1st, 100% é😀\u2028"
	got, data := events.EncodeBinary(e)
	want := map[string][]string{
		"ce-specversion": {"1.0"},
		"ce-id":          {"019a8f3e-7c41-7d2a-9b1e-1f2d3c4b5a69"},
		"ce-source":      {"urn:tally:ingest"},
		"ce-type":        {"tally.turn.appended.v1"},
		"ce-subject":     {"session/travel=2Fberlin"},
		"ce-time":        {"2026-03-01T12:00:00.123456789Z"},
		"ce-actor":       {"Ada%20%22the%22%201st,%20100%25%20%C3%A9%F0%9F%98%80%E2%80%A8"},
		"ce-tallyseen":   {"00000000000000000041"},
		"Content-Type":   {"application/json"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if &data[0] != &e.Data[0] {
		t.Error("the data were copied")
	}
}

func TestEncodeBinaryOptional(t *testing.T) {
	const schema = "https://example.com/schema"
	for _, tc := range []struct {
		name   string
		change func(*events.Event)
		header string
		want   string
	}{
		{"json is said where data say nothing", func(e *events.Event) { e.ContentType = "" }, "Content-Type", "application/json"},
		{"no data, no content type", func(e *events.Event) { e.ContentType, e.Data = "", nil }, "Content-Type", ""},
		{"a content type without data stays", func(e *events.Event) { e.ContentType, e.Data = "text/plain", nil }, "Content-Type", "text/plain"},
		{"no time", func(e *events.Event) { e.Time = time.Time{} }, "ce-time", ""},
		{"the producer's zone is kept", func(e *events.Event) { e.Time = e.Time.In(time.FixedZone("", 5400)) }, "ce-time", "2026-03-01T13:30:00.123456789+01:30"},
		{"but not one with seconds", func(e *events.Event) { e.Time = e.Time.In(time.FixedZone("", 5401)) }, "ce-time", "2026-03-01T12:00:00.123456789Z"},
		{"the schema of a known type follows from it", func(e *events.Event) { e.DataSchema = events.DataSchema(e.Type) }, "ce-dataschema", ""},
		{"a foreign one is kept", func(e *events.Event) { e.Type, e.DataSchema = "org.example.x", schema }, "ce-dataschema", schema},
		{"any extension", func(e *events.Event) { e.Extensions["x1"] = "y" }, "ce-x1", "y"},
	} {
		e := turn()
		tc.change(&e)
		header, _ := events.EncodeBinary(e)
		if got := strings.Join(header[tc.header], "|"); got != tc.want {
			t.Errorf("%s: %s = %q, want %q", tc.name, tc.header, got, tc.want)
		}
	}
}

// message returns EncodeBinary of a turn, for tests to change.
func message() (string, map[string][]string, []byte) {
	header, data := events.EncodeBinary(turn())
	return turn().Subject.NATS(), header, data
}

func TestDecodeTolerates(t *testing.T) {
	for name, change := range map[string]func(h map[string][]string){
		"nothing changed": func(map[string][]string) {},
		"headers of NATS": func(h map[string][]string) {
			h["Nats-Msg-Id"] = []string{"x"}
			h["Nats-Expected-Stream"] = []string{"y"}
		},
		"headers of others":    func(h map[string][]string) { h["traceparent"] = []string{"a", "b"} },
		"other case":           func(h map[string][]string) { rename(h, "ce-id", "Ce-Id"); rename(h, "ce-tallyseen", "CE-TALLYSEEN") },
		"content-type":         func(h map[string][]string) { rename(h, "Content-Type", "content-type") },
		"ce-datacontenttype":   func(h map[string][]string) { rename(h, "Content-Type", "ce-datacontenttype") },
		"no subject":           func(h map[string][]string) { delete(h, "ce-subject") },
		"subject without =2F":  func(h map[string][]string) { h["ce-subject"] = []string{"session/travel/berlin"} },
		"lower-case escapes":   func(h map[string][]string) { h["ce-actor"] = []string{"%61da"} },
		"a schema of its own":  func(h map[string][]string) { h["ce-dataschema"] = []string{"https://example.com/other"} },
		"zone":                 func(h map[string][]string) { h["ce-time"] = []string{"2026-03-01T13:00:00.123456789+01:00"} },
		"a different spelling": func(h map[string][]string) { h["Content-Type"] = []string{"application/json"} },
	} {
		sub, header, data := message()
		change(header)
		got, err := events.DecodeMessage(sub, header, data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(turn(), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func rename(h map[string][]string, from, to string) {
	h[to] = h[from]
	delete(h, from)
}

func TestDecodeRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(h map[string][]string)
		field  string
	}{
		"no attributes at all":     {func(h map[string][]string) { clear(h) }, "specversion"},
		"no specversion":           {func(h map[string][]string) { delete(h, "ce-specversion") }, "specversion"},
		"another specversion":      {func(h map[string][]string) { h["ce-specversion"] = []string{"0.3"} }, "specversion"},
		"no id":                    {func(h map[string][]string) { delete(h, "ce-id") }, "id"},
		"empty id":                 {func(h map[string][]string) { h["ce-id"] = []string{""} }, "id"},
		"long id":                  {func(h map[string][]string) { h["ce-id"] = []string{strings.Repeat("x", 513)} }, "id"},
		"no source":                {func(h map[string][]string) { delete(h, "ce-source") }, "source"},
		"source":                   {func(h map[string][]string) { h["ce-source"] = []string{":"} }, "source"},
		"no type":                  {func(h map[string][]string) { delete(h, "ce-type") }, "type"},
		"other subject":            {func(h map[string][]string) { h["ce-subject"] = []string{"session/s2"} }, "subject"},
		"no subject of ours":       {func(h map[string][]string) { h["ce-subject"] = []string{"s1"} }, "subject"},
		"time":                     {func(h map[string][]string) { h["ce-time"] = []string{"yesterday"} }, "time"},
		"time, lenient":            {func(h map[string][]string) { h["ce-time"] = []string{"2026-03-01T1:00:00,5Z"} }, "time"},
		"escape":                   {func(h map[string][]string) { h["ce-actor"] = []string{"100%"} }, "actor"},
		"escape, not hex":          {func(h map[string][]string) { h["ce-actor"] = []string{"%4g"} }, "actor"},
		"overlong":                 {func(h map[string][]string) { h["ce-actor"] = []string{"%C0%80"} }, "actor"},
		"surrogate":                {func(h map[string][]string) { h["ce-actor"] = []string{"%ED%A0%80"} }, "actor"},
		"no UTF-8":                 {func(h map[string][]string) { h["ce-actor"] = []string{"\xff"} }, "actor"},
		"control":                  {func(h map[string][]string) { h["ce-actor"] = []string{"%00"} }, "actor"},
		"noncharacter":             {func(h map[string][]string) { h["ce-actor"] = []string{"%EF%BF%BF"} }, "actor"},
		"name":                     {func(h map[string][]string) { h["ce-my_name"] = []string{"x"} }, "extension"},
		"name, long":               {func(h map[string][]string) { h["ce-"+strings.Repeat("x", 21)] = []string{"x"} }, "extension"},
		"name, empty":              {func(h map[string][]string) { h["ce-"] = []string{"x"} }, "extension"},
		"name, data":               {func(h map[string][]string) { h["ce-data"] = []string{"x"} }, "extension"},
		"two values":               {func(h map[string][]string) { h["ce-actor"] = []string{"x", "y"} }, "actor"},
		"no value":                 {func(h map[string][]string) { h["ce-actor"] = nil }, "actor"},
		"twice":                    {func(h map[string][]string) { h["CE-actor"] = []string{"x"} }, "actor"},
		"twice, core":              {func(h map[string][]string) { h["CE-id"] = []string{"x"} }, "id"},
		"content type twice":       {func(h map[string][]string) { h["content-type"] = []string{"x"} }, "datacontenttype"},
		"content types differ":     {func(h map[string][]string) { h["ce-datacontenttype"] = []string{"x"} }, "datacontenttype"},
		"content type, bytes":      {func(h map[string][]string) { h["Content-Type"] = []string{"x\x80"} }, "datacontenttype"},
		"batch":                    {func(h map[string][]string) { h["Content-Type"] = []string{"application/cloudevents-batch+json"} }, "datacontenttype"},
		"avro":                     {func(h map[string][]string) { h["Content-Type"] = []string{"application/cloudevents+avro"} }, "datacontenttype"},
		"structured, not an event": {func(h map[string][]string) { h["Content-Type"] = []string{"application/cloudevents+json"} }, "entries"},
	} {
		sub, header, data := message()
		tc.change(header)
		_, err := events.DecodeMessage(sub, header, data)
		mustBeInvalid(t, name, err, tc.field)
	}
	_, header, data := message()
	_, err := events.DecodeMessage("tally.v1.00.acme.session.travel=2Fberlin", header, data)
	mustBeInvalid(t, "wrong partition", err, "subject")
}

// An error names one attribute, and the same one every time, though the header
// is a map.
func TestDecodeErrorIsStable(t *testing.T) {
	sub, header, data := message()
	for _, name := range []string{"ce-b", "ce-c", "ce-a", "ce-d"} {
		header[name] = []string{"%"}
	}
	for range 20 {
		_, err := events.DecodeMessage(sub, header, data)
		mustBeInvalid(t, "four errors", err, "a")
	}
}

func TestDecodeStructured(t *testing.T) {
	e := turn()
	for _, contentType := range []string{"", "application/cloudevents+json; charset=UTF-8", "Application/CloudEvents+JSON", "application/cloudevents"} {
		header, payload, err := events.EncodeStructured(e)
		if err != nil {
			t.Fatal(err)
		}
		if contentType != "" {
			header["Content-Type"] = []string{contentType}
		}
		got, err := events.DecodeMessage(e.Subject.NATS(), header, payload)
		if err != nil {
			t.Fatalf("%q: %v", contentType, err)
		}
		if diff := cmp.Diff(e, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", contentType, diff)
		}
		_, err = events.DecodeMessage(events.Session("acme", "s2").NATS(), header, payload)
		mustBeInvalid(t, "another subject", err, "subject")
	}
}

func TestBindingRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvent().Draw(t, "event")
		header, data := events.EncodeBinary(e)
		for name, values := range header {
			if strings.ContainsFunc(values[0], func(r rune) bool { return r < 0x20 || r > 0x7e }) {
				t.Fatalf("header %s has the value %q, with bytes that headers cannot have", name, values[0])
			}
		}
		lines := "NATS/1.0\r\n" + string(events.AppendHeader(nil, e)) + "\r\n"
		text, err := nats.DecodeHeadersMsg([]byte(lines))
		if err != nil {
			t.Fatalf("the NATS client cannot parse %q: %v", lines, err)
		}
		if diff := cmp.Diff(header, map[string][]string(text)); diff != "" {
			t.Fatalf("header as text (-want +got):\n%s", diff)
		}
		got, err := events.DecodeMessage(e.Subject.NATS(), header, data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(normal(e), got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// normal returns the event as decoding returns it: with an explicit JSON content type, and without a known type's
// schema.
func normal(e events.Event) events.Event {
	if e.ContentType == "" && len(e.Data) > 0 {
		e.ContentType = events.ContentTypeJSON
	}
	if len(e.Data) == 0 {
		e.Data = nil
	}
	if len(e.Extensions) == 0 {
		e.Extensions = nil
	}
	return e
}

// anyEvent draws events that are valid CloudEvents, of any vocabulary.
func anyEvent() *rapid.Generator[events.Event] {
	text := rapid.StringOfN(rapid.RuneFrom(nil, textRanges...), 1, 12, 60)
	return rapid.Custom(func(t *rapid.T) events.Event {
		e := events.Event{
			ID: text.Draw(t, "id"), Source: rapid.SampledFrom([]string{"urn:a:b", "/x/y", "https://example.com/a?b#c", "a b", "%25"}).Draw(t, "source"),
			Type: rapid.OneOf(text, rapid.SampledFrom(events.Types())).Draw(t, "type"), Subject: anySubject().Draw(t, "subject"),
			ContentType: rapid.SampledFrom([]string{"", "application/json", "text/plain; charset=utf-8", "application/vnd.x+json", "image/png"}).Draw(t, "contenttype"),
			Data:        anyData().Draw(t, "data"),
		}
		if rapid.Bool().Draw(t, "timed") {
			zone := time.FixedZone("", 60*rapid.IntRange(-23*60, 23*60).Draw(t, "zone"))
			e.Time = time.Unix(rapid.Int64Range(-1e10, 1e11).Draw(t, "s"), rapid.Int64Range(0, 1e9-1).Draw(t, "ns")).In(zone)
		}
		if !events.IsKnown(e.Type) && rapid.Bool().Draw(t, "schema") {
			e.DataSchema = "https://example.com/schema"
		}
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`x[a-z0-9]{0,19}`), 0, 4, rapid.ID[string]).Draw(t, "names")
		for _, name := range names {
			e = e.WithExtension(name, rapid.OneOf(text, rapid.Just("")).Draw(t, name))
		}
		return e
	})
}

func anyData() *rapid.Generator[[]byte] {
	return rapid.OneOf(
		rapid.SliceOfN(rapid.Byte(), 0, 20),
		rapid.SampledFrom([][]byte{nil, []byte(`null`), []byte(`""`), []byte(` {} `), []byte("[1 ,\n2]"), []byte(`{"a":1,"a":2}`),
			[]byte(`"\u2028 \ud800 <"`), []byte("\"\u2028\""), []byte(`1e999999`), []byte(`{"a":`), []byte("\xef\xbb\xbf{}"), nested(999), nested(1000), nested(1001)}),
	)
}

func nested(depth int) []byte {
	return slices.Concat([]byte(strings.Repeat("[", depth)), []byte(strings.Repeat("]", depth)))
}

func BenchmarkEncodeBinary(b *testing.B) {
	e := turn()
	b.ReportAllocs()
	for b.Loop() {
		events.EncodeBinary(e)
	}
}

func BenchmarkAppendHeader(b *testing.B) {
	e, buf := turn(), []byte(nil)
	b.ReportAllocs()
	for b.Loop() {
		buf = events.AppendHeader(buf[:0], e)
	}
}

func BenchmarkDecodeMessage(b *testing.B) {
	sub, header, data := message()
	header["Nats-Msg-Id"] = []string{turn().MsgID()}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := events.DecodeMessage(sub, header, data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMsgID(b *testing.B) {
	e := turn()
	b.ReportAllocs()
	for b.Loop() {
		e.MsgID()
	}
}

// FuzzDecodeMessage checks that a decoded event can be encoded and decoded again as the same event.
func FuzzDecodeMessage(f *testing.F) {
	sub, header, data := message()
	names := slices.Sorted(maps.Keys(header))
	var lines []string
	for _, name := range names {
		lines = append(lines, name+": "+header[name][0])
	}
	f.Add(sub, strings.Join(lines, "\n"), data)
	f.Add(sub, "Content-Type: application/cloudevents+json", mustJSON(turn()))
	f.Add(sub, "ce-id: %\nce-x: %C0%80", data)
	f.Add(sub, "Content-Type: application/cloudevents+json", []byte(`{"specversion":"1.0","a.":{}}`))
	f.Add(sub, "ce-id\x07.: %\nce-.: 1\nce-.: 2", data)
	f.Fuzz(func(t *testing.T, sub, lines string, data []byte) {
		header := map[string][]string{}
		for line := range strings.SplitSeq(lines, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			header[name] = append(header[name], value)
		}
		e, err := events.DecodeMessage(sub, header, data)
		if err != nil {
			mustBeInvalid(t, "an error", err, "")
			return
		}
		if e.Subject.NATS() != sub {
			t.Fatalf("got subject %s, want %s", e.Subject.NATS(), sub)
		}
		if err := e.ValidateAttributes(); err != nil {
			t.Fatal(err)
		}
		header, data = events.EncodeBinary(e)
		again, err := events.DecodeMessage(sub, header, data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(normal(e), again); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
	})
}
