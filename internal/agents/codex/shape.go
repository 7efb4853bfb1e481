package codex

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/tallylog/tally/internal/agents/shapes"
)

// The shape of Codex CLI: a line of a rollout, {timestamp, type, payload}. Items of the model's conversation are
// items of OpenAI's Responses. Events for the screen repeat them.

// Line is the shape of a line.
var Line = shapes.Shape{Name: agentName, Is: func(o *shapes.Object) bool { return isRecord(o.Members) }, Read: readLine, Kept: true}

func readLine(r *shapes.Reading, o *shapes.Object) {
	r.By(agentName)
	kind, raw := o.Word("type"), o.Take("payload")
	p, _ := shapes.Open("payload", raw)
	switch kind {
	case itemLine:
		readItem(r, p, raw)
	case eventLine:
		readEvent(r, p, raw)
	case compactedLine:
		r.Add(shapes.Part{Role: "system", Name: kind, Text: p.Text("message")})
		r.Leave("system", p)
	default:
		r.Keep(kind, raw)
	}
	r.Leave(kind, o)
}

// readItem reads an item of the model's conversation.
func readItem(r *shapes.Reading, p *shapes.Object, raw json.RawMessage) {
	start := len(r.Turn.Parts)
	space := p.Word("namespace")
	switch {
	case shapes.Item.Is(p):
		p.Take("namespace")
		shapes.Item.Read(r, p)
	case shapes.Message.Is(p):
		role := shapes.RoleOf(p.Text("role"))
		if role == "user" && isInjected(p) {
			role = "system"
		}
		shapes.ReadSpoken(r, role, p)
		r.Separate(start, "system")
	default:
		r.Keep(p.Word("type"), raw)
		return
	}
	if space != "" && start < len(r.Turn.Parts) {
		r.Turn.Parts[start].Name = space + "/" + r.Turn.Parts[start].Name
	}
}

// readEvent reads an event for the screen.
func readEvent(r *shapes.Reading, p *shapes.Object, raw json.RawMessage) {
	switch kind := p.Word("type"); kind {
	case "user_message":
		r.Add(shapes.Part{Role: "user", Text: p.Text("message")})
		r.Separate(len(r.Turn.Parts)-1, "system")
	case "agent_message":
		r.Add(shapes.Part{Role: "assistant", Text: p.Text("message")})
	case "agent_reasoning", "agent_reasoning_raw_content":
		r.Add(shapes.Part{Kind: shapes.Reasoning, Role: "assistant", Text: p.Text("text")})
	case "task_complete", "turn_complete", "turn_aborted":
		r.Add(shapes.Part{Role: "system", Name: kind, Text: p.Text("last_agent_message", "reason")})
	case "item_completed":
		readShown(r, p)
	default:
		r.Keep(kind, raw)
		return
	}
	r.Leave(p.Word("type"), p)
}

// readShown reads a complete item of the screen.
func readShown(r *shapes.Reading, p *shapes.Object) {
	item, ok := shapes.Open("item", p.Peek("item"))
	if !ok {
		return
	}
	raw := p.Take("item")
	switch kind := item.Word("type"); kind {
	case "UserMessage":
		start := len(r.Turn.Parts)
		shapes.ReadElements(r, "user", item.List("content"), shapes.ReadText)
		r.Separate(start, "system")
	case "AgentMessage":
		shapes.ReadElements(r, "assistant", item.List("content"), shapes.ReadText)
	case "Plan":
		r.Add(shapes.Part{Role: "assistant", Text: item.Text("text")})
	default:
		r.Keep(kind, raw)
		return
	}
	r.Leave(item.Word("type"), item)
}

// injections are beginnings of texts that Codex puts into the user's messages. Newer versions mark such messages;
// these are for older ones.
var injections = []string{
	"<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<permissions instructions>", "<skill>",
	"<turn_aborted>", "<subagent_notification>",
}

// isInjected reports whether Codex wrote a message of the user, to send context and instructions to the model.
func isInjected(p *shapes.Object) bool {
	if meta, ok := shapes.Open("", p.Peek("internal_chat_message_metadata_passthrough")); ok {
		if kinds, ok := meta.Elements("content_item_kinds"); ok && len(kinds) > 0 {
			return !slices.ContainsFunc(kinds, func(raw json.RawMessage) bool {
				kind := shapes.TextOf(raw)
				return kind == "unknown" || strings.HasPrefix(kind, "user.")
			})
		}
	}
	list, _ := p.Elements("content")
	if len(list) == 0 {
		return false
	}
	first, ok := shapes.Open("", list[0])
	return ok && slices.ContainsFunc(injections, func(begin string) bool { return strings.HasPrefix(first.Word("text"), begin) })
}
