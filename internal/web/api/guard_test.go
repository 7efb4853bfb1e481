package api

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/web"
)

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

func (u unread) Close() error { return nil }

// pathOf returns a path that fits a pattern.
func pathOf(pattern string) string {
	return strings.NewReplacer("{id}", "s", "{kind}", "note").Replace(pattern)
}

// requestFor returns a request that fits a row, with a body that must not be read.
func (k *kit) requestFor(row web.Route, token string) *http.Request {
	r := k.request(token, row.Method, pathOf(row.Pattern), "")
	if row.Body > 0 {
		r.Body, r.ContentLength = unread{k.t}, 5
		r.Header.Set("Content-Type", strings.Replace(row.Types[0], "*", "application/json", 1))
	}
	return r
}

// Every route of the table asks for a token with its scope, whatever the method.
func TestTokens(t *testing.T) {
	t.Run("W-08 no route without a token", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		public := 0
		k.add("expired", "default", web.Scopes...)
		k.list[len(k.list)-1].Expires = k.store.Now().Add(-time.Second)
		if err := k.tokens.Reload(); err != nil {
			t.Fatal(err)
		}
		k.texts["wrong"] = web.NewText()
		for _, row := range k.server.Routes() {
			if row.Scope == web.Public {
				public++
				continue
			}
			for _, token := range []string{"", "wrong", "expired"} {
				w := k.serve(k.requestFor(row, token))
				checkProblem(t, w, "unauthenticated", 401)
				if w.Header().Get("WWW-Authenticate") != "Bearer" {
					t.Errorf("%s %s: the answer does not say how to authenticate", row.Method, row.Pattern)
				}
			}
			if row.Scope == web.Any {
				continue
			}
			other := "ops"
			if row.Scope == web.Metrics {
				other = "reader"
			}
			checkProblem(t, k.serve(k.requestFor(row, other)), "forbidden", 403)
		}
		if public != 2 {
			t.Errorf("%d routes need no token, want /healthz and /readyz", public)
		}
		if k.head() != 0 {
			t.Error("something was written")
		}
	})
	t.Run("W-08 hidden and absent are the same bytes", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		k.turn("all", "s", `1`)
		k.want(201, nil, "all", "PUT", "/v1/documents/note/s", `1`, "If-None-Match", "*")
		absent := newKit(t, web.Limits{})
		for _, path := range []string{"/v1/sessions/s", "/v1/sessions/s/turns", "/v1/sessions/s/records", "/v1/documents/note/s", "/v1/documents/note/s/history", "/v1/documents", "/v1/records"} {
			hidden, none := k.do("other", "GET", path, ""), absent.do("other", "GET", path, "")
			if hidden.Code != none.Code || fmt.Sprint(hidden.Header()) != fmt.Sprint(none.Header()) {
				t.Errorf("%s: got %d %v, want %d %v", path, hidden.Code, hidden.Header(), none.Code, none.Header())
			}
			// A list says how far it read, which tells nothing of the other namespace.
			if a, b := cutAsOf(hidden.Body.String()), cutAsOf(none.Body.String()); a != b {
				t.Errorf("%s: got %s, want %s", path, a, b)
			}
		}
		checkProblem(t, k.do("other", "GET", "/v1/sessions/s", ""), "notFound", 404)
	})
	t.Run("W-08 a token counts in one header alone", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		text := k.texts["all"]
		for name, change := range map[string]func(*http.Request){
			"query":  func(r *http.Request) { r.URL.RawQuery = "token=" + text + "&access_token=" + text },
			"cookie": func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "token", Value: text}) },
			"basic":  func(r *http.Request) { r.SetBasicAuth("all", text) },
			"twice":  func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer " + text, "Bearer " + text} },
			"bare":   func(r *http.Request) { r.Header.Set("Authorization", text) },
			"empty":  func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") },
			"part":   func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+text[:len(text)-1]) },
			"proxy":  func(r *http.Request) { r.Header.Set("Proxy-Authorization", "Bearer "+text) },
		} {
			t.Run(name, func(t *testing.T) {
				r := k.request("", "GET", "/v1", "")
				change(r)
				checkProblem(t, k.serve(r), "unauthenticated", 401)
			})
		}
	})
	t.Run("W-08 a route without a scope is refused", func(t *testing.T) {
		for name, row := range map[string]web.Route{
			"none":    {Method: "GET", Pattern: "/x", Do: describe},
			"unknown": {Method: "GET", Pattern: "/x", Scope: "reed", Do: describe},
			"twice":   {Method: "GET", Pattern: "/v1/sessions/{other}", Scope: web.Read, Do: describe},
			"no act":  {Method: "GET", Pattern: "/x", Scope: web.Read},
			"no type": {Method: "POST", Pattern: "/x", Scope: web.Read, Body: 1, Do: describe},
		} {
			t.Run(name, func(t *testing.T) {
				defer func() {
					if recover() == nil {
						t.Error("the table was accepted")
					}
				}()
				newKit(t, web.Limits{}, row)
			})
		}
	})
}

