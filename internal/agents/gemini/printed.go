package gemini

import "github.com/tallylog/tally/internal/agents/shapes"

// Printed is the shape of lines about tools, errors and the end that gemini --output-format stream-json prints. Its
// messages have the common form.
var Printed = shapes.Shape{Name: program, Is: isPrinted, Read: readPrinted}

// isPrinted recognises the lines that Gemini CLI prints about tools, errors and the end.
func isPrinted(o *shapes.Object) bool {
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

func readPrinted(r *shapes.Reading, o *shapes.Object) {
	r.By(program)
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
