package turns

import (
	"encoding/json"

	"github.com/tallylog/tally/internal/rawjson"
)

// The shapes of the Agent Client Protocol: what the person says, as the request that a
// recorder kept, {toAgent, message: {method: "session/prompt"}}; and what the agent answered,
// {sessionId, updates}.

func isACPPrompt(o *object) bool {
	m, ok := open("", o.peek("message"))
	return ok && o.has("toAgent") && m.word("method") == "session/prompt" && m.isObject("params")
}

func readACPPrompt(r *reading, o *object) {
	r.by("acp")
	m, _ := open("message", o.take("message"))
	params, _ := open("params", m.take("params"))
	readACPBlocks(r, "user", params.list("prompt"))
	for _, left := range []*object{params, m, o} {
		r.leave("user", left)
	}
}

func isACPTurn(o *object) bool {
	list, ok := o.elements("updates")
	return ok && o.has("sessionId") && all(list, func(u *object) bool { return u.word("sessionUpdate") != "" })
}

func readACPTurn(r *reading, o *object) {
	r.by("acp")
	for _, raw := range o.list("updates") {
		u, _ := open("updates", raw)
		readACPUpdate(r, u)
		r.leave("assistant", u)
	}
	r.leave("assistant", o)
}

func readACPUpdate(r *reading, u *object) {
	start := len(r.turn.Parts)
	switch u.word("sessionUpdate") {
	case "agent_message_chunk", "agent_thought_chunk":
		if content := u.take("content"); content != nil {
			readACPBlocks(r, "assistant", []json.RawMessage{content})
		}
	case "tool_call", "tool_call_update":
		readACPCall(r, u)
	case "plan":
		readElements(r, "plan", u.list("entries"), readACPStep)
	}
	if u.word("sessionUpdate") == "agent_thought_chunk" {
		for i := range r.turn.Parts[start:] {
			if p := &r.turn.Parts[start+i]; p.Kind == Said {
				p.Kind = Reasoning
			}
		}
	}
}

// readACPCall reads a call with what came of it: its title is for people, its input for
// the tool.
func readACPCall(r *reading, u *object) {
	call := Part{Role: "assistant", Name: u.text("title"), ID: u.text("toolCallId"), Text: u.value("rawInput")}
	if call.Name == "" || len(call.Name) < 2 {
		call.Name = u.text("kind") + " " + call.Name
	}
	r.call(call)
	answer := Part{Role: "tool", Name: call.Name, ID: call.ID, Error: u.word("status") == "failed"}
	content := u.list("content")
	switch {
	case len(content) > 0:
		answer.Kind = Result
		r.add(answer)
		readElements(r, "tool", content, readACPContent)
		u.take("rawOutput")
	case u.has("rawOutput"):
		r.result(answer, u.take("rawOutput"))
	}
}

// readACPContent reads a piece of what a tool made: content, a difference, a terminal.
func readACPContent(r *reading, role string, c *object) {
	switch c.word("type") {
	case "content":
		if content := c.take("content"); content != nil {
			readACPBlocks(r, role, []json.RawMessage{content})
		}
	case "diff":
		r.add(Part{Role: role, Name: c.text("path"), Text: c.text("newText")})
	}
}

// readACPBlocks reads blocks of content: text and media are others', resources its own.
func readACPBlocks(r *reading, role string, list []json.RawMessage) {
	for _, raw := range list {
		b, ok := open("", raw)
		if !ok || b.word("type") != "resource" && b.word("type") != "resource_link" {
			readBlocks(r, role, []json.RawMessage{raw})
			continue
		}
		inner := b
		if res, ok := b.object("resource"); ok {
			inner = res
		}
		p := Part{Kind: Media, Role: role, Media: inner.text("mimeType"), Name: inner.text("name", "title"), Text: join(inner.text("uri"), inner.text("text"))}
		if blob, err := rawjson.String(inner.peek("blob")); err == nil && isData(blob) {
			inner.take("blob")
			p.Bytes = decodedLen(blob)
		}
		if p.Media == "" {
			p.Media = "file"
		}
		r.add(p)
		r.leave(role, b)
	}
}

// readACPStep reads a step of a plan. How urgent it is, is for programs.
func readACPStep(r *reading, role string, e *object) {
	e.take("priority")
	r.add(Part{Role: role, Name: e.word("status"), Text: e.text("content")})
}
