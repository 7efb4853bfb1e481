package ingest

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/internal/agents/acp"
)

// geminiTalk is a session of Gemini CLI: messages, newer versions of them, rewinds, replaced lists, resumes.
func geminiTalk(t *rapid.T) (name, content string) {
	k := &agentTalk{t: t}
	const head = `{"sessionId":"5a5a5a5a-0000-4000-8000-000000000000","projectHash":"00","startTime":"2026-01-02T03:04:05.006Z","lastUpdated":"2026-01-02T03:04:05.006Z","kind":"main"}`
	k.line(head)
	ids := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
	message := func() string {
		id, text := ids.Draw(t, "id"), rapid.SampledFrom([]string{"1", "2"}).Draw(t, "text")
		if rapid.Bool().Draw(t, "user") {
			return fmt.Sprintf(`{"id":%q,"timestamp":%q,"type":"user","content":[{"text":%q}]}`, id, k.at(), text)
		}
		return fmt.Sprintf(`{"id":%q,"timestamp":%q,"type":"gemini","content":%q,"tokens":{"input":9,"output":5,"cached":2,"thoughts":3,"tool":1,"total":18},"model":"m"}`, id, k.at(), text)
	}
	for range rapid.IntRange(1, 10).Draw(t, "lines") {
		k.n++
		switch rapid.IntRange(0, 7).Draw(t, "line") {
		case 0:
			k.line(fmt.Sprintf(`{"$rewindTo":%q}`, ids.Draw(t, "to")))
		case 1:
			var list []string
			for range rapid.IntRange(0, 3).Draw(t, "messages") {
				list = append(list, message())
			}
			k.line(`{"$set":{"messages":[` + strings.Join(list, ",") + `]}}`)
		case 2:
			k.line(head)
		default:
			k.line(message())
		}
	}
	return "pier/chats/session-2026-01-02T03-04-5a5a5a5a.jsonl", k.b.String()
}

// piTalk is a tree in the format of pi.
func piTalk(t *rapid.T) (name, content string) {
	k := &agentTalk{t: t}
	k.line(`{"type":"session","version":3,"id":"s1","timestamp":"2026-01-02T03:04:05.006Z","cwd":"/pier"}`)
	ids, leaf := []string{""}, ""
	for i := range rapid.IntRange(1, 10).Draw(t, "entries") {
		k.n++
		parent := leaf
		if rapid.IntRange(0, 3).Draw(t, "branch") == 0 {
			parent = rapid.SampledFrom(ids).Draw(t, "parent")
		}
		leaf = fmt.Sprintf("%08x", i)
		ids = append(ids, leaf)
		message := `{"role":"user","content":"Go on"}`
		if rapid.Bool().Draw(t, "answers") {
			message = `{"role":"assistant","content":[],"model":"m","usage":{"input":3,"output":2,"cacheRead":1,"cacheWrite":0,"cost":{"total":0.0001}},"stopReason":"stop","responseId":"r-` + leaf + `"}`
		}
		ref := `"` + parent + `"`
		if parent == "" {
			ref = "null"
		}
		k.line(fmt.Sprintf(`{"type":"message","id":%q,"parentId":%s,"timestamp":%q,"message":%s}`, leaf, ref, k.at(), message))
	}
	return "--pier--/2026-01-02T03-04-05-006Z_s1.jsonl", k.b.String()
}

// acpTalk is a connection with two sessions whose lines alternate at random.
func acpTalk(t *rapid.T) (name, content string) {
	k := &agentTalk{t: t}
	ids := 0
	say := func(toAgent bool, format string, args ...any) {
		k.line(string(acp.Record(toAgent, fmt.Appendf(nil, format, args...))))
	}
	ask := func(method, params string) int {
		ids++
		say(true, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, ids, method, params)
		return ids
	}
	say(false, `{"jsonrpc":"2.0","id":%d,"result":{"protocolVersion":1,"agentInfo":{"name":"gull","version":"7"}}}`, ask("initialize", `{"protocolVersion":1}`))
	sessions := []string{"s1", "s2"}
	for _, s := range sessions {
		say(false, `{"jsonrpc":"2.0","id":%d,"result":{"sessionId":%q}}`, ask("session/new", `{"cwd":"/pier","mcpServers":[]}`), s)
	}
	open := make(map[string]int)
	for i := range rapid.IntRange(1, 12).Draw(t, "lines") {
		s := rapid.SampledFrom(sessions).Draw(t, "session")
		switch {
		case open[s] == 0:
			open[s] = ask("session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":"Go on"}]}`, s))
		case rapid.IntRange(0, 3).Draw(t, "end") == 0:
			say(false, `{"jsonrpc":"2.0","id":%d,"result":{"stopReason":"end_turn","usage":{"inputTokens":10,"outputTokens":5,"totalTokens":15}}}`, open[s])
			delete(open, s)
		default:
			say(false, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%d;"}}}}`, s, i)
		}
	}
	return "c1.acp.jsonl", k.b.String()
}