func cutAsOf(text string) string {
	before, _, _ := strings.Cut(text, `"asOf":`)
	return before
}

// Hosts and origins are checked before anything of a body is read.
func TestOrigins(t *testing.T) {
	k := newKit(t, web.Limits{})
	ask := func(row web.Route, change func(*http.Request)) *httptest.ResponseRecorder {
		r := k.requestFor(row, "all")
		change(r)
		return k.serve(r)
	}
	t.Run("W-09 foreign hosts", func(t *testing.T) {
		for _, row := range k.server.Routes() {
			for _, name := range []string{"evil.example", "evil.example:4437", "127.0.0.1", "127.0.0.1:4438", "127.0.0.1:4437.evil.example", "localhost", host + ".", ""} {
				checkProblem(t, ask(row, func(r *http.Request) { r.Host = name }), "misdirected", 421)
			}
		}
	})
	t.Run("W-09 foreign origins", func(t *testing.T) {
		for _, row := range k.server.Routes() {
			for _, origin := range []string{"null", "https://evil.example", "https://ours.example.evil.example", "http://ours.example", "https://" + host, "http://127.0.0.1:9", ""} {
				checkProblem(t, ask(row, func(r *http.Request) { r.Header["Origin"] = []string{origin} }), "forbidden", 403)
			}
			for _, site := range []string{"cross-site", "same-site", "anything"} {
				checkProblem(t, ask(row, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", site) }), "forbidden", 403)
			}
			checkProblem(t, ask(row, func(r *http.Request) { r.Header["Origin"] = []string{"https://ours.example", "https://evil.example"} }), "forbidden", 403)
		}
	})
	t.Run("W-09 allowed origins", func(t *testing.T) {
		w := k.do("all", "GET", "/v1", "", "Origin", "https://ours.example", "Sec-Fetch-Site", "cross-site")
		if w.Code != 200 || w.Header().Get("Access-Control-Allow-Origin") != "https://ours.example" || w.Header().Get("Vary") != "Origin" || w.Header().Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("got %d %v", w.Code, w.Header())
		}
		if w := k.do("all", "GET", "/v1", "", "Origin", "http://"+host, "Sec-Fetch-Site", "same-origin"); w.Code != 200 || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("got %d %v", w.Code, w.Header())
		}
		for _, path := range []string{"/v1/sessions/s/move", "/nothing"} {
			w := k.do("", "OPTIONS", path, "", "Origin", "https://ours.example", "Access-Control-Request-Method", "POST")
			if w.Code != 204 || w.Header().Get("Access-Control-Allow-Origin") != "https://ours.example" || w.Body.Len() > 0 {
				t.Errorf("%s: got %d %v", path, w.Code, w.Header())
			}
		}
		checkProblem(t, k.do("", "OPTIONS", "/v1/sessions/s/move", "", "Origin", "https://evil.example", "Access-Control-Request-Method", "POST"), "forbidden", 403)
	})
	t.Run("W-09 headers of every answer", func(t *testing.T) {
		k.turn("all", "s", `1`)
		for _, path := range []string{"/healthz", "/v1", "/nothing", "/v1/sessions/s", "/v1/sessions/s/turns", "//"} {
			h := k.do("all", "GET", path, "").Header()
			if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" || h.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: got %v", path, h)
			}
		}
	})
}

