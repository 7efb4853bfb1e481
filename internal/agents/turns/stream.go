package turns

import (
	"strings"

	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/rawjson"
)

// The lines that agents print while they work, as a recorder keeps them, and the recorder's
// own: {"type":"tally.exec", ...}. Claude Code prints its lines much as it files them, and Gemini
// CLI its messages as most do; what is here is Gemini CLI's tools and pi's events.

// isFrame recognises a line of the recorder's: what was run, or how it ended.
func isFrame(o *shapes.Object) bool { return o.Word("type") == "tally.exec" }

func readFrame(r *shapes.Reading, o *shapes.Object) {
	list, begins := o.Elements("command")
	words := make([]string, len(list))
	for i, raw := range list {
		words[i], _ = rawjson.String(raw)
	}
	switch {
	case begins:
		o.Take("command")
		r.Add(shapes.Part{Role: "command", Name: o.Text("cwd"), Text: strings.Join(words, " ")})
	case o.Word("signal") != "":
		r.Add(shapes.Part{Role: "exit", Text: o.Text("signal")})
	default:
		r.Add(shapes.Part{Role: "exit", Text: o.Value("exit")})
	}
	r.Leave("command", o)
}

// isGeminiEvent recognises what Gemini CLI prints of tools, errors and the end.
func isGeminiEvent(o *shapes.Object) bool {
	if o.Word("timestamp") == "" {
		return false
	}
	switch o.Word("type") {
	case "tool_use":
		return o.Word("tool_name") != ""
	case "tool_result":
		return o.Word("tool_id") != ""
	case "error":
		return o.Word("message") != ""
	case "result":
		return o.Word("status") != "" && o.IsObject("error")
	}
	return false
}

func readGeminiEvent(r *shapes.Reading, o *shapes.Object) {
	r.By("gemini-cli")
	kind := o.Word("type")
	switch kind {
	case "tool_use":
		r.Call(shapes.Part{Role: "assistant", Name: o.Text("tool_name"), ID: o.Text("tool_id"), Text: o.Value("parameters")})
	case "tool_result":
		p := shapes.Part{Role: "tool", ID: o.Text("tool_id"), Error: o.Word("status") == "error"}
		raw := o.Take("output")
		if e, ok := o.Object("error"); ok && raw == nil {
			p.Text = e.Text("message")
		}
		r.Result(p, raw)
	case "error":
		r.Add(shapes.Part{Role: "error", Name: o.Text("severity"), Text: o.Text("message")})
	default:
		e, _ := o.Object("error")
		r.Add(shapes.Part{Role: "error", Text: e.Text("message")})
	}
	r.Leave(kind, o)
}

// isPiEvent recognises the end of a message that pi prints.
func isPiEvent(o *shapes.Object) bool {
	m, ok := shapes.Open("", o.Peek("message"))
	return ok && o.Word("type") == "message_end" && m.Word("role") != ""
}

func readPiEvent(r *shapes.Reading, o *shapes.Object) {
	r.By("pi")
	m, _ := shapes.Open("message", o.Take("message"))
	readPiMessage(r, m)
	r.Leave("message", o)
}
