package turns

import (
	"encoding/json"
	"strings"
)

// The shapes of OpenAI's Responses: a whole response, and the items that it and the
// next request list.

func isResponse(o *object) bool {
	_, ok := o.elements("output")
	return ok && o.word("object") == "response"
}

func readResponse(r *reading, o *object) {
	r.by("openai-responses")
	r.turn.Response, r.turn.Model = o.text("id"), o.text("model")
	r.usage(o)
	if text := o.text("instructions"); text != "" {
		r.add(Part{Role: "system", Text: text})
	}
	for _, raw := range o.list("output") {
		readOutput(r, raw)
	}
	r.leave("assistant", o)
}

// readOutput reads an item of a response.
func readOutput(r *reading, raw json.RawMessage) {
	o, ok := open("", raw)
	switch {
	case ok && isItem(o):
		readItem(r, o)
	case ok && isMessage(o):
		readMessage(r, o)
	default:
		r.keep("assistant", raw)
	}
}

// isItem recognises an item that is not a message.
func isItem(o *object) bool {
	kind := o.word("type")
	if kind == "reasoning" {
		_, ok := o.elements("summary")
		return ok
	}
	return !o.has("role") && (o.has("id", "call_id", "status") && strings.HasSuffix(kind, "_call") || o.has("id", "call_id") && isItemOutput(kind))
}

func isItemOutput(kind string) bool { return strings.HasSuffix(kind, "_call_output") }

func readItem(r *reading, o *object) {
	r.by("openai-responses")
	switch kind := o.word("type"); {
	case kind == "reasoning":
		readReasoning(r, "assistant", o)
	case isItemOutput(kind):
		readItemOutput(r, "tool", o)
	default:
		readItemCall(r, "assistant", o)
	}
	r.leave("assistant", o)
}

// readItemCall reads a call. The tools that OpenAI runs itself are named after the type,
// and what they found stands in the call.
func readItemCall(r *reading, role string, o *object) {
	kind := strings.TrimSuffix(o.word("type"), "_call")
	p := Part{Role: role, Name: o.text("name"), ID: o.text("call_id", "id")}
	if p.Name == "" {
		p.Name = kind
	}
	p.Text = o.value("arguments", "input", "action", "queries", "code", "operation", "revised_prompt")
	r.call(p)
	answer := Part{Role: "tool", Name: p.Name, ID: p.ID, Error: o.has("error")}
	switch {
	case kind == "image_generation" && o.has("result"):
		image := Part{Kind: Media, Role: role, Media: "image"}
		if format := o.text("output_format"); format != "" {
			image.Media = "image/" + format
		}
		image.hold(o.text("result"), false)
		r.add(image)
	case o.has("error"):
		r.result(answer, o.take("error"))
	case o.has("output", "outputs", "results"):
		r.result(answer, o.take("output", "outputs", "results"))
	}
}

// readItemOutput reads what a tool answered. Who calls has given the id a name.
func readItemOutput(r *reading, role string, o *object) {
	p := Part{Role: role, ID: o.text("call_id", "id")}
	kind := strings.TrimSuffix(o.word("type"), "_call_output")
	if kind != "function" && kind != "custom_tool" {
		p.Name = kind
	}
	p.Error = o.word("status") == "failed"
	if shot, ok := open("", o.peek("output")); ok && shot.word("type") == "computer_screenshot" {
		inner, _ := o.object("output")
		r.result(p, nil)
		r.add(mediaOf(role, "screenshot", inner))
		return
	}
	r.result(p, o.take("output"))
}

// itemBlock is for the parts of a message that only Responses has.
func itemBlock(kind string, _ *object) readBlock {
	switch kind {
	case "input_text", "output_text", "summary_text", "reasoning_text":
		return readText
	case "input_image", "input_file", "computer_screenshot":
		return readMedia
	case "function_call":
		return readItemCall
	case "function_call_output":
		return readItemOutput
	}
	return nil
}