// A file of tokens is this user's own. A token that is removed from it ends at once.
func TestTokenFiles(t *testing.T) {
	t.Run("W-10 a removed token", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		k.turn("all", "s", `1`)
		stream := k.follow("reader", "/v1/sessions/s/records")
		if e := stream.next(); e.name != "record" {
			t.Fatalf("got %+v", e)
		}
		k.list = k.list[:1]
		if err := k.tokens.Reload(); err != nil {
			t.Fatal(err)
		}
		if e := stream.next(); e.name != "end" || !strings.Contains(e.data, "token") {
			t.Errorf("the stream goes on: %+v", e)
		}
		checkProblem(t, k.do("reader", "GET", "/v1", ""), "unauthenticated", 401)
	})
	t.Run("W-10 a token with fewer scopes", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		stream := k.follow("reader", "/v1/sessions/s/records")
		k.list[1].Scopes = []web.Scope{web.Append}
		if err := k.tokens.Reload(); err != nil {
			t.Fatal(err)
		}
		if e := stream.next(); e.name != "end" {
			t.Errorf("the stream goes on: %+v", e)
		}
	})
	t.Run("W-10 a stream ends when its token expires", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		k.list[1].Expires = k.store.Now().Add(300 * time.Millisecond)
		if err := k.tokens.Reload(); err != nil {
			t.Fatal(err)
		}
		if e := k.follow("reader", "/v1/sessions/s/records").next(); e.name != "end" {
			t.Errorf("the stream goes on: %+v", e)
		}
		checkProblem(t, k.do("reader", "GET", "/v1", ""), "unauthenticated", 401)
	})
	t.Run("W-10 the last good file counts", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		k.list, k.fails = nil, errBroken
		if err := k.tokens.Reload(); !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		k.want(200, nil, "reader", "GET", "/v1", "")
	})
	file := func(t *testing.T, text string) string {
		path := filepath.Join(t.TempDir(), "tokens")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sum := strings.Repeat("ab", 32)
	t.Run("W-10 lines", func(t *testing.T) {
		list, err := web.ReadTokens(file(t, "# tokens\n\nci sha256:"+sum+" default read,append expires=2030-01-02T03:04:05Z\nops  sha256:"+strings.Repeat("cd", 32)+"\tteam  metrics\n"))
		if err != nil || len(list) != 2 || list[0].Name != "ci" || !list[0].Has(web.Append) || list[0].Has(web.Move) || list[1].Namespace != "team" || list[0].Expires.Year() != 2030 {
			t.Errorf("got %v, %v", list, err)
		}
		for _, line := range []string{"x", "x sha256:" + sum + " default", "x sha256:" + sum[1:] + " default read", "x md5:" + sum + " default read", "x sha256:" + sum + " default reed",
			"x sha256:" + sum + " default read,read", "x sha256:" + sum + " _personal read", "x sha256:" + sum + " a/b read", "x/y sha256:" + sum + " default read",
			"x sha256:" + sum + " default read expires=soon", "x sha256:" + sum + " default read 2030-01-02T03:04:05Z", "x sha256:" + sum + " default read expires=2030-01-02T03:04:05Z more",
			"x sha256:" + sum + " default read\nx sha256:" + strings.Repeat("cd", 32) + " default read", "x sha256:" + sum + " default read\ny sha256:" + sum + " default read"} {
			path := file(t, line)
			_, err := web.ReadTokens(path)
			if err == nil || !strings.Contains(err.Error(), path+":") || strings.Contains(err.Error(), sum[:20]) {
				t.Errorf("%s: got %v", line, err)
			}
		}
	})
	t.Run("W-10 modes", func(t *testing.T) {
		for _, mode := range []os.FileMode{0o644, 0o640, 0o602, 0o660} {
			path := file(t, "")
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			if _, err := web.ReadTokens(path); err == nil {
				t.Errorf("a file of mode %04o was read", mode)
			}
			if _, _, err := web.LocalToken(path, "default"); err == nil {
				t.Errorf("a token of mode %04o was read", mode)
			}
		}
		if _, err := web.ReadTokens(t.TempDir()); err == nil {
			t.Error("a folder was read")
		}
		if os.Geteuid() == 0 {
			path := file(t, "")
			if err := os.Chown(path, 12345, 12345); err != nil {
				t.Fatal(err)
			}
			if _, err := web.ReadTokens(path); err == nil {
				t.Error("the file of another user was read")
			}
		}
	})
	t.Run("W-10 the token of the store", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "http-token")
		text, token, err := web.LocalToken(path, "default")
		if err != nil || token.Hash != web.HashOf(text) || len(token.Scopes) != len(web.Scopes) {
			t.Fatalf("got %v, %v", token, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("got %v, %v", info.Mode(), err)
		}
		if again, _, err := web.LocalToken(path, "default"); err != nil || again != text {
			t.Errorf("the next start makes another token: %v", err)
		}
		if err := os.WriteFile(path, []byte("tly_short\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := web.LocalToken(path, "default"); err == nil {
			t.Error("a file without a token was read")
		}
	})
}

