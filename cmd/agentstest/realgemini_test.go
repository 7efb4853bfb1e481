package agentstest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

func isChat(name string) bool {
	return strings.Contains(name, "/chats/") && strings.HasSuffix(name, ".jsonl")
}

// An editor uses an agent by the Agent Client Protocol.
type editor struct{ *talker }

// call calls a method, grants the agent's requests meanwhile, and returns the result.
func (e *editor) call(method string, params object) json.RawMessage {
	e.t.Helper()
	e.last++
	e.send(object{"jsonrpc": "2.0", "id": e.last, "method": method, "params": params})
	for {
		m := e.wait(method, func(message) bool { return true })
		switch {
		case m.Method == "" && string(m.ID) == fmt.Sprint(e.last):
			if m.Error != nil {
				e.t.Fatalf("%s: %s", method, m.Error)
			}
			return m.Result
		case m.Method == "session/request_permission":
			first := parsed[struct{ Options []struct{ OptionID string } }](e.t, string(m.Params)).Options[0].OptionID
			e.send(object{"jsonrpc": "2.0", "id": m.ID, "result": object{"outcome": object{"outcome": "selected", "optionId": first}}})
		}
	}
}

func (e *editor) initialize() {
	e.t.Helper()
	files := object{"readTextFile": false, "writeTextFile": false}
	e.call("initialize", object{"protocolVersion": 1, "clientCapabilities": object{"fs": files, "terminal": false}})
}

// geminiHome writes a configuration for a model, and returns the folder of Gemini CLI's sessions.
func (m *machine) geminiHome(model *model) string {
	m.write(".gemini/settings.json", `{"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": false},
		"general": {"disableAutoUpdate": true, "enableAutoUpdate": false}, "telemetry": {"enabled": false}}`)
	m.write(".gemini/tmp/.keep", "")
	m.env = append(m.env, "GEMINI_API_KEY=none", "GOOGLE_GEMINI_BASE_URL="+model.url, "GEMINI_CLI_TRUST_WORKSPACE=true")
	return filepath.Join(m.home, ".gemini", "tmp")
}

// geminiResult is the last line of Gemini's stream.
type geminiResult struct {
	Type  string
	ID    string `json:"session_id"`
	Stats struct {
		Total  int64 `json:"total_tokens"`
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
		Cached int64
	}
}

// tokens excludes thoughts, which only the total counts.
func (g geminiResult) tokens() tokens {
	thought := g.Stats.Total - g.Stats.Input - g.Stats.Output
	return tokens{Input: g.Stats.Input - g.Stats.Cached, CacheRead: g.Stats.Cached, Output: g.Stats.Output + thought, Reasoning: thought}
}

// gemini runs Gemini CLI, and returns the usage that it reports, and its session.
func (m *machine) gemini(gemini string, args ...string) (tokens, string) {
	m.t.Helper()
	out := m.run(gemini, append([]string{"--model", "gemini-2.5-flash", "--output-format", "stream-json"}, args...)...)
	session, list := "", parsedLines[geminiResult](m.t, out)
	for _, line := range list {
		session += line.ID
	}
	if len(list) == 0 || list[len(list)-1].Type != "result" || session == "" {
		m.t.Fatalf("gemini printed no result:\n%s", out)
	}
	return list[len(list)-1].tokens(), session
}

// chatted lists the speakers and texts of a session.
func (m *machine) chatted(session string) (list []string) {
	m.t.Helper()
	for _, turn := range m.main(session, 0) {
		said := parsed[struct {
			Type    string
			Content json.RawMessage
		}](m.t, string(turn.Turn))
		text, blocks := "", []struct{ Text string }{}
		if json.Unmarshal(said.Content, &text) != nil && json.Unmarshal(said.Content, &blocks) == nil {
			for _, b := range blocks {
				text += b.Text
			}
		}
		who := map[string]string{"user": "user", "gemini": "assistant"}[said.Type]
		if text != "" && who != "" && !strings.HasPrefix(text, "<session_context>") {
			list = append(list, who+": "+text)
		}
	}
	return list
}

