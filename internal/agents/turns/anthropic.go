package turns

import (
	"strings"

	"github.com/tallylog/tally/events"
)

// The shapes of Anthropic's Messages.

// readStop reads why a message ended, which Anthropic's have.
func readStop(r *reading, role string, o *object) {
	stop := o.word("stop_reason")
	if stop == "" && (o.word("type") != "message" || r.turn.Usage == (events.Tokens{})) { // while it is streamed no reason is said
		return
	}
	r.by("anthropic")
	if r.turn.Response == "" {
		r.turn.Response = o.text("id")
	}
	if stop != "refusal" {
		return
	}
	p := Part{Kind: Refusal, Role: role}
	if details, ok := o.object("stop_details"); ok {
		p.Text = details.text("explanation")
	}
	r.add(p)
}

// anthropicBlock is for the parts of a message that only Anthropic has.
func anthropicBlock(kind string, _ *object) readBlock {
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
func withhold(b *object) {
	if isData(b.word("data")) {
		b.take("data")
	}
}

func readWithheld(r *reading, role string, b *object) {
	withhold(b)
	r.add(Part{Kind: Reasoning, Role: role})
}

// readServerResult reads what a tool answered that Anthropic runs; it has its name in the
// type.
func readServerResult(r *reading, role string, b *object) {
	p := Part{Role: role, Name: strings.TrimSuffix(b.word("type"), "_tool_result"), ID: b.text("tool_use_id")}
	r.result(p, b.take("content"))
}

// readFound reads a page that a search has found.
func readFound(r *reading, role string, b *object) {
	found := []string{}
	for _, name := range []string{"title", "url", "page_age"} {
		if text := b.text(name); text != "" {
			found = append(found, text)
		}
	}
	r.add(Part{Role: role, Text: strings.Join(found, ", ")})
}
