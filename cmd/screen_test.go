package cmd_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/errata"
)

// evil sets a title, clears the screen, returns to the beginning of the line, colours and hides the text after it,
// reverses the direction of text, and hides a word in another.
const evil = "x\x1b]0;owned\x07\x1b[2J\r\x1b[8mhidden\u009b31m\u202e\u2066\u200bz\u200f\ufeff\U000e0041\x00\x7fword"

// moves reports whether a character moves the cursor of a terminal, reverses or hides text.
func moves(r rune) bool {
	return r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e ||
		r >= 0x2060 && r <= 0x206f || r == 0xfeff || r >= 0xe0000 && r < 0xe1000
}

// No stored byte is a control sequence on a screen, in whatever part of a record it is and whatever command prints it,
// also in an error.
func TestNothingMovesTheCursor(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	id := evilStore(t, store)
	escaped, panelID := events.EscapeID(id), events.EscapeID("p"+evil)
	calls := [][]string{
		{"tally", "ls"}, {"tally", "search", "word"}, {"tally", "search", "hidden"}, {"tally", "search", evil},
		{"tally", "log"}, {"tally", "log", escaped, "--graph"}, {"tally", "log", escaped}, {"tally", "show", escaped}, {"tally", "show", escaped, "--all"},
		{"tally", "show", escaped, "--tools", "full"}, {"tally", "show", panelID},
		{"tally", "runs", escaped}, {"tally", "runs", panelID}, {"tally", "show", escaped, "--run", "run" + evil}, {"tally", "cost"}, {"tally", "cost", escaped}, {"tally", "cost", "--by", "model"}, {"tally", "stats", "--by", "model"}, {"tally", "stats", escaped, "--by", "tool"},
		{"tally", "diff", escaped, "@2", "@4"}, {"tally", "rewind", panelID}, {"tally", "rewind", escaped, "--to", "#1", "-y"}, {"tally", "undo", escaped, "-y"}, {"tally", "redo", escaped, "-y"},
		{"tally", "fork", escaped, "--at", "@3"}, {"tally", "fork", escaped, "--at", "@3", "--as", "f" + evil}, {"tally", "status"}, {"tally", "verify"},
		{"tally", "show", "no" + evil}, {"tally", "show", escaped, "--at", evil}, {"tally", "show", evil, "--thread", evil}, {"tally", "ls", "--sort", evil}, {"tally", evil}, {"tally", "ls", "--" + evil},
		{"tally", "export", escaped, "-o", filepath.Join(t.TempDir(), "out"), "--format", "tallydir"}, {"tally", "export", panelID, "-o", filepath.Join(t.TempDir(), "out"), "--format", "errata"}, {"tally", "export", "--all", "-o", filepath.Join(t.TempDir(), "a"), "--format", evil},
		{"tally", "export", escaped, "--format", "markdown", "--rewound"}, {"tally", "export", escaped, "--format", "html", "--rewound"}, {"tally", "export", panelID, "--format", "markdown"}, {"tally", "export", panelID, "--format", "html"},
		{"tally", "import", filepath.Join(t.TempDir(), strings.ReplaceAll(evil, "\x00", ""))}, {"tally", "append", "a" + evil}, {"tally", "rebuild"},
		{"tally", "doc", "ls", "--leases"}, {"tally", "doc", "log", "doc/" + escaped}, {"tally", "doc", "diff", "doc/" + escaped}, {"tally", "doc", "links", "doc/" + escaped}, {"tally", "doc", "links", "--back", "doc/" + escaped},
		{"tally", "doc", "watch", "--after", "@0", "--limit", "2"}, {"tally", "doc", "cat", "doc/no" + evil}, {"tally", "doc", "cat", "doc/" + escaped, "--at", evil}, {"tally", "doc", "put", "doc/" + escaped, "--base", "@1"}, {"tally", "doc", "put", "doc/" + evil, evil, "--create"},
		{"tally", "doc", "put", "doc/a", "--create", "--link", evil}, {"tally", "doc", "mv", "doc/" + escaped, "n" + evil}, {"tally", "doc", "rm", "doc/n" + evil}, {"tally", "doc", "rm", "doc/n" + evil, "-y"}, {"tally", "doc", evil},
	}
	shown := 0
	for n, call := range calls {
		if n%5 > 0 && !testkit.Full() {
			continue // the default tier tries every fifth command
		}
		for i := range call {
			call[i] = strings.ReplaceAll(call[i], "\x00", "") // no argument can have a zero byte
		}
		c := command(t.Context(), store, call[0], call[1:]...)
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		c.Stdin = strings.NewReader(`{"specversion":"1.0","id":"` + strings.Repeat("x", 3) + `","source":"urn:\u001b[2J","type":"` + events.TypeTurnAppended + `","subject":"session/a","data":{"entries":[{"thread":"\u001b[2J"}]}}` + "\n" + `{"role":` + "\x1b[2J" + "}\n")
		_ = c.Run()
		if strings.Contains(out.String(), "owned") {
			shown++
		}
		if at := strings.IndexFunc(out.String(), moves); at >= 0 {
			t.Errorf("%q: got a control character: %q", call[1:], out.String()[max(0, at-60):min(out.Len(), at+40)])
		}
	}
	if shown < len(calls)/2 && testkit.Full() {
		t.Errorf("got stored text from only %d of %d commands", shown, len(calls))
	}
}

