package turns

import (
	"encoding/json"
	"slices"
	"strings"
)

// The shape of Codex CLI: a line of a rollout, {timestamp, type, payload}. What the model
// saw is an item of OpenAI's Responses inside; what the screen showed is an event, and
// says the same again.

func isRollout(o *object) bool {
	_, isObject := open("", o.peek("payload"))
	return isObject && o.word("timestamp") != "" && o.word("type") != ""
}

func readRollout(r *reading, o *object) {
	r.by("codex")
	kind, raw := o.word("type"), o.take("payload")
	p, _ := open("payload", raw)
	switch kind {
	case "response_item":
		readRolloutItem(r, p, raw)
	case "event_msg":
		readRolloutEvent(r, p, raw)
	case "compacted":
		r.add(Part{Role: "system", Name: kind, Text: p.text("message")})
		r.leave("system", p)
	default:
		r.keep(kind, raw)
	}
	r.leave(kind, o)
}

// readRolloutItem reads what the model saw or said.
func readRolloutItem(r *reading, p *object, raw json.RawMessage) {
	start := len(r.turn.Parts)
	space := p.word("namespace")
	switch {
	case isItem(p):
		p.take("namespace")
		readItem(r, p)
	case isMessage(p):
		role := roleOf(p.text("role"))
		if role == "user" && isInjected(p) {
			role = "system"
		}
		readSpoken(r, role, p)
		r.separate(start, "system")
	default:
		r.keep(p.word("type"), raw)
		return
	}
	if space != "" && start < len(r.turn.Parts) {
		r.turn.Parts[start].Name = space + "/" + r.turn.Parts[start].Name
	}
}

// readRolloutEvent reads what the screen showed.
func readRolloutEvent(r *reading, p *object, raw json.RawMessage) {
	switch kind := p.word("type"); kind {
	case "user_message":
		r.add(Part{Role: "user", Text: p.text("message")})
		r.separate(len(r.turn.Parts)-1, "system")
	case "agent_message":
		r.add(Part{Role: "assistant", Text: p.text("message")})
	case "agent_reasoning", "agent_reasoning_raw_content":
		r.add(Part{Kind: Reasoning, Role: "assistant", Text: p.text("text")})
	case "task_complete", "turn_complete", "turn_aborted":
		r.add(Part{Role: "system", Name: kind, Text: p.text("last_agent_message", "reason")})
	case "item_completed":
		readRolloutShown(r, p)
	default:
		r.keep(kind, raw)
		return
	}
	r.leave(p.word("type"), p)
}

// readRolloutShown reads an item of the screen that is complete.
func readRolloutShown(r *reading, p *object) {
	item, ok := open("item", p.peek("item"))
	if !ok {
		return
	}
	raw := p.take("item")
	switch kind := item.word("type"); kind {
	case "UserMessage":
		start := len(r.turn.Parts)
		readElements(r, "user", item.list("content"), readText)
		r.separate(start, "system")
	case "AgentMessage":
		readElements(r, "assistant", item.list("content"), readText)
	case "Plan":
		r.add(Part{Role: "assistant", Text: item.text("text")})
	default:
		r.keep(kind, raw)
		return
	}
	r.leave(item.word("type"), item)
}

// injections are how texts begin that Codex puts into messages of the user. Newer ones say
// what they are; these are for those that do not.
var injections = []string{
	"<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<permissions instructions>", "<skill>",
	"<turn_aborted>", "<subagent_notification>",
}

// isInjected reports whether a message of the user is none: Codex wrote it, to tell the
// model where it is and what it is to heed.
func isInjected(p *object) bool {
	if meta, ok := open("", p.peek("internal_chat_message_metadata_passthrough")); ok {
		if kinds, ok := meta.elements("content_item_kinds"); ok && len(kinds) > 0 {
			return !slices.ContainsFunc(kinds, func(raw json.RawMessage) bool {
				kind := words(raw)
				return kind == "unknown" || strings.HasPrefix(kind, "user.")
			})
		}
	}
	list, _ := p.elements("content")
	if len(list) == 0 {
		return false
	}
	first, ok := open("", list[0])
	return ok && slices.ContainsFunc(injections, func(begin string) bool { return strings.HasPrefix(first.word("text"), begin) })
}