// Nothing that a client sends in secret is in a log.
func TestLogsSaySilent(t *testing.T) {
	const canary = "canary-7f3a"
	fail := web.Route{Method: "POST", Pattern: "/fail", Scope: web.Append, Query: "q", Body: 100, Types: jsonTypes, Do: func(*web.Call) error { return errBroken }}
	panics := fail
	panics.Pattern, panics.Do = "/panic", func(*web.Call) error { panic("broken") }
	k := newKit(t, web.Limits{}, fail, panics)
	t.Run("W-11 canaries", func(t *testing.T) {
		for _, path := range []string{"/fail", "/panic", "/v1/sessions/s/turns", "/v1/sessions", "/nothing"} {
			for _, token := range []string{"all", ""} {
				r := k.request(token, "POST", path+"?q="+canary, `{"x":"`+canary+`"}`, "Cookie", canary, "X-Other", canary, "Idempotency-Key", canary, "Ce-Id", canary)
				if token == "" {
					r.Header.Set("Authorization", "Bearer "+canary)
				}
				if w := k.serve(r); w.Code < 400 {
					t.Errorf("%s: got status %d", path, w.Code)
				}
			}
		}
		said := k.logged.String()
		if !strings.Contains(said, "/fail") || !strings.Contains(said, "/panic") {
			t.Errorf("the failures are not logged: %s", said)
		}
		for _, secret := range []string{canary, k.texts["all"]} {
			if strings.Contains(said, secret) {
				t.Errorf("the log has %s: %s", secret, said)
			}
		}
	})
	t.Run("W-11 an answer about a failure has only its id", func(t *testing.T) {
		w := k.do("all", "POST", "/fail", `1`)
		checkProblem(t, w, "internal", 500)
		if strings.Contains(w.Body.String(), errBroken.Error()) || !strings.Contains(w.Body.String(), "urn:uuid:") {
			t.Errorf("got %s", w.Body)
		}
		checkProblem(t, k.do("all", "POST", "/panic", `1`), "internal", 500)
	})
}

// raw sends bytes on a connection and returns the first answer.
func raw(t *testing.T, addr, text string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(testkit.Patience(20 * time.Second)))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return r
}

