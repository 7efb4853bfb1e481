package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/web"
)

// CloudEvents arrive in each mode and are stored as they are.
func TestCloudEvents(t *testing.T) {
	data := `{"b":1.0,"a":"\u00e9"}`
	t.Run("W-23 modes", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		for n, mode := range []string{"binary", "structured"} {
			e := events.Event{ID: fmt.Sprint(n), Source: "urn:shop", Type: "com.example.paid", Subject: events.Session("default", "a/ü"), Data: []byte(data), Extensions: map[string]string{"x": "1 %\"ü"}}
			header, body, err := events.EncodeStructured(e)
			if mode == "binary" {
				header, body = events.EncodeBinary(e)
			}
			if err != nil {
				t.Fatal(err)
			}
			r := k.request("all", "POST", "/v1/events", string(body))
			for name, values := range header {
				r.Header.Set(name, values[0])
			}
			if w := k.serve(r); w.Code != 200 {
				t.Fatalf("%s: got %d %s", mode, w.Code, w.Body)
			}
			rec, err := k.store.Log.Record(t.Context(), k.head())
			if err != nil || rec.Subject != e.Subject || rec.ID != e.ID || rec.Source != e.Source || rec.Type != e.Type || string(rec.Data) != data || rec.Extensions["x"] != e.Extensions["x"] {
				t.Errorf("%s: got %+v, %v", mode, rec, err)
			}
			if rec.Extensions[events.ExtActor] != "all" {
				t.Errorf("%s: the actor is %q", mode, rec.Extensions[events.ExtActor])
			}
		}
	})
	event := func(id, subject, more string) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"urn:shop","type":"com.example.paid","subject":%q%s}`, id, subject, more)
	}
	structured := []string{"Content-Type", structuredType}
	batch := []string{"Content-Type", batchType}
	t.Run("W-23 a batch over subjects is all or none", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		var out acks
		k.want(200, &out, "all", "POST", "/v1/events", "["+event("1", "session/a", "")+","+event("1", "session/b", "")+","+event("2", "session/a", "")+"]", batch...)
		if len(out.Items) != 2 || out.Items[0].Subject != "session/a" || out.Items[0].Last-out.Items[0].First != 1 || out.Items[1].Subject != "session/b" {
			t.Errorf("got %+v", out)
		}
		k.problem("invalid", 400, "all", "POST", "/v1/events", "["+event("3", "session/a", "")+","+event("3", "session/b", `,"data":1,"data_base64":"MQ=="`)+"]", batch...)
		k.problem("invalid", 400, "all", "POST", "/v1/events", "[]", batch...)
		w := k.want(200, nil, "all", "POST", "/v1/events", event("1", "session/a", ""), structured...)
		if !strings.Contains(w.Body.String(), `"duplicate":true`) {
			t.Errorf("got %s", w.Body)
		}
		k.problem("conflict", 409, "all", "POST", "/v1/events", event("1", "session/a", `,"data":2`), structured...)
	})
	t.Run("W-23 what a token may not say", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		for _, more := range []string{`,"tallyline":"f:1+2"`, `,"tallyowner":"x"`, `,"tallyother":"x"`} {
			k.problem("forbidden", 403, "writer", "POST", "/v1/events", event("1", "session/a", more), structured...)
		}
		for _, source := range []string{"urn:tally:agent:claude", "urn:tally:derived:x", "urn:tally:http:all", "urn:tally:go"} {
			k.problem("forbidden", 403, "writer", "POST", "/v1/events", strings.Replace(event("1", "session/a", ""), "urn:shop", source, 1), structured...)
		}
		for _, subject := range []string{"document/type/x", "document/receipt/x"} {
			k.problem("forbidden", 403, "writer", "POST", "/v1/events", event("1", subject, ""), structured...)
		}
		for _, body := range []string{event("1", "document/unit/log", ""), event("1", "document/blob/x", ""), event("1", "elsewhere/x", ""), `{"specversion":"1.0","id":"1","source":"urn:shop","type":"a.b"}`,
			event("1", "session/a", `,"id":"2"`), strings.Replace(event("1", "session/a", `,"data":{"to":-1}`), "com.example.paid", "tally.session.rewound.v1", 1)} {
			k.problem("invalid", 400, "all", "POST", "/v1/events", body, structured...)
		}
		k.problem("invalid", 400, "all", "POST", "/v1/events", event("1", "session/a", ""), "Content-Type", structuredType, "Idempotency-Key", "k")
		k.want(200, nil, "writer", "POST", "/v1/events", event("1", "session/a", `,"actor":"root"`), structured...)
		rec, err := k.store.Log.Record(t.Context(), k.head())
		if err != nil || rec.Extensions[events.ExtActor] != "writer" || rec.Extensions["onbehalfof"] != "root" {
			t.Errorf("got %+v, %v", rec, err)
		}
	})
	t.Run("W-23 the handshake calls nobody", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		called := false
		other := newKit(t, web.Limits{}, web.Route{Method: "GET", Pattern: "/called", Scope: web.Public, Do: func(c *web.Call) error {
			called = true
			return c.Text("")
		}})
		stream := other.follow("all", "/healthz") // starts a server
		defer stream.close()
		w := k.want(200, nil, "all", "OPTIONS", "/v1/events", "", "WebHook-Request-Origin", "shop.example", "WebHook-Request-Callback", "http://"+stream.host+"/called", "WebHook-Request-Rate", "9")
		if h := w.Header(); called || h.Get("Allow") != "POST" || h.Get("WebHook-Allowed-Origin") != "*" || h.Get("WebHook-Allowed-Rate") != "*" {
			t.Errorf("got %v, and the address was called: %v", h, called)
		}
	})
}
