package shapes

import "cmp"

// The shapes of OpenAI's Chat Completions, which many other services use, too.

// A Completion is an answer of Chat Completions, or a piece of one.
var Completion = Shape{Name: "openai", Is: isCompletion, Read: readCompletion}

// isCompletion recognises a whole answer, or a piece of a streamed one.
func isCompletion(o *Object) bool {
	choices, ok := o.Elements("choices")
	return ok && (len(choices) > 0 || o.Has("object")) && All(choices, func(c *Object) bool {
		return c.Has("message", "delta") || c.Word("text") != "" && c.Has("finish_reason", "index")
	})
}

func readCompletion(r *Reading, o *Object) {
	r.By("openai")
	r.Turn.Response, r.Turn.Model = o.Text("id"), o.Text("model")
	r.Usage(o)
	ReadElements(r, "assistant", o.List("choices"), readChoice)
	r.Leave("assistant", o)
}

func readChoice(r *Reading, role string, c *Object) {
	if m, ok := c.Object("message", "delta"); ok {
		ReadSpoken(r, cmp.Or(RoleOf(m.Text("role")), role), m)
	} else if text := c.Text("text"); text != "" {
		r.Add(Part{Role: role, Text: text})
	}
	if c.Word("finish_reason") == "content_filter" {
		r.Add(Part{Kind: Refusal, Role: role, Text: c.Text("finish_reason")})
	}
}

// readChatMembers reads the members beside the content of a message.
func readChatMembers(r *Reading, role string, o *Object) {
	if o.Has("refusal", "function_call", "audio") {
		r.By("openai")
	}
	if text := o.Text("refusal"); text != "" {
		r.Add(Part{Kind: Refusal, Role: role, Text: text})
	}
	if audio, ok := o.Object("audio"); ok {
		r.Add(MediaOf(role, "audio", audio))
		if text := audio.Text("transcript"); text != "" {
			r.Add(Part{Role: role, Text: text})
		}
	}
	ReadElements(r, role, o.List("tool_calls"), readToolCall)
	if f, ok := o.Object("function_call"); ok {
		r.Call(CallOf(role, f))
	}
}

// readToolCall reads an element of tool_calls: {id, function: {name, arguments}},
// {id, custom: {name, input}}, or {id, name, args} of LangChain.
func readToolCall(r *Reading, role string, c *Object) {
	p := Part{Role: role, ID: c.Text("id")}
	if f, ok := c.Object("function", "custom"); ok {
		r.By("openai")
		p.Name, p.Text = f.Text("name"), f.Value("arguments", "input")
	} else {
		p.Name, p.Text = c.Text("name"), c.Value("args", "arguments", "input")
	}
	r.Call(p)
}

// chatBlock handles the types of parts that only Chat Completions has.
func chatBlock(kind string, _ *Object) ReadBlock {
	switch kind {
	case "image_url", "input_audio", "video_url":
		return readMedia
	case "refusal":
		return readRefusal
	}
	return nil
}

func readRefusal(r *Reading, role string, b *Object) {
	r.Add(Part{Kind: Refusal, Role: role, Text: b.Text("refusal")})
}
