package app

import (
	"os"
	"path/filepath"
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
				t.Errorf("%s of %s: %q", path, a.Name(), name)
			}
		}
	}
}

// What an agent keeps is found from its own folder, from above and below it, and in a copy;
// and nothing is taken for it that is not.
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
	write("home/.claude/projects/-pier/s.jsonl", "{}\n") // the place says enough
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
		"home/.claude/projects/-pier/x.jsonl": {}, // is not there
		"other":                               {},
		"other/chats/x.jsonl":                 {},
		"other/conversations/c":               {},
	} {
		f, ok := FindAgentFiles(filepath.Join(dir, filepath.FromSlash(path)), env)
		if ok != (w != want{}) || ok && (f.Agent.Name() != w.agent || f.Root != filepath.Join(dir, filepath.FromSlash(w.root)) || f.Below != w.below) {
			t.Errorf("%s: %+v, %v; want %+v", path, f, ok, w)
		}
	}
	if f, ok := FindAgentFiles(filepath.Join(dir, "other", "chats", "x.jsonl"), env, Agents[0]); !ok || f.Below != "chats/x.jsonl" {
		t.Errorf("what is said to be Claude Code's is not taken for it: %+v", f)
	}
	if err := os.Symlink(filepath.Join(dir, "home", ".claude"), filepath.Join(dir, "link")); err == nil {
		if f, ok := FindAgentFiles(filepath.Join(dir, "link"), env); !ok || f.Root != filepath.Join(dir, "home", ".claude", "projects") {
			t.Errorf("through a link: %+v, %v", f, ok)
		}
	}
}
