package acp

import (
	"encoding/json"

	"github.com/tallylog/tally/internal/agents/shapes"
)

// The shapes of the Agent Client Protocol: the user's message, as the recorded request {toAgent, message: {method:
// "session/prompt"}}; and the agent's answer, {sessionId, updates}.

// Prompt is the shape of the user's message, Answer that of the agent's answer.
var (
	Prompt = shapes.Shape{Name: agentName, Is: isPrompt, Read: readPrompt}
	Answer = shapes.Shape{Name: agentName, Is: isAnswer, Read: readAnswer}
)

func isPrompt(o *shapes.Object) bool {
	m, ok := shapes.Open("", o.Peek("message"))
	return ok && o.Has("toAgent") && m.Word("method") == "session/prompt" && m.IsObject("params")
}

func readPrompt(r *shapes.Reading, o *shapes.Object) {
	r.By(agentName)
	m, _ := shapes.Open("message", o.Take("message"))
	params, _ := shapes.Open("params", m.Take("params"))
	readBlocks(r, "user", params.List("prompt"))
	for _, left := range []*shapes.Object{params, m, o} {
		r.Leave("user", left)
	}
}

func isAnswer(o *shapes.Object) bool {
	list, ok := o.Elements("updates")
	return ok && o.Has("sessionId") && shapes.All(list, func(u *shapes.Object) bool { return u.Word(kindMember) != "" })
}

func readAnswer(r *shapes.Reading, o *shapes.Object) {
	r.By(agentName)
	for _, raw := range o.List("updates") {
		u, _ := shapes.Open("updates", raw)
		readUpdate(r, u)
		r.Leave("assistant", u)
	}
	r.Leave("assistant", o)
}

func readUpdate(r *shapes.Reading, u *shapes.Object) {
	start := len(r.Turn.Parts)
	switch u.Word(kindMember) {
	case "agent_message_chunk", "agent_thought_chunk":
		if content := u.Take("content"); content != nil {
			readBlocks(r, "assistant", []json.RawMessage{content})
		}
	case "tool_call", "tool_call_update":
		readCall(r, u)
	case "plan":
		shapes.ReadElements(r, "plan", u.List("entries"), readStep)
	}
	if u.Word(kindMember) == "agent_thought_chunk" {
		for i := range r.Turn.Parts[start:] {
			if p := &r.Turn.Parts[start+i]; p.Kind == shapes.Said {
				p.Kind = shapes.Reasoning
			}
		}
	}
}

// readCall reads a call with its result. Its title is for people, its input for the tool.
func readCall(r *shapes.Reading, u *shapes.Object) {
	call := shapes.Part{Role: "assistant", Name: u.Text("title"), ID: u.Text("toolCallId"), Text: u.Value("rawInput")}
	if call.Name == "" || len(call.Name) < 2 {
		call.Name = u.Text("kind") + " " + call.Name
	}
	r.Call(call)
	answer := shapes.Part{Role: "tool", Name: call.Name, ID: call.ID, Error: u.Word("status") == "failed"}
	content := u.List("content")
	switch {
	case len(content) > 0:
		answer.Kind = shapes.Result
		r.Add(answer)
		shapes.ReadElements(r, "tool", content, readContent)
		u.Take("rawOutput")
	case u.Has("rawOutput"):
		r.Result(answer, u.Take("rawOutput"))
	}
}

// readContent reads a piece of a tool's result: content, a diff, a terminal.
func readContent(r *shapes.Reading, role string, c *shapes.Object) {
	switch c.Word("type") {
	case "content":
		if content := c.Take("content"); content != nil {
			readBlocks(r, role, []json.RawMessage{content})
		}
	case "diff":
		r.Add(shapes.Part{Role: role, Name: c.Text("path"), Text: c.Text("newText")})
	}
}

// readBlocks reads blocks of content. Package shapes reads text and media; resources are read here.
func readBlocks(r *shapes.Reading, role string, list []json.RawMessage) {
	for _, raw := range list {
		b, ok := shapes.Open("", raw)
		if !ok || b.Word("type") != "resource" && b.Word("type") != "resource_link" {
			shapes.ReadBlocks(r, role, []json.RawMessage{raw})
			continue
		}
		inner := b
		if res, ok := b.Object("resource"); ok {
			inner = res
		}
		p := shapes.Part{Kind: shapes.Media, Role: role, Media: inner.Text("mimeType"), Name: inner.Text("name", "title"), Text: shapes.Join(inner.Text("uri"), inner.Text("text"))}
		p.Bytes = inner.Data("blob")
		if p.Media == "" {
			p.Media = "file"
		}
		r.Add(p)
		r.Leave(role, b)
	}
}

// readStep reads a step of a plan. It omits the priority, which is for programs.
func readStep(r *shapes.Reading, role string, e *shapes.Object) {
	e.Take("priority")
	r.Add(shapes.Part{Role: role, Name: e.Word("status"), Text: e.Text("content")})
}
