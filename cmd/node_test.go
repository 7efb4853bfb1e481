package cmd_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// foreignAppend is one append of a producer: its session, its expectation, and events whose data are texts.
type foreignAppend struct {
	Subject string              `json:"subject"`
	Expect  map[string]any      `json:"expect,omitempty"`
	Events  []map[string]string `json:"events"`
}

const foreignSession = "travel/berlin é"

// foreignAppends are the appends of a session to which all rules of the wire apply: escapes, bytes that a decoder
// would not keep, several events at once, decisions, a stale answer, and a repeated append.
var foreignAppends = func() []foreignAppend {
	event := func(id, typ, data string, more ...string) map[string]string {
		e := map[string]string{"id": id, "source": "my tool é", "type": typ, "time": "2026-03-01T12:00:00.123Z", "data": data}
		for i := 0; i < len(more); i += 2 {
			e[more[i]] = more[i+1]
		}
		return e
	}
	say := func(id, turn string, more ...string) map[string]string {
		return event(id, "tally.turn.appended.v1", `{"entries":[{"thread":"main","turn":`+turn+`}]}`, more...)
	}
	one := func(expect map[string]any, evs ...map[string]string) foreignAppend {
		return foreignAppend{foreignSession, expect, evs}
	}
	return []foreignAppend{
		one(map[string]any{"at": 0}, event("c", "tally.session.created.v1", `{"kind":"conversation","createdAt":"2026-03-01T12:00:00Z","title":"Grüße <b>&\u2028"}`)),
		one(nil, say("é 😀", `{"role":"user",  "content":"Wohin?", "n":1.0, "n2":1e400}`, "actor", "Ada Löwe \"100%\"")),
		one(nil, say("t2", `{"role":"assistant","content":"a/b \u00e9"}`), say("t3", `{"role":"user","content":"zwei"}`)),
		one(nil, event("cost", "tally.cost.accrued.v1", `{"model":"m","usd":"0.125","tokens":{"input":10,"output":5,"reasoning":0,"cacheRead":0,"cacheWrite":0},"purpose":"run","source":"reported"}`)),
		one(map[string]any{"since": 5, "types": []string{"tally.session.rewound.v1"}}, event("r", "tally.session.rewound.v1", `{"to":2}`)),
		one(nil, say("late", `{"role":"assistant","content":"too late"}`, "tallyseen", "00000000000000000005")),
		one(nil, say("t4", `{"role":"user","content":"again"}`)),
		one(nil, say("t4", `{"role":"user","content":"again"}`)),
	}
}()

// appendByGo makes the same appends through the library.
func appendByGo(t *testing.T, st *tally.Store) {
	t.Helper()
	last := events.Offset(0)
	for _, a := range foreignAppends {
		var evs []events.Event
		for _, e := range a.Events {
			at, err := time.Parse(time.RFC3339Nano, e["time"])
			if err != nil {
				t.Fatal(err)
			}
			ev := events.Event{ID: e["id"], Source: e["source"], Type: e["type"], Time: at, Data: []byte(e["data"]), Extensions: map[string]string{}}
			for _, name := range []string{"actor", "tallyseen"} {
				if e[name] != "" {
					ev.Extensions[name] = e[name]
				}
			}
			evs = append(evs, ev)
		}
		expect := log.Any
		if a.Expect != nil {
			expect = log.At(last)
		}
		ack, err := st.Log.Append(t.Context(), events.Session("", a.Subject), expect, evs...)
		if err != nil {
			t.Fatal(err)
		}
		last = max(last, ack.Last)
	}
}

// mustNode skips the test unless Node.js can run programs with the packages that `npm ci` installs in testdata/node.
func mustNode(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat("testdata/node/node_modules/@nats-io/transport-node")
	}
	testkit.Needs(t, err == nil, "node, and npm ci in cmd/testdata/node")
}

// produce runs the producer, and returns its answers.
func produce(t *testing.T, way, where string, appends ...foreignAppend) []map[string]any {
	t.Helper()
	var input bytes.Buffer
	for _, a := range appends {
		if err := json.NewEncoder(&input).Encode(a); err != nil {
			t.Fatal(err)
		}
	}
	out := testkit.Node(t, &input, "testdata/node/producer.mjs", way, where)
	return jsonLines[map[string]any](t, bytes.NewReader(out))
}