// A watch records a session of Gemini CLI: a run, and another one that resumes the session.
func TestGemini(t *testing.T) {
	gemini := installed(t, "gemini-0.61", "gemini")
	m := newMachine(t)
	model := newModel(t)
	root := m.geminiHome(model)
	stop := m.watch("gemini")
	took, session := m.gemini(gemini, "--prompt", "what is here")
	again, same := m.gemini(gemini, "--resume", "latest", "--prompt", "and now")
	if session != same {
		t.Fatalf("got session %s, want %s", same, session)
	}
	m.caughtUp(root, isChat)
	stop()

	c := m.compare("gemini", "gemini", root, isChat)
	c.lines()
	c.bytes()
	c.lag()
	want := took.plus(again)
	if got := m.cost("gemini/" + session); got.Spent.Tokens != want {
		t.Errorf("%s: got %+v, want %+v", session, got.Spent, want)
	}
	m.same(session, m.chatted("gemini/"+session), append(model.saying(), "assistant: "+sentence(model.requests.Load())))
}

// The output of Gemini CLI is recorded byte for byte, between tally's lines about the command. The cost is the one
// that Gemini reports.
func TestGeminiStream(t *testing.T) {
	gemini := installed(t, "gemini-0.61", "gemini")
	m := newMachine(t)
	m.geminiHome(newModel(t))
	out := m.run(tally, m.exec(gemini, "--model", "gemini-2.5-flash", "--output-format", "stream-json", "--prompt", "what is here")...)
	said := parsedLines[geminiResult](t, out)
	session := "exec/gemini/" + said[0].ID
	m.printed(session, out)
	var shown []string
	for _, turn := range m.main(session, 0) {
		line := parsed[struct{ Type, Role, Content string }](t, string(turn.Turn))
		if line.Type == "message" {
			shown = append(shown, line.Role+": "+line.Content)
		}
	}
	m.same("what "+session+" shows", shown, []string{"user: what is here", "assistant: The answer is number 2."})
	got, want := m.cost(session).Spent.Tokens, said[len(said)-1].tokens()
	if got != want {
		t.Errorf("%s: got %+v, want %+v", session, got, want)
	}
}

// The whole exchange between an editor and Gemini CLI is recorded, with its speakers.
func TestGeminiACP(t *testing.T) {
	gemini := installed(t, "gemini-0.61", "gemini")
	m := newMachine(t)
	m.geminiHome(newModel(t))
	e := &editor{m.talk(tally, m.exec(gemini, "--acp")...)}
	e.initialize()
	id := parsed[struct{ SessionID string }](t, string(e.call("session/new", object{"cwd": m.work, "mcpServers": []any{}}))).SessionID
	result := e.call("session/prompt", object{"sessionId": id, "prompt": []any{object{"type": "text", "text": "what is here"}}})
	e.close()

	var fromEditor, fromAgent []string
	for _, line := range m.recordedLines("acp/") {
		said := parsed[struct {
			ToAgent bool
			Message json.RawMessage
		}](t, line)
		if said.ToAgent {
			fromEditor = append(fromEditor, string(said.Message))
		} else {
			fromAgent = append(fromAgent, string(said.Message))
		}
	}
	m.same("what the editor said", fromEditor, e.sent)
	m.same("what the agent said", fromAgent, e.came)
	session := "acp/gemini-cli/" + id
	main := m.main(session, 0)
	if len(main) != 2 || !strings.Contains(string(main[0].Turn), `"what is here"`) || !strings.Contains(string(main[1].Turn), "The answer is number ") {
		t.Errorf("%s: got %+v", session, main)
	}
	quota := parsed[struct {
		Meta struct {
			Quota struct {
				Count struct {
					Input  int64 `json:"input_tokens"`
					Output int64 `json:"output_tokens"`
				} `json:"token_count"`
			}
		} `json:"_meta"`
	}](t, string(result)).Meta.Quota.Count
	if got := m.cost(session).Spent.Tokens; got != (tokens{Input: quota.Input, Output: quota.Output}) {
		t.Errorf("%s: got %+v, want %+v", session, got, quota)
	}
}
