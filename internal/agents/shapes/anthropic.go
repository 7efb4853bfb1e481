package shapes

import (
	"strings"

	"github.com/tallylog/tally/events"
)

// The shapes of Anthropic's Messages.

// readStop reads the stop reason of a message, a member of Anthropic's messages.
func readStop(r *Reading, role string, o *Object) {
	stop := o.Word("stop_reason")
	if stop == "" && (o.Word("type") != "message" || r.Turn.Usage == (events.Tokens{})) { // a streamed message has no reason yet
		return
	}
	r.By("anthropic")
	if r.Turn.Response == "" {
		r.Turn.Response = o.Text("id")
	}
	if stop != "refusal" {
		return
	}
	p := Part{Kind: Refusal, Role: role}
	if details, ok := o.Object("stop_details"); ok {
		p.Text = details.Text("explanation")
	}
	r.Add(p)
}

// anthropicBlock handles the types of parts that only Anthropic has.
func anthropicBlock(kind string, _ *Object) ReadBlock {
	switch kind {
	case "redacted_thinking":
		return readWithheld
	case "tool_use", "server_tool_use", "mcp_tool_use":
		return readCall
	case "tool_result", "mcp_tool_result":
		return readToolResult
	case "web_search_result":
		return readFound
	case "container_upload":
		return readMedia
	}
	if strings.HasSuffix(kind, "_tool_result") {
		return readServerResult
	}
	return nil
}

// withhold takes encrypted data, which only the maker can read.
func withhold(b *Object) {
	if isData(b.Word("data")) {
		b.Take("data")
	}
}

func readWithheld(r *Reading, role string, b *Object) {
	withhold(b)
	r.Add(Part{Kind: Reasoning, Role: role})
}

// readServerResult reads the result of a tool that Anthropic runs; the type contains the tool's name.
func readServerResult(r *Reading, role string, b *Object) {
	p := Part{Role: role, Name: strings.TrimSuffix(b.Word("type"), "_tool_result"), ID: b.Text("tool_use_id")}
	r.Result(p, b.Take("content"))
}

// readFound reads a page that a search found.
func readFound(r *Reading, role string, b *Object) {
	found := []string{}
	for _, name := range []string{"title", "url", "page_age"} {
		if text := b.Text(name); text != "" {
			found = append(found, text)
		}
	}
	r.Add(Part{Role: role, Text: strings.Join(found, ", ")})
}
