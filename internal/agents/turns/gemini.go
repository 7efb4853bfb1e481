package turns

import "cmp"

// The shapes of Gemini: a whole answer of generateContent, and a Content, of which its
// parts have no type. Its clients in Python write the names with underscores.

// isGenerated recognises a whole answer.
func isGenerated(o *object) bool {
	candidates, _ := o.elements("candidates")
	return (len(candidates) > 0 || o.has("promptFeedback", "prompt_feedback") || o.has("usageMetadata", "usage_metadata") && o.has("modelVersion", "model_version")) &&
		all(candidates, func(c *object) bool { return c.has("content", "finishReason", "finish_reason") })
}

func readGenerated(r *reading, o *object) {
	r.by("gemini")
	r.turn.Response, r.turn.Model = o.text("responseId", "response_id"), o.text("modelVersion", "model_version")
	r.usage(o)
	readElements(r, "assistant", o.list("candidates"), readCandidate)
	if feedback, ok := o.object("promptFeedback", "prompt_feedback"); ok {
		if reason := feedback.text("blockReason", "block_reason"); reason != "" {
			r.add(Part{Kind: Refusal, Role: "assistant", Text: colon(reason, feedback.text("blockReasonMessage", "block_reason_message"))})
		}
	}
	r.leave("assistant", o)
}

func readCandidate(r *reading, role string, c *object) {
	if content, ok := c.object("content"); ok {
		readParts(r, cmp.Or(roleOf(content.text("role")), role), content)
	}
	switch reason := c.word("finishReason") + c.word("finish_reason"); reason {
	case "", "STOP", "MAX_TOKENS", "FINISH_REASON_UNSPECIFIED":
	default:
		r.add(Part{Kind: Refusal, Role: role, Text: colon(reason, c.text("finishMessage", "finish_message"))})
	}
}

func colon(reason, message string) string {
	if message == "" {
		return reason
	}
	return reason + ": " + message
}

// isContent recognises {role, parts}, with parts as Gemini has them.
func isContent(o *object) bool {
	parts, _ := o.elements("parts")
	return len(parts) > 0 && all(parts, func(p *object) bool {
		return !p.has("type") && p.has("text", "functionCall", "function_call", "functionResponse", "function_response", "inlineData", "inline_data",
			"fileData", "file_data", "executableCode", "executable_code", "codeExecutionResult", "code_execution_result")
	})
}

func readContent(r *reading, o *object) {
	r.by("gemini")
	readParts(r, cmp.Or(roleOf(o.text("role")), "user"), o)
	r.leave("", o)
}

func readParts(r *reading, role string, o *object) {
	readElements(r, role, o.list("parts"), readGeminiPart)
}

func readGeminiPart(r *reading, role string, p *object) {
	thought := p.isTrue("thought")
	if p.word("text") != "" || len(p.members) == 1 && p.has("text") {
		kind := Said
		if thought {
			kind = Reasoning
		}
		r.add(Part{Kind: kind, Role: role, Text: p.text("text")})
	}
	if call, ok := p.object("functionCall", "function_call"); ok {
		r.call(callOf(role, call))
	}
	if answer, ok := p.object("functionResponse", "function_response"); ok {
		readFunctionResponse(r, role, answer)
	}
	if blob, ok := p.object("inlineData", "inline_data", "fileData", "file_data"); ok {
		r.add(mediaOf(role, "file", blob))
	}
	readExecution(r, role, p)
}

// readFunctionResponse reads what a function answered: the member output of the response,
// its member error, or all of it.
func readFunctionResponse(r *reading, role string, o *object) {
	p := Part{Role: role, Name: o.text("name"), ID: o.text("id")}
	inner, ok := open("response", o.peek("response"))
	switch {
	case ok && len(inner.members) == 1 && inner.has("error"):
		p.Error = true
		fallthrough
	case ok && len(inner.members) == 1 && inner.has("output", "result"):
		o.take("response")
		r.result(p, inner.take("error", "output", "result"))
	default:
		r.result(p, o.take("response"))
	}
	if r.depth < maxDepth {
		r.depth++
		readParts(r, role, o)
		r.depth--
	}
}

// readExecution reads code that the model wrote and Gemini ran, and what came of it.
func readExecution(r *reading, role string, p *object) {
	const name = "code_execution"
	if code, ok := p.object("executableCode", "executable_code"); ok {
		r.call(Part{Role: role, Name: name, ID: code.text("id"), Text: code.text("code")})
	}
	if done, ok := p.object("codeExecutionResult", "code_execution_result"); ok {
		outcome := done.text("outcome")
		answer := Part{Role: role, Name: name, ID: done.text("id"), Error: outcome != "OUTCOME_OK" && outcome != ""}
		if answer.Error {
			answer.Text = outcome + " "
		}
		r.result(answer, done.take("output"))
	}
}
