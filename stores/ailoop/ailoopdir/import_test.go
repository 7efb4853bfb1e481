package ailoopdir_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/stores/ailoop"
	"github.com/tallylog/tally/stores/ailoop/ailoopdir"
)

const (
	message1 = `{"User":{"blocks":[{"Text":{"text":"Grüße <b> & \u2028 1\\n"}}]}}`
	message2 = `{"Assistant":{"blocks":[{"Reasoning":{"text":"hm","signature":null}},{"ToolCall":{"id":"c","name":"f","args":{"z":1.0,"a":1e-7,"m":1e21,"n":18446744073709551615,"e":{},"l":[]}}}]}}`
	message3 = `{"User":{"blocks":[{"ToolResult":{"call_id":"c","content":{"blocks":[{"type":"text","text":"no"}],"is_error":true}}}]}}`
)

// pretty returns a snapshot in the original's format.
func pretty(t testing.TB, pinned string, messages ...string) string {
	t.Helper()
	compact := `{"version":1,"messages":[` + strings.Join(messages, ",") + `],"pinned":[` + pinned + `]}`
	return layouttest.Indent(compact)
}

func TestByteExact(t *testing.T) {
	whole := pretty(t, "true,false,false", message1, message2, message3)
	for name, content := range map[string]string{
		"as the original writes it": whole,
		"nothing was said":          pretty(t, ""),
		"with a newline":            whole + "\n",
		"with a carriage return":    whole + "\r\n",
		"with a mark":               "\ufeff" + whole,
		"compact":                   `{"version":1,"messages":[` + message2 + `],"pinned":[false]}`,
		"by four spaces":            strings.ReplaceAll(whole, "  ", "    "),
		"by tabs":                   strings.ReplaceAll(whole, "  ", "\t"),
		"with unknown members":      strings.TrimSuffix(whole, "\n}") + ",\n  \"tokens\": {\n    \"used\": 1.50\n  }\n}",
	} {
		t.Run("H-08 "+name, func(t *testing.T) {
			st, path := openStore(t), writeFile(t, "chat.json", content)
			if r := mustBeClean(t, st, path); r.Files != (layouts.Files{Exact: 1}) || r.Added != 1 || r.Sessions != 1 {
				t.Errorf("the report is %+v", r)
			}
			wantFile(t, st, "chat.json", content)
			if r := mustBeClean(t, st, path); r.Events != 0 || r.Unchanged != 1 {
				t.Errorf("the report of a second import is %+v", r)
			}
		})
	}
	for name, content := range map[string]string{
		"an odd layout":   strings.Replace(whole, ": 1", ":1", 1),
		"another order":   `{"pinned":[],"version":1,"messages":[]}`,
		"blank lines":     "\n\n" + whole,
		"unknown between": strings.Replace(whole, `"messages"`, `"x": 1, "messages"`, 1),
		"old texts":       pretty(t, "false", `{"User":{"blocks":[{"Text":"bare"},{"ToolResult":{"call_id":"c","content":{"Error":"no"}}},{"ToolResult":{"content":{"Text":"ok"},"call_id":"d"}}]}}`),
	} {
		t.Run("H-08 kept whole: "+name, func(t *testing.T) {
			st, path := openStore(t), writeFile(t, "chat.json", content)
			if r := mustBeClean(t, st, path); r.Files != (layouts.Files{Whole: 1}) {
				t.Errorf("the report is %+v", r)
			}
			wantFile(t, st, "chat.json", content)
			if r := mustBeClean(t, st, path); r.Events != 0 || r.Unchanged != 1 {
				t.Errorf("the report of a second import is %+v", r)
			}
		})
	}
}