// Requests that could be read in two ways are refused.
func TestRequestsWithTwoReadings(t *testing.T) {
	k := newKit(t, web.Limits{})
	k.turn("all", "s", `1`)
	t.Run("W-12 simple types", func(t *testing.T) {
		for _, row := range k.server.Routes() {
			if row.Method != "POST" {
				continue
			}
			for _, typ := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/json, text/plain", "application/json; charset=utf-16"} {
				k.problem("unsupportedType", 415, "all", "POST", pathOf(row.Pattern), `{}`, "Content-Type", typ)
			}
			k.problem("unsupportedType", 415, "all", "POST", pathOf(row.Pattern), `{}`, "Content-Encoding", "br")
		}
	})
	t.Run("W-12 methods", func(t *testing.T) {
		for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
			k.want(200, nil, "all", "GET", "/v1/sessions/s/records", "", name, "DELETE")
		}
		for _, method := range []string{"DELETE", "PATCH", "TRACE", "get", "PROPFIND"} {
			k.problem("method", 405, "all", method, "/v1/sessions/s", "")
		}
		k.problem("invalid", 400, "all", "GET", "/v1/sessions/s?_method=DELETE", "")
		if w := k.do("all", "HEAD", "/v1/sessions/s", ""); w.Code != 200 || w.Body.Len() > 0 || w.Header().Get("ETag") == "" {
			t.Errorf("HEAD: got %d with %d bytes", w.Code, w.Body.Len())
		}
	})
	t.Run("W-12 paths", func(t *testing.T) {
		for _, path := range []string{"//", "/v1//sessions", "/v1/./sessions", "/v1/sessions/../sessions", "/v1/sessions/", "/", "/v1/sessions/a\\b"} {
			r := k.request("all", "GET", "/", "")
			r.URL.Path, r.URL.RawPath = path, ""
			w := k.serve(r)
			if w.Code != 400 && !(path == "/v1/sessions/a\\b" && w.Code == 404) {
				t.Errorf("%s: got status %d", path, w.Code)
			}
		}
		for _, id := range []string{"%00", "%2e%2e", "a%2Fb", "%2E%2E%2F..%2Fowner.json", "%C3%BC", "%FF", "a%0Ab", "%3F", "%25", "a=b", "_personal"} {
			k.turn("all", id, `{"id":"`+id+`"}`)
			var list reads.Turns
			k.want(200, &list, "all", "GET", "/v1/sessions/"+id+"/turns", "")
			if len(list.Turns) != 1 || string(list.Turns[0].Raw) != `{"id":"`+id+`"}` {
				t.Errorf("%s: got %+v", id, list)
			}
		}
		k.problem("invalid", 400, "all", "GET", "/v1/sessions/"+strings.Repeat("a", 513)+"/records", "")
	})
	t.Run("W-12 queries", func(t *testing.T) {
		for _, query := range []string{"at=@1&at=@2", "unknown=1", "%zz=1", "at=@1;thread=x"} {
			k.problem("invalid", 400, "all", "GET", "/v1/sessions/s/turns?"+query, "")
		}
	})
	t.Run("W-12 bytes of a connection", func(t *testing.T) {
		server := httptest.NewUnstartedServer(k.server)
		server.Config.ReadHeaderTimeout = time.Minute
		server.Start()
		defer server.Close()
		addr := server.Listener.Addr().String()
		before := k.head()
		bearer := "Authorization: Bearer " + k.texts["all"] + "\r\n"
		post := "POST /v1/sessions/s/turns HTTP/1.1\r\n" + bearer + "Content-Type: application/json\r\n"
		for name, text := range map[string]string{
			"two hosts":       "GET /v1 HTTP/1.1\r\nHost: " + host + "\r\nHost: " + host + "\r\n" + bearer + "\r\n",
			"no host":         "GET /v1 HTTP/1.1\r\n" + bearer + "\r\n",
			"two lengths":     post + "Host: " + host + "\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n11",
			"odd encoding":    post + "Host: " + host + "\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
			"NUL in the path": "GET /v1/sessions/\x00 HTTP/1.1\r\nHost: " + host + "\r\n" + bearer + "\r\n",
		} {
			if r := raw(t, addr, text); r.StatusCode != 400 && r.StatusCode != 501 && r.StatusCode != 421 {
				t.Errorf("%s: got status %d", name, r.StatusCode)
			}
		}
		if r := raw(t, addr, "GET http://evil.example/v1 HTTP/1.1\r\nHost: "+host+"\r\n"+bearer+"\r\n"); r.StatusCode != 421 {
			t.Errorf("a request for another server: got status %d", r.StatusCode)
		}
		if k.head() != before {
			t.Error("something was written")
		}
		// What follows a body with two lengths is not another request.
		r := raw(t, addr, post+"Host: "+host+"\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n1\r\n1\r\n0\r\n\r\n"+post+"Host: "+host+"\r\nContent-Length: 1\r\n\r\n2")
		io.Copy(io.Discard, r.Body)
		if !r.Close || k.head() > before+1 {
			t.Errorf("the connection goes on, and the log is at %v", k.head())
		}
	})
	t.Run("W-12 a refusal does not wait for the body", func(t *testing.T) {
		server := httptest.NewServer(k.server)
		defer server.Close()
		for _, token := range []string{"", bearerOf(k, "reader")} {
			r := raw(t, server.Listener.Addr().String(), "POST /v1/sessions/s/turns HTTP/1.1\r\nHost: "+host+"\r\n"+token+"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
			if r.StatusCode != 401 && r.StatusCode != 403 {
				t.Errorf("got status %d", r.StatusCode)
			}
		}
	})
}

