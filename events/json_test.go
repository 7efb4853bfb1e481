package events_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
)

func TestAppendJSON(t *testing.T) {
	want := `{"specversion":"1.0","id":"019a8f3e-7c41-7d2a-9b1e-1f2d3c4b5a69","source":"urn:tally:ingest","type":"tally.turn.appended.v1",` +
		`"subject":"session/travel=2Fberlin","time":"2026-03-01T12:00:00.123456789Z","datacontenttype":"application/json",` +
		`"dataschema":"urn:tally:schema:turn.appended.v1","actor":"ada","tallyseen":"00000000000000000041",` +
		`"data":{"entries":[{"thread":"main","turn":{"role":"user"}}]}}`
	got, err := events.AppendJSON([]byte("before "), turn())
	if err != nil || string(got) != "before "+want {
		t.Errorf("AppendJSON = %s, %v\nwant %s", got, err, want)
	}
}

// What stands under data and what under data_base64, and that both come back.
func TestAppendJSONData(t *testing.T) {
	for _, tc := range []struct{ contentType, data, want string }{
		{"", `{ "a" : 1.50, "a": 2 }`, `"data":{ "a" : 1.50, "a": 2 }}`},
		{"", "[1,\n2]", "\"data\":[1,\n2]}"},
		{"application/json", `"\u2028\ud800<é"`, `"data":"\u2028\ud800<é"}`},
		{"application/json", `null`, `"data":null}`},
		{"application/json", `""`, `"data":""}`},
		{"application/problem+json; charset=utf-8", `1e999999`, `"data":1e999999}`},
		{"application/json", ` 1`, `"data_base64":"IDE="}`},
		{"application/json", "1\n", `"data_base64":"MQo="}`},
		{"application/json", `{"a":`, `"data_base64":"eyJhIjo="}`},
		{"application/json", "\"\xff\"", `"data_base64":"Iv8i"}`},
		{"text/plain", `x`, `"data_base64":"eA=="}`},
		{"", string(nested(999)), `"data":` + string(nested(999)) + `}`},
		{"text/plain", ``, `"datacontenttype":"text/plain"}`},
	} {
		e := events.Event{ID: "1", Source: "urn:x", Type: "x", ContentType: tc.contentType, Data: []byte(tc.data)}
		b := mustJSON(e)
		if !strings.HasSuffix(string(b), ","+tc.want) {
			t.Errorf("%s %.30q: got %.200s, want it to end in %.200s", tc.contentType, tc.data, b, tc.want)
		}
		got, err := events.ParseJSON("acme", b)
		if err != nil || string(got.Data) != tc.data {
			t.Errorf("%s %.30q: parsed as %.30q, %v", tc.contentType, tc.data, got.Data, err)
		}
	}
	b := mustJSON(events.Event{ID: "1", Source: "urn:x", Type: "x", Data: nested(1000)})
	if !bytes.Contains(b, []byte(`"data_base64"`)) {
		t.Error("data of the greatest depth cannot stand inside an object")
	}
}

func TestAppendJSONRefuses(t *testing.T) {
	for field, e := range map[string]events.Event{
		"id":              {Source: "urn:x", Type: "x"},
		"source":          {ID: "1", Type: "x"},
		"type":            {ID: "1", Source: "urn:x", Type: "\x00"},
		"extension":       {ID: "1", Source: "urn:x", Type: "x", Extensions: map[string]string{"A": "x"}},
		"x":               {ID: "1", Source: "urn:x", Type: "x", Extensions: map[string]string{"x": "\xff"}},
		"datacontenttype": {ID: "1", Source: "urn:x", Type: "x", ContentType: "text/plain\n"},
		"dataschema":      {ID: "1", Source: "urn:x", Type: "x", DataSchema: "\x7f"},
	} {
		got, err := events.AppendJSON([]byte("before"), e)
		mustBeInvalid(t, field, err, field)
		if string(got) != "before" {
			t.Errorf("%s: got %q with the error", field, got)
		}
	}
}

