package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/web"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

const host = "127.0.0.1:4437"

// kit is a server over a store in memory, with tokens of two namespaces.
type kit struct {
	t      *testing.T
	store  *tally.Store
	server *web.Server
	tokens *web.Tokens
	list   []web.Token // that the next reload reads
	fails  error       // of the next reload
	full   error       // of the next append
	stored *memlog.Backend
	texts  map[string]string // of the tokens by name
	logged bytes.Buffer
}

// newKit returns a server with the tokens all, reader, writer, mover and ops of the namespace default, and other of the
// namespace other.
func newKit(t *testing.T, limits web.Limits, more ...web.Route) *kit {
	t.Helper()
	k := &kit{t: t, texts: make(map[string]string), stored: memlog.New(memlog.Config{})}
	mine := log.Host{Durability: log.Durable, Sync: func(string) error { return nil }, Room: func() error { return k.full }}
	l, err := log.OpenOn(t.Context(), k.stored, log.Config{Host: mine})
	if err != nil {
		t.Fatal(err)
	}
	if k.store, err = tally.Open(t.Context(), l, tally.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.store.Close() })
	k.add("all", "default", web.Scopes...)
	k.add("reader", "default", web.Read)
	k.add("writer", "default", web.Append)
	k.add("mover", "default", web.Read, web.Append, web.Move)
	k.add("ops", "default", web.Metrics)
	k.add("other", "other", web.Scopes...)
	if k.tokens, err = web.NewTokens(func() ([]web.Token, error) { return k.list, k.fails }, k.store.Now); err != nil {
		t.Fatal(err)
	}
	k.server = web.Handler(web.Env{Store: k.store, Tokens: k.tokens, Hosts: []string{host}, Origins: []string{"https://ours.example"}, Limits: limits,
		Version: "test", Metrics: http.NotFoundHandler(), Logger: slog.New(slog.NewTextHandler(&k.logged, &slog.HandlerOptions{Level: slog.LevelDebug}))}, append(Door{}.Routes(), more...)...)
	return k
}

func (k *kit) add(name, namespace string, scopes ...web.Scope) {
	k.texts[name] = web.NewText()
	k.list = append(k.list, web.Token{Name: name, Hash: web.HashOf(k.texts[name]), Namespace: namespace, Scopes: scopes})
}

// request returns a request with a token, "" for none, and headers as pairs.
func (k *kit) request(token, method, path, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, "http://"+host+path, strings.NewReader(body))
	if body == "" {
		r.Body, r.ContentLength = http.NoBody, 0
	} else {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+k.texts[token])
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func (k *kit) serve(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	k.server.ServeHTTP(w, r)
	return w
}

func (k *kit) do(token, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	return k.serve(k.request(token, method, path, body, headers...))
}

// want does a request and decodes its answer into v, unless that is nil.
func (k *kit) want(status int, v any, token, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	k.t.Helper()
	w := k.do(token, method, path, body, headers...)
	if w.Code != status {
		k.t.Fatalf("%s %s: got status %d, want %d: %s", method, path, w.Code, status, w.Body)
	}
	if v != nil {
		if err := rawjson.Unmarshal(w.Body.Bytes(), v); err != nil {
			k.t.Fatalf("%s %s: %v: %s", method, path, err, w.Body)
		}
	}
	return w
}

// problem does a request that fails, checks the form of its problem, and that nothing was written.
func (k *kit) problem(code string, status int, token, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	k.t.Helper()
	before := k.head()
	w := k.do(token, method, path, body, headers...)
	checkProblem(k.t, w, code, status)
	if after := k.head(); after != before {
		k.t.Errorf("%s %s: the log grew from %v to %v", method, path, before, after)
	}
	return w
}

func checkProblem(t *testing.T, w *httptest.ResponseRecorder, code string, status int) {
	t.Helper()
	var p struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
	}
	if err := rawjson.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("status %d: %v: %q", w.Code, err, w.Body)
	}
	if w.Code != status || p.Status != status || p.Type != "urn:tally:problem:"+code || p.Title == "" || w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("got status %d, %s and %s, want the problem %s with status %d", w.Code, w.Header().Get("Content-Type"), w.Body, code, status)
	}
}

func (k *kit) head() events.Offset {
	k.t.Helper()
	at, err := k.store.Log.Head(context.Background())
	if err != nil {
		k.t.Fatal(err)
	}
	return at
}

// turn appends a turn by HTTP and returns its offset.
func (k *kit) turn(token, session, value string, headers ...string) events.Offset {
	k.t.Helper()
	var a ack
	k.want(200, &a, token, "POST", "/v1/sessions/"+session+"/turns", value, headers...)
	return a.Last
}

var errBroken = errors.New("broken")

func say(n int) string { return fmt.Sprintf(`{"role":"user","content":"turn %d"}`, n) }