func bearerOf(k *kit, name string) string { return "Authorization: Bearer " + k.texts[name] + "\r\n" }

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// One client cannot take what others need.
func TestLimits(t *testing.T) {
	t.Run("W-13 a body that inflates", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		var bomb bytes.Buffer
		zip, _ := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
		size := int64(100 << 20)
		if testkit.Full() {
			size = 1 << 30
		}
		if _, err := io.CopyN(zip, zeros{}, size); err != nil {
			t.Fatal(err)
		}
		zip.Close()
		k.problem("tooLarge", 413, "all", "POST", "/v1/sessions/s/turns", bomb.String(), "Content-Encoding", "gzip")
		k.problem("invalid", 400, "all", "POST", "/v1/sessions/s/turns", "not gzip", "Content-Encoding", "gzip")
		k.problem("invalid", 400, "all", "POST", "/v1/sessions/s/turns", bomb.String()[:bomb.Len()/1000], "Content-Encoding", "gzip")
	})
	t.Run("W-13 zipped", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		var b bytes.Buffer
		zip := gzip.NewWriter(&b)
		io.WriteString(zip, say(1))
		zip.Close()
		k.turn("all", "s", b.String(), "Content-Encoding", "gzip")
		if w := k.do("all", "GET", "/v1/sessions/s/turns", ""); !strings.Contains(w.Body.String(), say(1)) {
			t.Errorf("got %s", w.Body)
		}
	})
	t.Run("W-13 sizes that are announced", func(t *testing.T) {
		k := newKit(t, web.Limits{})
		r := k.request("all", "POST", "/v1/sessions/s/turns", "")
		r.Body, r.ContentLength = unread{t}, maxBody+1
		r.Header.Set("Content-Type", "application/json")
		checkProblem(t, k.serve(r), "tooLarge", 413)
		k.problem("tooLarge", 413, "all", "POST", "/v1/sessions/s/turns", `"`+strings.Repeat("a", 9<<20)+`"`)
		k.problem("invalid", 400, "all", "POST", "/v1/sessions/s/turns", strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000))
		k.problem("tooLarge", 413, "all", "POST", "/v1/sessions/s/events", "["+strings.Repeat(`{"type":"x.y","data":1},`, 1000)+`{"type":"x.y","data":1}]`)
	})
	t.Run("W-13 bodies in memory", func(t *testing.T) {
		k := newKit(t, web.Limits{Bodies: 200 << 10})
		w := k.do("all", "POST", "/v1/sessions/s/turns", `"`+strings.Repeat("a", 300<<10)+`"`)
		checkProblem(t, w, "unavailable", 503)
		if w.Header().Get("Retry-After") != "1" {
			t.Errorf("got %v", w.Header())
		}
		for range 5 { // each body returns its bytes
			k.turn("all", "s", `"`+strings.Repeat("a", 100<<10)+`"`)
		}
	})
	t.Run("W-13 appends under way", func(t *testing.T) {
		entered, leave := make(chan bool), make(chan bool)
		slow := web.Route{Method: "POST", Pattern: "/slow", Scope: web.Append, Body: 10, Types: jsonTypes, Do: func(c *web.Call) error {
			entered <- true
			<-leave
			return c.Text("done")
		}}
		k := newKit(t, web.Limits{Appends: 1}, slow)
		done := make(chan int)
		go func() { done <- k.do("all", "POST", "/slow", `1`).Code }()
		<-entered
		k.problem("unavailable", 503, "all", "POST", "/v1/sessions/s/turns", `1`)
		k.want(200, nil, "all", "GET", "/v1", "")
		leave <- true
		if code := <-done; code != 200 {
			t.Errorf("got status %d", code)
		}
		k.turn("all", "s", `1`)
	})
	t.Run("W-13 followers", func(t *testing.T) {
		k := newKit(t, web.Limits{Followers: 1})
		k.turn("all", "s", `1`)
		stream := k.follow("all", "/v1/sessions/s/records")
		stream.next()
		k.problem("busy", 429, "all", "GET", "/v1/records", "", "Accept", "text/event-stream")
		stream.close()
		for deadline := time.Now().Add(testkit.Patience(20 * time.Second)); ; time.Sleep(time.Millisecond) {
			next := k.follow("all", "/v1/records")
			if next.status == 200 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the place of a follower that left is not free")
			}
		}
	})
}
