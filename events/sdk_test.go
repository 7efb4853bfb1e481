package events_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
)

// ParseJSON reads the JSON of the SDK, and the SDK reads that of AppendJSON, with the same attributes and the same bytes
// of data.
func TestSDKReadsAndWritesTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvent().Draw(t, "event")
		if s := string(e.Data); strings.HasPrefix(s, "[[[") || s == "1e999999" {
			e.Data = nil // the SDK's reader has limits of its own
		}
		ce, err := events.ToCloudEvent(e)
		if err != nil {
			mustBeRespelled(t, e, err)
			return
		}
		want := normal(e)
		want.ContentType = e.ContentType

		var buf bytes.Buffer
		if err := event.WriteJson(&ce, &buf); err != nil {
			t.Fatal(err)
		}
		got, err := events.ParseJSON(e.Subject.Namespace, buf.Bytes())
		if err != nil {
			t.Fatalf("ParseJSON(%s): %v", buf.Bytes(), err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("written by the SDK (-want +got):\n%s", diff)
		}

		if strings.HasSuffix(e.ContentType, "+json") {
			return // CloudEvents treats these types as JSON, the SDK's reader does not
		}
		var read event.Event
		if err := read.UnmarshalJSON(mustJSON(e)); err != nil {
			t.Fatalf("the SDK cannot read %s: %v", mustJSON(e), err)
		}
		got, err = events.FromCloudEvent(e.Subject.Namespace, read)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("read by the SDK (-want +got):\n%s", diff)
		}
	})
}

// mustBeRespelled allows an error only where the SDK would alter the event.
func mustBeRespelled(t *rapid.T, e events.Event, err error) {
	if e.Source != "a b" && strings.TrimSpace(e.ID) == e.ID && strings.TrimSpace(e.Type) == e.Type {
		t.Fatal(err)
	}
}

func TestCloudEventRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvent().Draw(t, "event")
		ce, err := events.ToCloudEvent(e)
		if err != nil {
			mustBeRespelled(t, e, err)
			return
		}
		got, err := events.FromCloudEvent(e.Subject.Namespace, ce)
		if err != nil {
			t.Fatal(err)
		}
		want := normal(e)
		want.ContentType = e.ContentType
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

// The traps of the SDK that the conversion avoids.
func TestSDKTraps(t *testing.T) {
	e := turn()
	e.Data = []byte(`{ "html": "<b>&</b>", "n": 1.0 }`)
	ce, err := events.ToCloudEvent(e)
	if err != nil {
		t.Fatal(err)
	}
	if ce.DataBase64 {
		t.Error("JSON data would be written as base64")
	}
	var buf bytes.Buffer
	if err := event.WriteJson(&ce, &buf); err != nil || !bytes.Contains(buf.Bytes(), e.Data) {
		t.Errorf("WriteJson rewrote the data: %s, %v", &buf, err)
	}
	if b, err := json.Marshal(ce); err != nil || bytes.Contains(b, e.Data) {
		t.Errorf("json.Marshal of the SDK's event no longer rewrites data; say so in ToCloudEvent: %s, %v", b, err)
	}
	e.Data = []byte(`not JSON`)
	ce, err = events.ToCloudEvent(e)
	if err != nil || !ce.DataBase64 {
		t.Errorf("data that are not JSON: got %v, or no base64", err)
	}
	e = turn()
	e.Source = "a b"
	_, err = events.ToCloudEvent(e)
	mustBeInvalid(t, "a source that the SDK respells", err, "source")
}

func TestFromCloudEvent(t *testing.T) {
	ce := event.New()
	ce.SetID("1")
	ce.SetSource("urn:x")
	ce.SetType(events.TypeCostAccrued)
	ce.SetDataSchema(events.DataSchema(events.TypeCostAccrued))
	ce.SetExtension("num", 7)
	ce.SetExtension("yes", true)
	ce.SetExtension("bin", []byte{1, 2})
	ce.SetExtension("at", time.Date(2026, 3, 1, 13, 0, 0, 0, time.FixedZone("", 3600)))
	if err := ce.SetData("application/json", []byte(`{"model":"m"}`)); err != nil {
		t.Fatal(err)
	}
	got, err := events.FromCloudEvent("acme", ce)
	if err != nil {
		t.Fatal(err)
	}
	want := events.Event{
		ID: "1", Source: "urn:x", Type: events.TypeCostAccrued, ContentType: "application/json", Data: []byte(`{"model":"m"}`),
		Extensions: map[string]string{"num": "7", "yes": "true", "bin": "AQI=", "at": "2026-03-01T12:00:00Z"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	_, err = events.FromCloudEvent("acme", event.Event{})
	mustBeInvalid(t, "the zero event", err, "specversion")
	_, err = events.FromCloudEvent("acme", event.New("0.3"))
	mustBeInvalid(t, "an old version", err, "specversion")
	ce.SetSubject("elsewhere")
	_, err = events.FromCloudEvent("acme", ce)
	mustBeInvalid(t, "a foreign subject", err, "subject")
	ce.SetSubject("")
	ce.SetID("")
	_, err = events.FromCloudEvent("acme", ce)
	mustBeInvalid(t, "a setter that failed", err, "id")
	ce = event.New()
	ce.SetSource("urn:x")
	ce.SetType("x")
	_, err = events.FromCloudEvent("acme", ce)
	mustBeInvalid(t, "no id", err, "id")
}
