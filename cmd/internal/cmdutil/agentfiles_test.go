package cmdutil

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	line    = `{"type":"user","sessionId":"s","uuid":"u"}` + "\n"
	rollout = "rollout-2026-01-02T03-04-05-019b7c5e-0000-7000-8000-0000000000c1.jsonl"
	piFile  = "2026-01-02T06-00-00-000Z_019b7c6e-0000-7000-8000-0000000000d1.jsonl"
)

// A file's name below the root is the same wherever the root lies and however it is called.
func TestBelow(t *testing.T) {
	for path, want := range map[string][2]string{
		"/x/projects/-pier/s.jsonl":                                 {"claude", "-pier/s.jsonl"},
		"/x/y/-pier/s/subagents/agent-1.jsonl":                      {"claude", "-pier/s/subagents/agent-1.jsonl"},
		"/x/-pier/s/subagents/deep/er/agent-1.jsonl":                {"claude", "-pier/s/subagents/deep/er/agent-1.jsonl"},
		"/x/.codex/sessions/2026/01/02/" + rollout:                  {"codex", "sessions/2026/01/02/" + rollout},
		"/2024/sessions/2026/01/02/" + rollout:                      {"codex", "sessions/2026/01/02/" + rollout},
		"/x/archived_sessions/" + rollout + ".zst":                  {"codex", "archived_sessions/" + rollout + ".zst"},
		"/x/2026/01/02/" + rollout:                                  {"codex", "2026/01/02/" + rollout},
		"/x/" + rollout:                                             {"codex", rollout},
		"/x/tmp/pier/chats/session-2026-01-02T05-00-0badcafe.jsonl": {"gemini", "pier/chats/session-2026-01-02T05-00-0badcafe.jsonl"},
		"/x/pier/chats/parent/child.jsonl":                          {"gemini", "pier/chats/parent/child.jsonl"},
		"/x/--home-ada--/" + piFile:                                 {"pi", "--home-ada--/" + piFile},
		"/x/" + piFile:                                              {"pi", piFile},
		"/x/y.acp.jsonl":                                            {"acp", "y.acp.jsonl"},
	} {
		a, _ := AgentNamed(want[0])
		if name, ok := a.Below(path); !ok || name != want[1] || !a.Wants(name) {
			t.Errorf("%s: %q, %v; want %q, which is wanted", path, name, ok, want[1])
		}
	}
	for _, path := range []string{"", "/", "x", "/x/y.txt", "/x/rollout.jsonl", "/chats/x.jsonl", "s.jsonl", "/a/../s.jsonl"} {
		for _, a := range Agents {
			if name, ok := a.Below(path); ok && !a.Wants(name) {
				t.Errorf("%s of %s: got %q", path, a.Name(), name)
			}
		}
	}
}

// The files of an agent are found from its own folder, from folders above and below it, and in a copy. Other files are
// not taken for them.
func TestFindAgentFiles(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	env := func(name string) string { return map[string]string{"HOME": filepath.Join(dir, "home")}[name] }
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("home/.claude/projects/-pier/s.jsonl", "{}\n") // the path is enough
	write("home/.claude/todos/x.json", "{}")
	write("home/.codex/sessions/2026/01/02/"+rollout, "{}\n")
	write("home/.pi/agent/sessions/--p--/"+piFile, "{}\n")
	write("copy/-pier/s.jsonl", "torn\n"+line)
	write("copy/-quay/s.jsonl", line)
	write("codex/archived_sessions/"+rollout, "{}\n")
	write("mixed/a/-pier/s.jsonl", line)
	write("mixed/b/"+rollout, "{}\n")
	write("other/chats/x.jsonl", `{"role":"user"}`+"\n")
	write("other/conversations/c/conversation.jsonl", `{"type":"user"}`+"\n")
	type want struct{ agent, root, below string }
	for path, w := range map[string]want{
		"home/.claude":                        {"claude", "home/.claude/projects", ""},
		"home/.claude/projects":               {"claude", "home/.claude/projects", ""},
		"home/.claude/projects/-pier":         {"claude", "home/.claude/projects", "-pier"},
		"home/.claude/projects/-pier/s.jsonl": {"claude", "home/.claude/projects", "-pier/s.jsonl"},
		"home/.codex":                         {"codex", "home/.codex", ""},
		"home/.codex/sessions/2026":           {"codex", "home/.codex", "sessions/2026"},
		"home/.pi":                            {"pi", "home/.pi/agent/sessions", ""},
		"copy":                                {"claude", "copy", ""},
		"copy/-quay":                          {"claude", "copy", "-quay"},
		"copy/-pier/s.jsonl":                  {"claude", "copy", "-pier/s.jsonl"},
		"codex":                               {"codex", "codex", ""},
		"codex/archived_sessions":             {"codex", "codex", "archived_sessions"},
		"codex/archived_sessions/" + rollout:  {"codex", "codex", "archived_sessions/" + rollout},
		"mixed/b":                             {"codex", "mixed/b", ""},
		"mixed":                               {},
		"home":                                {},
		"home/.claude/todos":                  {},
		"home/.claude/projects/-pier/x.jsonl": {}, // the file does not exist
		"other":                               {},
		"other/chats/x.jsonl":                 {},
		"other/conversations/c":               {},
	} {
		f, ok := FindAgentFiles(filepath.Join(dir, filepath.FromSlash(path)), env)
		if ok != (w != want{}) || ok && (f.Agent.Name() != w.agent || f.Root != filepath.Join(dir, filepath.FromSlash(w.root)) || f.Below != w.below) {
			t.Errorf("%s: got %+v, %v; want %+v", path, f, ok, w)
		}
	}
	if f, ok := FindAgentFiles(filepath.Join(dir, "other", "chats", "x.jsonl"), env, Agents[0]); !ok || f.Below != "chats/x.jsonl" {
		t.Errorf("a file of Claude Code by --format: got %+v", f)
	}
	if err := os.Symlink(filepath.Join(dir, "home", ".claude"), filepath.Join(dir, "link")); err == nil {
		if f, ok := FindAgentFiles(filepath.Join(dir, "link"), env); !ok || f.Root != filepath.Join(dir, "home", ".claude", "projects") {
			t.Errorf("through a link: got %+v, %v", f, ok)
		}
	}
}

