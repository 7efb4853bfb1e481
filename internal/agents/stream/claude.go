package stream

import (
	"cmp"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/claude"
	"github.com/tallylog/tally/internal/rawjson"
)

// claudeKind is claude -p --output-format stream-json --verbose, the input of the Agent SDK. It repeats the prompt
// only on request.
var claudeKind = outputFormat{name: "claude", session: "session_id", silent: true, line: (*fold).claudeLine,
	is: func(program string, args []string) bool {
		return program == "claude" && hasFlag(args, "stream-json", "--output-format")
	}}

func (f *fold) claudeLine(s *saying) {
	switch s.kind {
	case "system":
		if s.Text("subtype") == "init" {
			f.about(s, s.Text("cwd"))
			f.start(s, "turn")
			f.speaks(s, s.Text("model"))
		}
	case "user", "assistant":
		f.claudeMessage(s)
	case "stream_event":
		f.claudePiece(s)
	case "result":
		f.claudeResult(s)
	}
}

// claudeMessage reads a message of the agent or of a sub-agent.
func (f *fold) claudeMessage(s *saying) {
	f.start(s, "turn")
	s.main(s.Text("uuid"))
	if call := s.Text("parent_tool_use_id"); call != "" && token(call) {
		s.Thread = "agent/" + call
	}
	if s.kind == "user" {
		return
	}
	m := s.Object("message")
	if s.Thread == agents.Main {
		f.done()
		f.speaks(s, m.Text("model"))
	}
	raw, _ := m.Get("usage")
	f.spend(s, "", cmp.Or(cut(m.Text("model")), "unknown"), f.claudeResponse(m.Text("id"), s.Text("uuid")), claude.Tokens(m.Object("usage")), clone(raw))
}

// claudeResponse returns the id of a response, the same as in the files of Claude Code. The messages of one response
// follow each other.
func (f *fold) claudeResponse(id, uuid string) string {
	if id != f.answer.id {
		f.answer = answer{id, agents.Response(id, uuid)}
	}
	return f.answer.response
}

// claudePiece reads a piece of a text; the whole text comes later.
func (f *fold) claudePiece(s *saying) {
	event := s.Object("event")
	delta := event.Object("delta")
	if event.Text("type") == "content_block_delta" && delta.Text("type") == "text_delta" && s.Text("parent_tool_use_id") == "" {
		f.piece(s, delta.Text("text"), "")
	}
}

// claudeResult reads the end of a run. Its total cost is not added, because the costs of the responses are counted
// already.
func (f *fold) claudeResult(s *saying) {
	usage := rawjson.Members{}
	for _, name := range []string{"usage", "modelUsage", "total_cost_usd"} {
		if raw, ok := s.Get(name); ok {
			usage = append(usage, rawjson.Member{Name: name, Value: clone(raw)})
		}
	}
	var raw events.Raw
	if len(usage) > 0 {
		raw = agents.Spell(usage)
	}
	failed, _ := s.Get("is_error")
	switch sub := s.Text("subtype"); {
	case sub == "success" && string(failed) != "true":
		f.finish(s, "completed", events.Raw("{}"), raw)
	case sub != "" && sub != "success" && sub != "error_during_execution" && token(sub):
		s.main("")
		f.finish(s, "stopped:"+sub, failure(s.Text("result")), raw)
	default:
		s.main("")
		f.finish(s, "failed", failure(s.Text("result")), raw)
	}
}