// Messages of older writers have today's shape in the session, so that every reader understands them.
func TestOldShapes(t *testing.T) {
	st := openStore(t)
	path := writeFile(t, "old.json", pretty(t, "false", `{"User":{"blocks":[{"Text":"bare"},{"ToolResult":{"call_id":"c","content":{"Error":"no"}}}]}}`))
	if r := mustBeClean(t, st, path); len(r.Notes) != 1 {
		t.Errorf("the report is %+v", r)
	}
	h := ailoop.Of(st, "old")
	s, found, err := h.Load(t.Context())
	if err != nil || !found {
		t.Fatal(err)
	}
	if want := `{"User":{"blocks":[{"Text":{"text":"bare"}},{"ToolResult":{"call_id":"c","content":{"blocks":[{"type":"text","text":"no"}],"is_error":true}}}]}}`; string(s.Message(0).Raw()) != want {
		t.Errorf("got %s", s.Message(0).Raw())
	}
	if err := h.Save(t.Context(), s.Append(ailoop.AssistantMessage("new"))); err != nil {
		t.Fatal(err)
	}
	files, r := exported(t, st)
	if len(r.Notes) != 1 || !strings.Contains(files["old.json"], `"text": "bare"`) || !strings.Contains(files["old.json"], `"new"`) {
		t.Errorf("%+v %s", r, files["old.json"])
	}
}

// A file that is not a snapshot is reported with its name, and nothing of it is imported.
func TestMalformed(t *testing.T) {
	for _, c := range []struct {
		content, reason string
		line            int
	}{
		{`{"version":2,"messages":[],"pinned":[]}`, "unsupported snapshot version 2 (expected 1)", 0},
		{`{"version":1,"messages":[],"pinned":[true]}`, "length mismatch: 0 messages, 1 pins", 0},
		{pretty(t, "false", message1)[:90], "column", 8},
		{`{"version":1,"messages":[{"System":{}}],"pinned":[true]}`, `messages[0]: unknown variant "System"`, 0},
		{"", "column 1", 1},
	} {
		st, path := openStore(t), writeFile(t, "bad.json", c.content)
		r := mustImport(t, st, path, layouts.ImportOptions{})
		if len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Reason, c.reason) || r.Problems[0].File != "bad.json" || r.Problems[0].Line != c.line || r.Events != 0 {
			t.Errorf("%.40q: got %+v", c.content, r.Problems)
		}
		if head, err := st.Log.Head(t.Context()); err != nil || head != 0 {
			t.Errorf("head %v, %v", head, err)
		}
	}
	if _, err := (ailoopdir.Layout{}).Import(t.Context(), openStore(t), t.TempDir(), layouts.ImportOptions{}); !errors.Is(err, layouts.ErrUnknownLayout) {
		t.Errorf("got the error %v", err)
	}
}

func TestSniff(t *testing.T) {
	for content, want := range map[string]bool{
		pretty(t, "false", message1):            true,
		pretty(t, "false", message1)[:60]:       true,
		`{"version":7,"messages":0,"pinned":0}`: true,
		`{"version":1,"messages":[]}`:           false,
		`[]`:                                    false,
		``:                                      false,
		`{"version":"1.2","id":`:                false,
	} {
		if have := (ailoopdir.Layout{}).Sniff(writeFile(t, "x", content)); have != want {
			t.Errorf("%.40q: got %v", content, have)
		}
	}
	if (ailoopdir.Layout{}).Sniff(t.TempDir()) || (ailoopdir.Layout{}).Sniff("/no/such/file") {
		t.Error("a folder was accepted as a snapshot")
	}
}

// If a file grew, an import adds its new messages. Other changes are replacements that repeat no kept messages. If a
// file becomes exact, it is not kept whole any more.
func TestAgain(t *testing.T) {
	st, path := openStore(t), writeFile(t, "chat.json", pretty(t, "false", message1))
	mustBeClean(t, st, path)
	for _, step := range []struct {
		content string
		events  int
	}{
		{pretty(t, "false,false,true", message1, message2, message3), 2},
		{pretty(t, "true,false,true", message1, message2, message3), 1},
		{pretty(t, "true,true", message1, message3), 1},
		{" " + pretty(t, "true,true", message1, message3), 2}, // the document, and the fact that it holds the file
		{pretty(t, "true,true", message1, message3), 2},
		{pretty(t, ""), 1},
	} {
		rewrite(t, path, step.content)
		dry := mustImport(t, st, path, layouts.ImportOptions{DryRun: true})
		r := mustBeClean(t, st, path)
		if r.Events != step.events || r.Changed != 1 || dry.Events != r.Events {
			t.Errorf("the report is %+v, that of the dry run has %d events, want %d", r, dry.Events, step.events)
		}
		wantFile(t, st, "chat.json", step.content)
	}
}