const head = `"specversion":"1.0","id":"1","source":"urn:x","type":"x"`

func TestParseJSON(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want events.Event
	}{
		{`{` + head + `}`, events.Event{}},
		{` {"type":"x" , "source":"urn:x","id":"1","specversion":"1.0" } `, events.Event{}},
		{`{` + head + `,"subject":"session/a/b"}`, events.Event{Subject: events.Session("acme", "a/b")}},
		{`{` + head + `,"subject":"document/recipe/a=2Fb"}`, events.Event{Subject: events.Document("acme", "recipe", "a/b")}},
		{`{` + head + `,"subject":null,"time":null,"datacontenttype":null,"dataschema":null,"actor":null,"data_base64":null}`, events.Event{}},
		{`{` + head + `,"num":-7,"yes":true,"no":false,"text":"\ud83d\ude00","empty":""}`,
			events.Event{Extensions: map[string]string{"num": "-7", "yes": "true", "no": "false", "text": "😀", "empty": ""}}},
		{`{` + head + `,"data": { "b":1.0,  "b":"\u2028\ud800"} }`, events.Event{Data: []byte(`{ "b":1.0,  "b":"\u2028\ud800"}`)}},
		{`{` + head + `,"data":"text"}`, events.Event{Data: []byte(`"text"`)}},
		{`{` + head + `,"data":null}`, events.Event{Data: []byte(`null`)}},
		{`{"data":"a\u0000é\n","datacontenttype":"text/plain",` + head + `}`, events.Event{ContentType: "text/plain", Data: []byte("a\x00é\n")}},
		{`{"data":null,"datacontenttype":"text/plain",` + head + `}`, events.Event{ContentType: "text/plain"}},
		{`{"data":"","datacontenttype":"text/plain",` + head + `}`, events.Event{ContentType: "text/plain"}},
		{`{"data_base64":"/wA=","datacontenttype":"image/png",` + head + `}`, events.Event{ContentType: "image/png", Data: []byte{0xff, 0}}},
		{`{"data_base64":"e30=",` + head + `}`, events.Event{Data: []byte("{}")}},
		{`{"data_base64":"",` + head + `}`, events.Event{}},
		{`{"dataschema":"https://example.com/s",` + head + `}`, events.Event{DataSchema: "https://example.com/s"}},
		{`{"dataschema":"urn:tally:schema:run.started.v1","specversion":"1.0","id":"1","source":"urn:x","type":"tally.run.started.v1"}`,
			events.Event{Type: events.TypeRunStarted}},
	} {
		want := tc.want
		want.ID, want.Source = "1", "urn:x"
		if want.Type == "" {
			want.Type = "x"
		}
		got, err := events.ParseJSON("acme", []byte(tc.in))
		if err != nil {
			t.Errorf("%s: %v", tc.in, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.in, diff)
		}
	}
}