// A producer in another language, written from docs/wire.md alone, leaves the same session as the library, through the
// owner's service and on a server that others run.
func TestProducerInAnotherLanguage(t *testing.T) {
	mustNode(t)
	reference := filepath.Join(t.TempDir(), "store")
	st, err := embedded.Open(t.Context(), embedded.Options{Backend: "local", Store: reference})
	if err != nil {
		t.Fatal(err)
	}
	appendByGo(t, st)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	want := foldedBy(t, "--store", reference)
	if !strings.Contains(want, `"stale"`) || !strings.Contains(want, `"content":"again"`) && !strings.Contains(want, `"content": "again"`) {
		t.Fatalf("the session lacks a rule of the wire:\n%s", want)
	}

	t.Run("through the service", func(t *testing.T) {
		store := filepath.Join(t.TempDir(), "store")
		owner := mustServe(t, t.Context(), store)
		answers := produce(t, "service", filepath.Join(store, "owner.json"), foreignAppends...)
		if diff := cmp.Diff(want, foldedBy(t, "--store", store)); diff != "" {
			t.Error(diff)
		}
		t.Run("X-06 Node", func(t *testing.T) { produceAgainstSchema(t, store) })
		owner.kill()
		for i, a := range answers[:len(answers)-1] {
			if a["durability"] != "durable" || (a["duplicate"] == true) != (i == len(foreignAppends)-1) {
				t.Errorf("answer %d: got %v", i, a)
			}
		}
		if moved := answers[len(answers)-1]; moved["durable"] != 8.0 {
			t.Errorf("the watermark: got %v", moved)
		}
		output(t, nil, store, "tally", "verify")
	})
	t.Run("published to a server", func(t *testing.T) {
		url := serveNATS(t)
		st, err := embedded.Open(t.Context(), embedded.Options{Backend: "nats", URL: url}) // creates the stream
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		answers := produce(t, "direct", url, foreignAppends...)
		if diff := cmp.Diff(want, foldedBy(t, "--server", url)); diff != "" {
			t.Error(diff)
		}
		if last := answers[len(answers)-1]; last["duplicate"] != true || last["seq"] != 8.0 {
			t.Errorf("the repeated append: got %v", last)
		}
	})
}

// foldedBy returns what the commands print about the session: its turns, in effect or not, its cost, and every stored
// event without its time.
func foldedBy(t *testing.T, flag, where string) string {
	t.Helper()
	var all strings.Builder
	for _, args := range [][]string{{"show", foreignSession, "--all", "-o", "json"}, {"cost", foreignSession, "-o", "json"}, {"log", foreignSession, "-o", "jsonl"}} {
		c := remote(t.Context(), t.TempDir(), "tally", append(args, flag, where)...)
		var errw bytes.Buffer
		c.Stderr = &errw
		text, err := c.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, errw.String())
		}
		for line := range strings.Lines(string(text)) {
			if before, rest, ok := strings.Cut(line, `"recorded":"`); ok {
				_, after, _ := strings.Cut(rest, `",`)
				line = before + after
			}
			all.WriteString(line)
		}
	}
	return all.String()
}

// produceAgainstSchema appends an event of a registered type with invalid data.
func produceAgainstSchema(t *testing.T, store string) {
	st, err := embedded.Open(t.Context(), embedded.Options{Backend: "local", Store: store,
		Types: []events.Type{events.Define[any]("com.acme.vote.v1", events.InLedger).Schema([]byte(`{"required":["for"],"properties":{"for":{"type":"string"}}}`)).Type}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	vote := map[string]string{"id": "1", "source": "urn:node", "type": "com.acme.vote.v1", "data": `{"for":7}`}
	answers := produce(t, "service", filepath.Join(store, "owner.json"), foreignAppend{"votes", nil, []map[string]string{vote}})
	refused, _ := answers[0]["error"].(map[string]any)
	if refused["code"] != "invalid" || refused["field"] != "data/for" {
		t.Errorf("got %v, want the code invalid and the field data/for", answers[0])
	}
}
