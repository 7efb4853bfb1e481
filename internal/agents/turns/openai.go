package turns

import "cmp"

// The shapes of OpenAI's Chat Completions, which many others serve too.

// isCompletion recognises a whole answer, or a piece of one that streams.
func isCompletion(o *object) bool {
	choices, ok := o.elements("choices")
	return ok && (len(choices) > 0 || o.has("object")) && all(choices, func(c *object) bool {
		return c.has("message", "delta") || c.word("text") != "" && c.has("finish_reason", "index")
	})
}

func readCompletion(r *reading, o *object) {
	r.by("openai")
	r.turn.Response, r.turn.Model = o.text("id"), o.text("model")
	r.usage(o)
	readElements(r, "assistant", o.list("choices"), readChoice)
	r.leave("assistant", o)
}

func readChoice(r *reading, role string, c *object) {
	if m, ok := c.object("message", "delta"); ok {
		readSpoken(r, cmp.Or(roleOf(m.text("role")), role), m)
	} else if text := c.text("text"); text != "" {
		r.add(Part{Role: role, Text: text})
	}
	if c.word("finish_reason") == "content_filter" {
		r.add(Part{Kind: Refusal, Role: role, Text: c.text("finish_reason")})
	}
}

// readChatMembers reads what stands beside the content of a message.
func readChatMembers(r *reading, role string, o *object) {
	if o.has("refusal", "function_call", "audio") {
		r.by("openai")
	}
	if text := o.text("refusal"); text != "" {
		r.add(Part{Kind: Refusal, Role: role, Text: text})
	}
	if audio, ok := o.object("audio"); ok {
		r.add(mediaOf(role, "audio", audio))
		if text := audio.text("transcript"); text != "" {
			r.add(Part{Role: role, Text: text})
		}
	}
	readElements(r, role, o.list("tool_calls"), readToolCall)
	if f, ok := o.object("function_call"); ok {
		r.call(callOf(role, f))
	}
}

// readToolCall reads an element of tool_calls: {id, function: {name, arguments}},
// {id, custom: {name, input}}, or {id, name, args} of LangChain.
func readToolCall(r *reading, role string, c *object) {
	p := Part{Role: role, ID: c.text("id")}
	if f, ok := c.object("function", "custom"); ok {
		r.by("openai")
		p.Name, p.Text = f.text("name"), f.value("arguments", "input")
	} else {
		p.Name, p.Text = c.text("name"), c.value("args", "arguments", "input")
	}
	r.call(p)
}

// chatBlock is for the parts of a message that only Chat Completions has.
func chatBlock(kind string, _ *object) readBlock {
	switch kind {
	case "image_url", "input_audio", "video_url":
		return readMedia
	case "refusal":
		return readRefusal
	}
	return nil
}

func readRefusal(r *reading, role string, b *object) {
	r.add(Part{Kind: Refusal, Role: role, Text: b.text("refusal")})
}