func TestParseJSONRefuses(t *testing.T) {
	deep := `{` + head + `,"data":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`
	for _, tc := range []struct{ in, field string }{
		{``, "json"}, {`null`, "json"}, {`[]`, "json"}, {`{`, "json"}, {`{` + head + `} {}`, "json"}, {"{\"id\":\"\xff\"}", "json"}, {deep, "json"},
		{"\xef\xbb\xbf{" + head + "}", "json"},
		{`{}`, "specversion"}, {`{"id":"1","source":"urn:x","type":"x"}`, "specversion"}, {`{"specversion":1.0}`, "specversion"}, {`{"specversion":"0.3"}`, "specversion"},
		{`{"specversion":"1.0","id":null,"source":"urn:x","type":"x"}`, "id"}, {`{"specversion":"1.0","id":1}`, "id"}, {`{"specversion":"1.0","id":""}`, "id"},
		{`{"specversion":"1.0","id":"\ud800"}`, "id"}, {`{"specversion":"1.0","id":"\u0000","source":"urn:x","type":"x"}`, "id"},
		{`{"specversion":"1.0","id":"1","source":"urn:x"}`, "type"}, {`{"specversion":"1.0","id":"1","source":[],"type":"x"}`, "source"},
		{`{` + head + `,"id":"1"}`, "id"}, {`{` + head + `,"x":"1","\u0078":"1"}`, "x"}, {`{` + head + `,"data":1,"data":1}`, "data"},
		{`{` + head + `,"subject":""}`, "subject"}, {`{` + head + `,"subject":"s1"}`, "subject"}, {`{` + head + `,"subject":"session/"}`, "subject"}, {`{` + head + `,"subject":"document/session/x"}`, "subject"},
		{`{` + head + `,"time":"12:00"}`, "time"}, {`{` + head + `,"time":0}`, "time"}, {`{` + head + `,"datacontenttype":" x"}`, "datacontenttype"},
		{`{` + head + `,"num":2147483648}`, "num"}, {`{` + head + `,"num":1.5}`, "num"}, {`{` + head + `,"num":1e2}`, "num"}, {`{` + head + `,"num":` + strings.Repeat("9", 400) + `}`, "num"},
		{`{` + head + `,"obj":{}}`, "obj"}, {`{` + head + `,"arr":[]}`, "arr"},
		{`{` + head + `,"Actor":"x"}`, "extension"}, {`{` + head + `,"my-name":null}`, "extension"}, {`{` + head + `,"abcdefghijklmnopqrstu":"x"}`, "extension"}, {`{` + head + `,"":"x"}`, "extension"},
		{`{` + head + `,"data":1,"data_base64":"eA=="}`, "data"}, {`{` + head + `,"data":null,"data_base64":"eA=="}`, "data"},
		{`{` + head + `,"data":1,"datacontenttype":"text/plain"}`, "data"}, {`{` + head + `,"data":"\udc00","datacontenttype":"text/plain"}`, "data"},
		{`{` + head + `,"data_base64":"eA"}`, "data_base64"}, {`{` + head + `,"data_base64":"eB=="}`, "data_base64"}, {`{` + head + `,"data_base64":"eA=\n="}`, "data_base64"}, {`{` + head + `,"data_base64":1}`, "data_base64"},
	} {
		_, err := events.ParseJSON("acme", []byte(tc.in))
		mustBeInvalid(t, tc.in[:min(len(tc.in), 100)], err, tc.field)
	}
}

func TestJSONRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvent().Draw(t, "event")
		if rapid.Bool().Draw(t, "nosubject") {
			e.Subject = events.Subject{}
		}
		if e.Subject.Kind == events.KindSession || e.Subject == (events.Subject{}) || e.Subject.Validate() == nil {
			got, err := events.ParseJSON(e.Subject.Namespace, mustJSON(e))
			if err != nil {
				t.Fatal(err)
			}
			want := normal(e)
			want.ContentType = e.ContentType
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		}
	})
}

// FuzzParseJSON checks that a parsed event is JSON, and can be written and parsed again as the same event.
func FuzzParseJSON(f *testing.F) {
	f.Add(mustJSON(turn()))
	for _, s := range []string{
		`{` + head + `,"data":"\u2028\ud800","num":-0,"yes":true}`, `{` + head + `,"data":"\u0000","datacontenttype":"text/plain"}`,
		`{` + head + `,"data_base64":"/wA="}`, `{` + head + `,"data":1e999999}`, `{` + head + `,"id":"2"}`, strings.Repeat(`{"data":`, 2000),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := events.ParseJSON("acme", b)
		if err != nil {
			mustBeInvalid(t, "an error", err, "")
			return
		}
		if !json.Valid(b) {
			t.Fatalf("ParseJSON accepted %q, which is not JSON", b)
		}
		out := mustJSON(e)
		if !json.Valid(out) {
			t.Fatalf("AppendJSON = %q, which is not JSON", out)
		}
		again, err := events.ParseJSON("acme", out)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, again); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
	})
}
