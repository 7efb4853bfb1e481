package shapes

import (
	"strings"

	"github.com/tallylog/tally/events"
)

// The shapes of Anthropic's Messages.

// readStop reads why a message ended, which Anthropic's have.
func readStop(r *Reading, role string, o *Object) {
	stop := o.Word("stop_reason")
	if stop == "" && (o.Word("type") != "message" || r.Turn.Usage == (events.Tokens{})) { // while it is streamed no reason is said
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

// anthropicBlock is for the parts of a message that only Anthropic has.
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

// withhold takes what only the maker can read.
func withhold(b *Object) {
	if isData(b.Word("data")) {
		b.Take("data")
	}
}

func readWithheld(r *Reading, role string, b *Object) {
	withhold(b)
	r.Add(Part{Kind: Reasoning, Role: role})
}

// readServerResult reads what a tool answered that Anthropic runs; it has its name in the
// type.
func readServerResult(r *Reading, role string, b *Object) {
	p := Part{Role: role, Name: strings.TrimSuffix(b.Word("type"), "_tool_result"), ID: b.Text("tool_use_id")}
	r.Result(p, b.Take("content"))
}

// readFound reads a page that a search has found.
func readFound(r *Reading, role string, b *Object) {
	found := []string{}
	for _, name := range []string{"title", "url", "page_age"} {
		if text := b.Text(name); text != "" {
			found = append(found, text)
		}
	}
	r.Add(Part{Role: role, Text: strings.Join(found, ", ")})
}
