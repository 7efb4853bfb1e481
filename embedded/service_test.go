package embedded_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/embedded"
)

// wireExample returns the request and the answer in docs/wire.md.
func wireExample(t *testing.T) (subject, request, answer string) {
	t.Helper()
	doc, err := os.ReadFile("../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "For example:\n\n```\n")
	block, _, ok := strings.Cut(rest, "\n```")
	subject, rest, ok2 := strings.Cut(block, "\n")
	request, answer, ok3 := strings.Cut(rest, "\n\n")
	if !ok || !ok2 || !ok3 {
		t.Fatal("docs/wire.md has no request")
	}
	return subject, request, answer
}

// A client that knows only docs/wire.md and owner.json can append, gets refusals, and reads the durable offset.
func TestServiceSpeaksAsDocumented(t *testing.T) {
	dir := t.TempDir()
	s := mustStart(t, embedded.ServerOptions{Dir: dir})
	user, password := mustReadToken(t, dir)
	nc, err := nats.Connect(s.URL(), nats.UserInfo(user, password))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ask := func(subject, request string) *nats.Msg {
		t.Helper()
		m, err := nc.Request(subject, []byte(request), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	subject, request, answer := wireExample(t)
	if m := ask(subject, request); string(m.Data) != answer {
		t.Fatalf("got answer %s, want %s", m.Data, answer)
	}
	var again struct{ Duplicate bool }
	if m := ask(subject, request); json.Unmarshal(m.Data, &again) != nil || !again.Duplicate {
		t.Errorf("the same request again: got %s", m.Data)
	}
	if m := ask("tally.api.v1.watermark", ""); string(m.Data) != `{"durable":1}` {
		t.Errorf("the watermark: got %s", m.Data)
	}
	for name, c := range map[string]struct{ request, code string }{
		"no JSON":      {`{`, "invalid"},
		"bad event":    {strings.Replace(request, `"source":"urn:example",`, "", 1), "invalid"},
		"conflict":     {strings.Replace(strings.Replace(request, `"events"`, `"expect":{"at":7},"events"`, 1), `"id":"a"`, `"id":"b"`, 1), "conflict"},
		"other data":   {strings.Replace(request, `"hi"`, `"ho"`, 1), "invalid"},
		"both expects": {strings.Replace(request, `"events"`, `"expect":{"at":7,"since":7},"events"`, 1), "invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			m := ask(subject, c.request)
			var reply struct {
				Error struct{ Code, Message string }
			}
			if err := json.Unmarshal(m.Data, &reply); err != nil || reply.Error.Code != c.code || reply.Error.Message == "" {
				t.Errorf("got %s, want the code %s", m.Data, c.code)
			}
			if m.Header.Get("Nats-Service-Error-Code") != c.code || m.Header.Get("Nats-Service-Error") == "" {
				t.Errorf("got headers %v", m.Header)
			}
		})
	}
	if head, err := s.Log().Head(t.Context()); err != nil || head != 1 {
		t.Errorf("got head %v, %v: a refused event was stored", head, err)
	}
}
