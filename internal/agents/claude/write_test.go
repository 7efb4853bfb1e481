package claude_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/claude"
	"github.com/tallylog/tally/internal/rawjson"
)

// A file for Claude Code has the same messages as its source. It names entries of the old session only as originals,
// and is a fork without costs of its own.
func TestWriteRecorded(t *testing.T) {
	const session = "5c0375b4-57a5-4f26-b12d-0000000000aa"
	for name, content := range recorded(t) {
		f, _ := claude.Agent{}.File(name, []byte(content[:strings.IndexByte(content, '\n')]))
		if f.Thread != agents.Main {
			continue
		}
		var lines [][]byte
		for line := range strings.Lines(content) {
			lines = append(lines, []byte(line))
		}
		w := claude.Transcript{Session: session, From: "old", Lines: lines}
		written, err := w.Append(nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		old, oldIDs := said(content)
		now, ids := said(string(written))
		if !slices.Equal(old, now) || len(old) == 0 {
			t.Errorf("%s: the file's %d messages do not equal the source's: got %d", name, len(old), len(now))
		}
		for id := range ids {
			if oldIDs[id] {
				t.Errorf("%s: entry %s is in both files", name, id)
			}
		}
		fork, responses := false, make(map[string]bool)
		path, err := w.Name("-pier")
		if err != nil {
			t.Fatal(err)
		}
		file, _ := claude.Agent{}.File(path, nil)
		fold := claude.Agent{}.Fold(file)
		var at int64
		for line := range strings.Lines(string(written)) {
			m := fold.Line(agents.Span{Start: at, End: at + int64(len(line))}, []byte(strings.TrimSuffix(line, "\n")))
			at += int64(len(line))
			for _, fact := range slices.Concat(m.Before, m.After) {
				switch p := fact.Payload.(type) {
				case *events.SessionCreated:
					fork = fork || p.Fork != nil && p.Fork.Session == "claude/-pier/old"
				case *events.SessionUpdated:
					_, says := p.Set.Get("forkedFrom")
					fork = fork || says
				case *events.CostAccrued:
					responses[p.Response] = true
				}
			}
		}
		if !fork {
			t.Errorf("%s: the file is not a fork", name)
		}
		for response := range responses {
			if !strings.Contains(content, response) || response == "" {
				t.Errorf("%s: response %q is not in the source", name, response)
			}
		}
	}
}

// said lists the messages of a transcript, and the uuids of its entries.
func said(content string) (list []string, ids map[string]bool) {
	ids = make(map[string]bool)
	for line := range strings.Lines(content) {
		values, _ := rawjson.Objects([]byte(line))
		for _, v := range values {
			if m, ok := v.Get("message"); ok {
				list = append(list, string(m))
			}
			if id := v.Text("uuid"); id != "" {
				ids[id] = true
			}
		}
	}
	return list, ids
}

// The links of an entry lead to the copies of the entries that they led to.
func TestWriteLinks(t *testing.T) {
	lines := []string{
		`{"type":"user","sessionId":"old","uuid":"a","parentUuid":null,"message":{"content":"1"}}`,
		`{"type":"assistant","sessionId":"old","uuid":"b","parentUuid":"a","message":{}}{"type":"user","sessionId":"old","uuid":"c","parentUuid":"b","sourceToolAssistantUUID":"b","message":{}}`,
		`torn`, ``, `{"type":"file-history-snapshot","messageId":"a"}`, `{"no":"type"}`, `{"type":"summary","leafUuid":"c","summary":"s"}`,
	}
	var raw [][]byte
	for _, line := range lines {
		raw = append(raw, []byte(line))
	}
	out, err := claude.Transcript{Session: "new", From: "old", Lines: raw}.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	var list []rawjson.Members
	for line := range strings.Lines(string(out)) {
		v, err := rawjson.Object([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
	if len(list) != 4 {
		t.Fatalf("%d lines:\n%s", len(list), out)
	}
	a, b, c := list[0].Text("uuid"), list[1].Text("uuid"), list[2].Text("uuid")
	for what, ok := range map[string]bool{
		"parent of b": list[1].Text("parentUuid") == a, "parent of c": list[2].Text("parentUuid") == b, "source of c": list[2].Text("sourceToolAssistantUUID") == b,
		"leaf": list[3].Text("leafUuid") == c, "session": list[0].Text("sessionId") == "new", "origin": list[1].Object("forkedFrom").Text("messageUuid") == "b" && list[1].Object("forkedFrom").Text("sessionId") == "old",
		"form": len(a) == 36 && a != b && b != c && a != "a",
	} {
		if !ok {
			t.Errorf("%s differs:\n%s", what, out)
		}
	}
	for _, w := range []claude.Transcript{{}, {Session: "a", From: "a", Lines: raw}, {Session: "a/b", From: "old", Lines: raw}, {Session: "new", From: "old", Lines: raw[2:5]}} {
		if out, err := w.Append([]byte("before")); err == nil || string(out) != "before" {
			t.Errorf("%q from %q: %q, %v", w.Session, w.From, out, err)
		}
	}
}

// The project of a session's id becomes a folder only if it is one valid name.
func TestWriteName(t *testing.T) {
	t.Run("B-05 names of projects", func(t *testing.T) {
		w := claude.Transcript{Session: "5c0375b4-57a5-4f26-b12d-0000000000aa"}
		for _, project := range []string{"", ".", "..", "...", ". .", "../x", "x/..", "a/b", "/etc", `a\b`, `..\x`, "a\x00b", "a\nb", "C:x", strings.Repeat("p", 256)} {
			if name, err := w.Name(project); err == nil {
				t.Errorf("the folder of project %q is %q", project, name)
			}
		}
		for _, project := range []string{"-srv-shop", "C--Users-ada-shop", "..x", "x..y", "Ünï"} {
			if name, err := w.Name(project); err != nil || name != project+"/"+w.Session+".jsonl" {
				t.Errorf("the folder of project %q is %q, error %v", project, name, err)
			}
		}
		for _, session := range []string{"", "../x", "a/b", "a\x00", `a\b`} {
			if name, err := (claude.Transcript{Session: session}).Name("-srv"); err == nil {
				t.Errorf("the file of session %q is %q", session, name)
			}
		}
	})
}