// A file belongs to the agent of its lines, whatever its name and folder. A file of an unknown agent is reported as
// unknown.
func TestRecognised(t *testing.T) {
	const (
		meta     = `{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":"019b7c5e-0000-7000-8000-0000000000c1"}}` + "\n"
		said     = `{"timestamp":"2026-01-02T03:04:06.000Z","type":"response_item","payload":{"type":"message","role":"user","content":[]}}` + "\n"
		header   = `{"type":"session","version":3,"id":"019b7c6e","timestamp":"2026-01-02T06:00:00.000Z","cwd":"/pier"}` + "\n"
		entry    = `{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"x"}}` + "\n"
		chat     = `{"sessionId":"0badcafe-1","projectHash":"00","startTime":"2026-01-02T05:00:00.000Z"}` + "\n"
		snapshot = `{"type":"file-history-snapshot","messageId":"m","snapshot":{}}` + "\n"
	)
	const chatFile = "session-2026-01-02T05-00-0badcafe"
	for _, c := range []struct{ name, content, agent, session, stem string }{
		{"copy.jsonl", meta + said, "codex", "codex/019b7c5e-0000-7000-8000-0000000000c1", "019b7c5e-0000-7000-8000-0000000000c1"},
		{"agent-x.jsonl", meta, "codex", "codex/019b7c5e-0000-7000-8000-0000000000c1", "019b7c5e-0000-7000-8000-0000000000c1"},
		{"tail.jsonl", said, "codex", "codex/tail", "tail"},
		{"x.codex.jsonl", meta, "codex", "codex/019b7c5e-0000-7000-8000-0000000000c1", "019b7c5e-0000-7000-8000-0000000000c1"},
		{"019b7c6e.jsonl", header + entry, "pi", "pi/019b7c6e", "2026-01-02T06-00-00-000Z_019b7c6e"},
		{"chat.jsonl", chat, "gemini", "gemini/0badcafe-1", chatFile},
		{"old.json", "{\n  \"sessionId\": \"s\",\n  \"projectHash\": \"0\",\n  \"messages\": []\n}\n", "gemini", "gemini/old.json", "old.json"},
		{"a.jsonl", snapshot + line, "claude", "claude/x/a", "a"},
		{"rollout-like.jsonl", "torn\n" + line, "claude", "claude/x/rollout-like", "rollout-like"},
		{rollout, line, "claude", "claude/x/" + rollout[:len(rollout)-len(".jsonl")], rollout[:len(rollout)-len(".jsonl")]},
		{"copilot.jsonl", `{"type":"session.start","data":{"sessionId":"s"},"id":"e","timestamp":"2026-01-02T03:04:05.000Z","parentId":null}` + "\n", "", "", ""},
		{"pi-prints.jsonl", header + `{"type":"agent_start"}` + "\n", "", "", ""},
		{"codex-prints.jsonl", `{"type":"thread.started","thread_id":"019b7c5e"}` + "\n", "", "", ""},
		{"qwen.jsonl", `{"uuid":"u","sessionId":"s","type":"user","message":{"role":"user","parts":[]}}` + "\n", "", "", ""},
		{"rows.jsonl", `{"role":"user","content":"hello"}` + "\n", "", "", ""},
	} {
		t.Run("B-22 "+c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x", c.name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, place := range []string{path, filepath.Dir(path)} {
				found := SurveyAgentFiles(place, func(string) string { return "" })
				switch {
				case c.agent == "":
					if len(found.Files) > 0 || place != path && len(found.Others) != 1 {
						t.Errorf("%+v, want a file of no agent", found)
					}
					continue
				case len(found.Files) != 1 || len(found.Others) > 0:
					t.Fatalf("%+v, want one file of %s", found, c.agent)
				}
				f := found.Files[0]
				first, _, _ := strings.Cut(c.content, "\n")
				for name := range f.Names {
					is, ok := f.Only().File(name, []byte(first))
					if !ok || f.Agent.Name() != c.agent || is.Session != c.session || is.Stem != c.stem || !f.Only().Wants(name) {
						t.Errorf("%s of %s: got %+v (%v)", name, f.Agent.Name(), is, ok)
					}
				}
			}
		})
	}
}