// A session that came from elsewhere or was changed since is refused, unless it is merged.
func TestRefused(t *testing.T) {
	st := openStore(t)
	path := writeFile(t, "chat.json", pretty(t, "false", message1))
	if err := ailoop.Of(st, "chat").Save(t.Context(), ailoop.Snapshot{}.Append(ailoop.UserMessage("live"))); err != nil {
		t.Fatal(err)
	}
	refused := func(path string) {
		t.Helper()
		if r := mustImport(t, st, path, layouts.ImportOptions{}); len(r.Refused) != 1 || r.Refused[0] != "history/chat" || r.Events != 0 || !strings.Contains(r.Problems[0].Reason, "--merge") {
			t.Errorf("the report is %+v", r)
		}
	}
	refused(path)
	if r := mustImport(t, st, path, layouts.ImportOptions{Merge: true}); r.Changed != 1 || len(r.Problems) != 0 {
		t.Errorf("the report is %+v", r)
	}
	wantFile(t, st, "chat.json", pretty(t, "false", message1))
	other := writeFile(t, "chat.json", pretty(t, "false", message2))
	refused(other)
	if r := mustBeClean(t, st, writeFile(t, "chat.json", pretty(t, "false", message1))); r.Unchanged != 1 {
		t.Errorf("import an equal file from another folder: %+v", r)
	}

	h := ailoop.Of(st, "chat")
	s, _, err := h.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Save(t.Context(), s.Append(ailoop.AssistantMessage("live"))); err != nil {
		t.Fatal(err)
	}
	refused(path) // the file lacks the newest messages
	data, err := s.Append(ailoop.AssistantMessage("live"), ailoop.UserMessage("in the file")).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	rewrite(t, path, string(data))
	if r := mustBeClean(t, st, path); r.Changed != 1 || sessionOf(t, st, "history/chat") != 3 {
		t.Errorf("the report is %+v", r)
	}
}

// Ids with odd bytes, and names without .json, are written under their old name.
func TestNames(t *testing.T) {
	for name, id := range map[string]string{
		"chat.json": "history/chat", "a=2Fb.json": "history/a/b", "snapshot": "history/snapshot", "x.JSON": "history/x.JSON", ".json": "history/.json",
		"two words.json": "history/two words", "CON.json": "history/CON", "a:b.json": "history/a:b", "Grüße.json": "history/Grüße",
	} {
		st, content := openStore(t), pretty(t, "false", message1)
		mustBeClean(t, st, writeFile(t, name, content))
		if sessionOf(t, st, id) != 1 {
			t.Errorf("got %s", name)
		}
		wantFile(t, st, name, content)
	}
	st := openStore(t)
	for _, id := range []string{"../up", "a/b", "..", "c:d"} {
		if err := ailoop.Of(st, id).Save(t.Context(), ailoop.Snapshot{}); err != nil {
			t.Fatal(err)
		}
	}
	files, r := exported(t, st)
	if len(files) != 4 || len(r.Problems) != 0 {
		t.Errorf("%v %+v", files, r)
	}
	for name := range files {
		if sub, ok := (ailoopdir.Layout{}).Subject(t.Context(), st, "", name); !ok || sessionOf(t, st, sub.ID) != 0 {
			t.Errorf("%s: %v %v", name, sub, ok)
		}
	}
}

// A session whose turns are not messages is reported and not exported.
func TestExportOfOthers(t *testing.T) {
	st := openStore(t)
	h := ailoop.Of(st, "chat")
	if err := h.Save(t.Context(), ailoop.Snapshot{}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Session().AppendTurns(context.Background(), events.MainThread, []byte(`{"role":"user"}`)); err != nil {
		t.Fatal(err)
	}
	files, r := exported(t, st)
	if len(files) != 0 || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Reason, "not a message") {
		t.Errorf("%v %+v", files, r)
	}
}
