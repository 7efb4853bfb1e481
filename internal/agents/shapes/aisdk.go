package shapes

import (
	"cmp"
	"strings"
)

// The shapes of the Vercel AI SDK: a UIMessage, whose parts have a type; the parts of a ModelMessage; and the result
// of generateText as a program logs it.

// A UIMessage is {role, parts} of the AI SDK.
var UIMessage = Shape{Name: "ai-sdk", Is: isUIMessage, Read: readUIMessage}

// isUIMessage recognises {role, parts}.
func isUIMessage(o *Object) bool {
	parts, ok := o.Elements("parts")
	return ok && o.Word("role") != "" && All(parts, func(p *Object) bool { return p.Word("type") != "" })
}

func readUIMessage(r *Reading, o *Object) {
	r.By("ai-sdk")
	role := RoleOf(o.Text("role"))
	parts := o.List("parts")
	ReadBlocks(r, role, parts)
	if len(parts) == 0 { // otherwise the parts contain them
		readInvocations(r, role, o)
	}
	readAttachments(r, role, o)
	r.Leave(role, o)
}

// readInvocations reads the calls that older versions put beside the content of a message.
func readInvocations(r *Reading, role string, o *Object) {
	if list := o.List("toolInvocations"); len(list) > 0 {
		r.By("ai-sdk")
		ReadElements(r, role, list, readToolState)
	}
}

// readAttachments reads the files that older versions put beside the content of a message.
func readAttachments(r *Reading, role string, o *Object) {
	if list := o.List("experimental_attachments"); len(list) > 0 {
		r.By("ai-sdk")
		ReadElements(r, role, list, func(r *Reading, role string, b *Object) { r.Add(MediaOf(role, "file", b)) })
	}
}

// sdkBlock handles the types of parts that only the AI SDK has.
func sdkBlock(kind string, b *Object) ReadBlock {
	switch kind {
	case "step-start":
		return func(*Reading, string, *Object) {}
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
	if strings.HasPrefix(kind, "tool-") && b.Has("toolCallId") && b.Has("state") {
		return readToolState
	}
	return nil
}

// readToolError reads a tool's error that is a part of its own.
func readToolError(r *Reading, role string, b *Object) {
	p := Part{Role: role, Name: b.Text("toolName"), ID: b.Text("toolCallId"), Error: true}
	r.Result(p, b.Take("error"))
}

// readInvocation reads {toolInvocation: {...}}.
func readInvocation(r *Reading, role string, b *Object) {
	if inner, ok := b.Object("toolInvocation"); ok {
		readToolState(r, role, inner)
	}
}

// readToolState reads a call and, if it is there, its result.
func readToolState(r *Reading, role string, b *Object) {
	p := Part{Role: role, ID: b.Text("toolCallId"), Text: b.Value("input", "rawInput", "args")}
	p.Name = cmp.Or(b.Text("toolName"), strings.TrimPrefix(b.Word("type"), "tool-"))
	r.Call(p)
	answer := Part{Role: "tool", Name: p.Name, ID: p.ID}
	switch {
	case b.Has("errorText"):
		answer.Error = true
		r.Result(answer, b.Take("errorText"))
	case b.Has("output", "result"):
		r.Result(answer, b.Take("output", "result"))
	}
}

// readSource reads a page or a document that an answer cites.
func readSource(r *Reading, role string, b *Object) {
	r.Add(MediaOf(role, "source", b))
}

// A GenerateResult is the result of generateText.
var GenerateResult = Shape{Name: "ai-sdk", Is: isGenerateResult, Read: readGenerateResult}

// isGenerateResult recognises the result of generateText, and the argument of onFinish.
func isGenerateResult(o *Object) bool {
	return o.Word("finishReason") != "" && !o.Has("role", "type") && o.Has("text", "content", "toolCalls", "steps")
}

func readGenerateResult(r *Reading, o *Object) {
	const role = "assistant"
	r.By("ai-sdk")
	r.Usage(o)
	if response, ok := o.Object("response"); ok {
		r.Turn.Response, r.Turn.Model = response.Text("id"), response.Text("modelId")
	}
	if content := o.List("content"); len(content) > 0 {
		ReadBlocks(r, role, content)
	} else {
		readByKind(r, role, o)
	}
	if o.Word("finishReason") == "content-filter" {
		r.Add(Part{Kind: Refusal, Role: role, Text: o.Text("finishReason")})
	}
	r.Leave(role, o)
}

// readByKind reads a result without content: reasoning, text, calls and results.
func readByKind(r *Reading, role string, o *Object) {
	if thought := o.Text("reasoningText", "reasoning"); thought != "" {
		r.Add(Part{Kind: Reasoning, Role: role, Text: thought})
	}
	if text := o.Text("text"); text != "" {
		r.Add(Part{Role: role, Text: text})
	}
	ReadElements(r, role, o.List("toolCalls"), readCall)
	ReadElements(r, role, o.List("toolResults"), readToolResult)
}