// If a published record is not an event, the error names it without any byte that moves the cursor.
func TestDamageMovesNoCursor(t *testing.T) {
	url := serveNATS(t)
	st, err := embedded.Open(t.Context(), embedded.Options{Backend: "nats", URL: url, Source: "urn:test"}) // creates the stream
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	msg := &nats.Msg{Subject: events.Session(events.DefaultNamespace, "s").NATS(), Header: nats.Header{"content-type": {"application/cloudevents+json"}},
		Data: []byte(`{"specversion":"1.0","id":"1","source":"urn:x","type":"x.y","x\u001b[2J\u202eword":{}}`)}
	if _, err := nc.RequestMsg(msg, within); err != nil {
		t.Fatal(err)
	}
	out, err := remote(t.Context(), t.TempDir(), "tally", "log", "--all-sessions", "--server", url).CombinedOutput()
	if code := codeOf(t, err); code != 5 || !strings.Contains(string(out), "word") || strings.ContainsFunc(string(out), moves) {
		t.Errorf("got code %d: %q", code, out)
	}
}

// evilDocument writes a document in which every free text is evil.
func evilDocument(t *testing.T, st *tally.Store, id string) {
	t.Helper()
	docs := st.Documents()
	for _, text := range []string{"a\n" + evil + "\n", "b\n" + evil + evil} {
		w := tally.Write{Data: []byte(text), Title: evil, Owner: evil, Attributes: map[string]string{evil: evil},
			Links: []events.Link{{Rel: evil, To: events.Document(st.Namespace(), "doc", id).String()}}}
		if _, err := docs.Save(t.Context(), "doc", id, w); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := docs.Lease(t.Context(), "doc", id, evil, time.Hour); err != nil {
		t.Fatal(err)
	}
}

// evilStore makes a store in which every free text is evil, and returns the id of a session.
func evilStore(t *testing.T, store string) (id string) {
	t.Helper()
	st, err := embedded.Open(t.Context(), embedded.Options{Store: store, Backend: "local", Source: "urn:" + "evil"})
	if err != nil {
		t.Fatal(err)
	}
	quoted := func(v any) events.Raw {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	id = "s" + evil
	sub := events.Session(st.Namespace(), id)
	run := events.RunRef{Kind: "job" + evil, ID: "run" + evil}
	turn := quoted(map[string]any{"role": evil, "name": evil, "content": []any{map[string]any{"type": "text", "text": evil}, map[string]any{"type": "tool-call", "toolName": evil, "toolCallId": evil, "input": map[string]string{evil: evil}},
		map[string]any{"type": evil, evil: evil}}})
	var last events.Offset
	for _, p := range []events.Payload{
		&events.SessionCreated{Kind: events.KindConversation, CreatedAt: "2026-01-02T03:04:05Z", Title: evil, Project: evil, CWD: evil, Owner: evil, Models: []string{evil}},
		&events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: turn}, {Thread: evil, Turn: turn}}},
		&events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: quoted(evil)}}},
		&events.TurnAppended{Entries: []events.Entry{{Thread: "main", Bytes: []byte(evil)}}},
		&events.RunCreated{Run: run, Models: []string{evil}, Owner: evil},
		&events.RunStarted{Run: run, Worker: evil},
		&events.RunProgressed{Run: run, Kind: evil, Note: evil, Thread: evil},
		&events.RunFinished{Run: run, Outcome: "completed", Result: quoted(map[string]string{"reason": evil, "goal": evil, evil: evil}), Schema: evil},
		&events.CostAccrued{Model: evil, Purpose: "other", Source: "reported", USD: "1.5"},
		&events.CheckpointSaved{Kind: "step", ID: evil, Prompt: evil, At: 1},
		&events.SessionUpdated{Set: events.Fields{{Name: "title", Value: quoted(evil)}, {Name: evil, Value: quoted(evil)}}, Reason: evil},
		&events.SessionRewound{To: 2, Reason: evil},
		&events.ThreadTruncated{Lengths: map[string]int{evil: 99}, Reason: evil}, // rejected
	} {
		e, err := events.New("urn:evil", sub, p) // ids, sources and actors are printable, or refused
		if err != nil {
			t.Fatalf("%T: %v", p, err)
		}
		expect := log.Any
		if last > 0 {
			expect = log.At(last)
		}
		ack, err := st.Append(t.Context(), sub, expect, e)
		if err != nil {
			t.Fatalf("%T: %v", p, err)
		}
		last = ack.Last
	}
	other, err := events.New("urn:evil", sub, &events.SessionUpdated{Set: events.Fields{}})
	if err != nil {
		t.Fatal(err)
	}
	other.Type = "com.example." + "note"
	other.Data = quoted(evil)
	if _, err := st.Append(t.Context(), sub, log.Any, other); err != nil {
		t.Fatal(err)
	}
	panel := errata.Of(st, "p"+evil)
	answer := []errata.Response{{ModelID: evil, Text: evil, StopReason: evil, ToolCalls: map[string]int{evil: 1}, ProposedWrites: []errata.FileWrite{{Path: evil, Content: evil}}}, {ModelID: "m", Error: evil}}
	before, err := panel.AppendHistories(t.Context(), []string{evil, "m"}, answer, evil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := panel.PushRewindEntry(t.Context(), errata.RewindEntry{At: before.At, Prompt: evil, HistoryLengths: before.Lengths}); err != nil {
		t.Fatal(err)
	}
	if _, err := panel.PersistRunState(t.Context(), errata.Run{ID: "r" + evil, Prompt: evil, Responses: answer, Events: map[string][]errata.Event{evil: {{Type: evil, Data: evil}}}}); err != nil {
		t.Fatal(err)
	}
	if err := panel.UpdateLastRunNote(t.Context(), evil); err != nil {
		t.Fatal(err)
	}
	evilDocument(t, st, id)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return id
}
