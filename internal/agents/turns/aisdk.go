package turns

import (
	"cmp"
	"strings"
)

// The shapes of the Vercel AI SDK: a UIMessage, of which its parts have a type; the parts
// of a ModelMessage; and the result of generateText as a program logs it.

// isUIMessage recognises {role, parts}.
func isUIMessage(o *object) bool {
	parts, ok := o.elements("parts")
	return ok && o.word("role") != "" && all(parts, func(p *object) bool { return p.word("type") != "" })
}

func readUIMessage(r *reading, o *object) {
	r.by("ai-sdk")
	role := roleOf(o.text("role"))
	parts := o.list("parts")
	readBlocks(r, role, parts)
	if len(parts) == 0 { // else they stand there a second time
		readInvocations(r, role, o)
	}
	readAttachments(r, role, o)
	r.leave(role, o)
}

// readInvocations reads the calls that older versions had beside the content of a message.
func readInvocations(r *reading, role string, o *object) {
	if list := o.list("toolInvocations"); len(list) > 0 {
		r.by("ai-sdk")
		readElements(r, role, list, readToolState)
	}
}

// readAttachments reads the files that older versions had there.
func readAttachments(r *reading, role string, o *object) {
	if list := o.list("experimental_attachments"); len(list) > 0 {
		r.by("ai-sdk")
		readElements(r, role, list, func(r *reading, role string, b *object) { r.add(mediaOf(role, "file", b)) })
	}
}

// sdkBlock is for the parts of a message that only the AI SDK has.
func sdkBlock(kind string, b *object) readBlock {
	switch kind {
	case "step-start":
		return func(*reading, string, *object) {}
	case "tool-call":
		return readCall
	case "tool-result":
		return readToolResult
	case "tool-error":
		return readToolError
	case "tool-invocation":
		return readInvocation
	case "dynamic-tool":
		return readToolState
	case "source-url", "source-document", "source":
		return readSource
	case "reasoning-file", "image-data", "image-url", "file-data", "file-url", "file-id", "media":
		return readMedia
	}
	if strings.HasPrefix(kind, "tool-") && b.has("toolCallId") && b.has("state") {
		return readToolState
	}
	return nil
}

// readToolError reads the error with which a tool answered, where it stands as a part.
func readToolError(r *reading, role string, b *object) {
	p := Part{Role: role, Name: b.text("toolName"), ID: b.text("toolCallId"), Error: true}
	r.result(p, b.take("error"))
}

// readInvocation reads {toolInvocation: {...}}.
func readInvocation(r *reading, role string, b *object) {
	if inner, ok := b.object("toolInvocation"); ok {
		readToolState(r, role, inner)
	}
}

// readToolState reads a call and, once it is there, its result.
func readToolState(r *reading, role string, b *object) {
	p := Part{Role: role, ID: b.text("toolCallId"), Text: b.value("input", "rawInput", "args")}
	p.Name = cmp.Or(b.text("toolName"), strings.TrimPrefix(b.word("type"), "tool-"))
	r.call(p)
	answer := Part{Role: "tool", Name: p.Name, ID: p.ID}
	switch {
	case b.has("errorText"):
		answer.Error = true
		r.result(answer, b.take("errorText"))
	case b.has("output", "result"):
		r.result(answer, b.take("output", "result"))
	}
}

// readSource reads a page or a document on which an answer rests.
func readSource(r *reading, role string, b *object) {
	r.add(mediaOf(role, "source", b))
}

// isGenerateResult recognises what generateText returns, and what onFinish is given.
func isGenerateResult(o *object) bool {
	return o.word("finishReason") != "" && !o.has("role", "type") && o.has("text", "content", "toolCalls", "steps")
}

func readGenerateResult(r *reading, o *object) {
	const role = "assistant"
	r.by("ai-sdk")
	r.usage(o)
	if response, ok := o.object("response"); ok {
		r.turn.Response, r.turn.Model = response.text("id"), response.text("modelId")
	}
	if content := o.list("content"); len(content) > 0 {
		readBlocks(r, role, content)
	} else {
		readByKind(r, role, o)
	}
	if o.word("finishReason") == "content-filter" {
		r.add(Part{Kind: Refusal, Role: role, Text: o.text("finishReason")})
	}
	r.leave(role, o)
}

// readByKind reads a result that has no content: what the model thought and said, calls
// and results.
func readByKind(r *reading, role string, o *object) {
	if thought := o.text("reasoningText", "reasoning"); thought != "" {
		r.add(Part{Kind: Reasoning, Role: role, Text: thought})
	}
	if text := o.text("text"); text != "" {
		r.add(Part{Role: role, Text: text})
	}
	readElements(r, role, o.list("toolCalls"), readCall)
	readElements(r, role, o.list("toolResults"), readToolResult)
}
