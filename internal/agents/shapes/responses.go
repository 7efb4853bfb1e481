package shapes

import (
	"encoding/json"
	"strings"
)

// The shapes of OpenAI's Responses: a whole response, and the items that it and the next request list.

// A Response is an answer of Responses.
var Response = Shape{Name: "openai-responses", Is: isResponse, Read: readResponse}

func isResponse(o *Object) bool {
	_, ok := o.Elements("output")
	return ok && o.Word("object") == "response"
}

func readResponse(r *Reading, o *Object) {
	r.By("openai-responses")
	r.Turn.Response, r.Turn.Model = o.Text("id"), o.Text("model")
	r.Usage(o)
	if text := o.Text("instructions"); text != "" {
		r.Add(Part{Role: "system", Text: text})
	}
	for _, raw := range o.List("output") {
		readOutput(r, raw)
	}
	r.Leave("assistant", o)
}

// readOutput reads an item of a response.
func readOutput(r *Reading, raw json.RawMessage) {
	o, ok := Open("", raw)
	switch {
	case ok && isItem(o):
		readItem(r, o)
	case ok && isMessage(o):
		readMessage(r, o)
	default:
		r.Keep("assistant", raw)
	}
}

// An Item is an item of a response that is not a message.
var Item = Shape{Name: "openai-responses", Is: isItem, Read: readItem}

// isItem recognises an item that is not a message.
func isItem(o *Object) bool {
	kind := o.Word("type")
	if kind == "reasoning" {
		_, ok := o.Elements("summary")
		return ok
	}
	return !o.Has("role") && (o.Has("id", "call_id", "status") && strings.HasSuffix(kind, "_call") || o.Has("id", "call_id") && isItemOutput(kind))
}

func isItemOutput(kind string) bool { return strings.HasSuffix(kind, "_call_output") }

func readItem(r *Reading, o *Object) {
	r.By("openai-responses")
	switch kind := o.Word("type"); {
	case kind == "reasoning":
		readReasoning(r, "assistant", o)
	case isItemOutput(kind):
		readItemOutput(r, "tool", o)
	default:
		readItemCall(r, "assistant", o)
	}
	r.Leave("assistant", o)
}

// readItemCall reads a call. A tool that OpenAI runs itself is named after the type, and its result is in the call.
func readItemCall(r *Reading, role string, o *Object) {
	kind := strings.TrimSuffix(o.Word("type"), "_call")
	p := Part{Role: role, Name: o.Text("name"), ID: o.Text("call_id", "id")}
	if p.Name == "" {
		p.Name = kind
	}
	p.Text = o.Value("arguments", "input", "action", "queries", "code", "operation", "revised_prompt")
	r.Call(p)
	answer := Part{Role: "tool", Name: p.Name, ID: p.ID, Error: o.Has("error")}
	switch {
	case kind == "image_generation" && o.Has("result"):
		image := Part{Kind: Media, Role: role, Media: "image"}
		if format := o.Text("output_format"); format != "" {
			image.Media = "image/" + format
		}
		image.hold(o.Text("result"), false)
		r.Add(image)
	case o.Has("error"):
		r.Result(answer, o.Take("error"))
	case o.Has("output", "outputs", "results"):
		r.Result(answer, o.Take("output", "outputs", "results"))
	}
}

// readItemOutput reads the result of a tool. The tool's name is in the call with the same id.
func readItemOutput(r *Reading, role string, o *Object) {
	p := Part{Role: role, ID: o.Text("call_id", "id")}
	kind := strings.TrimSuffix(o.Word("type"), "_call_output")
	if kind != "function" && kind != "custom_tool" {
		p.Name = kind
	}
	p.Error = o.Word("status") == "failed"
	if shot, ok := Open("", o.Peek("output")); ok && shot.Word("type") == "computer_screenshot" {
		inner, _ := o.Object("output")
		r.Result(p, nil)
		r.Add(MediaOf(role, "screenshot", inner))
		return
	}
	r.Result(p, o.Take("output"))
}

// itemBlock handles the types of parts that only Responses has.
func itemBlock(kind string, _ *Object) ReadBlock {
	switch kind {
	case "input_text", "output_text", "summary_text", "reasoning_text":
		return ReadText
	case "input_image", "input_file", "computer_screenshot":
		return readMedia
	case "function_call":
		return readItemCall
	case "function_call_output":
		return readItemOutput
	}
	return nil
}
