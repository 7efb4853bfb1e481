package gemini

import (
	"cmp"

	"github.com/tallylog/tally/internal/agents/shapes"
)

// The shapes of Gemini: a whole answer of generateContent, and a Content, whose parts have no type. Its Python
// clients write the names with underscores.

// Generated is the shape of a whole answer, Content that of a Content.
var (
	Generated = shapes.Shape{Name: agentName, Is: isGenerated, Read: readGenerated}
	Content   = shapes.Shape{Name: agentName, Is: isContent, Read: readContent}
)

// Members of a part that other files of the package read, too.
const (
	functionCall     = "functionCall"
	functionResponse = "functionResponse"
)

// isGenerated recognises a whole answer.
func isGenerated(o *shapes.Object) bool {
	candidates, _ := o.Elements("candidates")
	return (len(candidates) > 0 || o.Has("promptFeedback", "prompt_feedback") || o.Has("usageMetadata", "usage_metadata") && o.Has("modelVersion", "model_version")) &&
		shapes.All(candidates, func(c *shapes.Object) bool { return c.Has("content", "finishReason", "finish_reason") })
}

func readGenerated(r *shapes.Reading, o *shapes.Object) {
	r.By(agentName)
	r.Turn.Response, r.Turn.Model = o.Text("responseId", "response_id"), o.Text("modelVersion", "model_version")
	r.Usage(o)
	shapes.ReadElements(r, "assistant", o.List("candidates"), readCandidate)
	if feedback, ok := o.Object("promptFeedback", "prompt_feedback"); ok {
		if reason := feedback.Text("blockReason", "block_reason"); reason != "" {
			r.Add(shapes.Part{Kind: shapes.Refusal, Role: "assistant", Text: colon(reason, feedback.Text("blockReasonMessage", "block_reason_message"))})
		}
	}
	r.Leave("assistant", o)
}

func readCandidate(r *shapes.Reading, role string, c *shapes.Object) {
	if content, ok := c.Object("content"); ok {
		readParts(r, cmp.Or(shapes.RoleOf(content.Text("role")), role), content)
	}
	switch reason := c.Word("finishReason") + c.Word("finish_reason"); reason {
	case "", "STOP", "MAX_TOKENS", "FINISH_REASON_UNSPECIFIED":
	default:
		r.Add(shapes.Part{Kind: shapes.Refusal, Role: role, Text: colon(reason, c.Text("finishMessage", "finish_message"))})
	}
}

func colon(reason, text string) string {
	if text == "" {
		return reason
	}
	return reason + ": " + text
}

// isContent recognises {role, parts}, with Gemini's parts.
func isContent(o *shapes.Object) bool {
	parts, _ := o.Elements("parts")
	return len(parts) > 0 && shapes.All(parts, func(p *shapes.Object) bool {
		return !p.Has("type") && p.Has("text", functionCall, "function_call", functionResponse, "function_response", "inlineData", "inline_data",
			"fileData", "file_data", "executableCode", "executable_code", "codeExecutionResult", "code_execution_result")
	})
}

func readContent(r *shapes.Reading, o *shapes.Object) {
	r.By(agentName)
	readParts(r, cmp.Or(shapes.RoleOf(o.Text("role")), "user"), o)
	r.Leave("", o)
}

func readParts(r *shapes.Reading, role string, o *shapes.Object) {
	shapes.ReadElements(r, role, o.List("parts"), readPart)
}

func readPart(r *shapes.Reading, role string, p *shapes.Object) {
	thought := p.IsTrue("thought")
	if p.Word("text") != "" || len(p.Members) == 1 && p.Has("text") {
		kind := shapes.Said
		if thought {
			kind = shapes.Reasoning
		}
		r.Add(shapes.Part{Kind: kind, Role: role, Text: p.Text("text")})
	}
	if call, ok := p.Object(functionCall, "function_call"); ok {
		r.Call(shapes.CallOf(role, call))
	}
	if answer, ok := p.Object(functionResponse, "function_response"); ok {
		readFunctionResponse(r, role, answer)
	}
	if blob, ok := p.Object("inlineData", "inline_data", "fileData", "file_data"); ok {
		r.Add(shapes.MediaOf(role, "file", blob))
	}
	readExecution(r, role, p)
}

// readFunctionResponse reads the result of a function: the member output of the response, its member error, or all of
// it.
func readFunctionResponse(r *shapes.Reading, role string, o *shapes.Object) {
	p := shapes.Part{Role: role, Name: o.Text("name"), ID: o.Text("id")}
	inner, ok := shapes.Open("response", o.Peek("response"))
	switch {
	case ok && len(inner.Members) == 1 && inner.Has("error"):
		p.Error = true
		fallthrough
	case ok && len(inner.Members) == 1 && inner.Has("output", "result"):
		o.Take("response")
		r.Result(p, inner.Take("error", "output", "result"))
	default:
		r.Result(p, o.Take("response"))
	}
	r.Nest(func() { readParts(r, role, o) })
}

// readExecution reads code that the model wrote and Gemini ran, and its result.
func readExecution(r *shapes.Reading, role string, p *shapes.Object) {
	const name = "code_execution"
	if code, ok := p.Object("executableCode", "executable_code"); ok {
		r.Call(shapes.Part{Role: role, Name: name, ID: code.Text("id"), Text: code.Text("code")})
	}
	if done, ok := p.Object("codeExecutionResult", "code_execution_result"); ok {
		outcome := done.Text("outcome")
		answer := shapes.Part{Role: role, Name: name, ID: done.Text("id"), Error: outcome != "OUTCOME_OK" && outcome != ""}
		if answer.Error {
			answer.Text = outcome + " "
		}
		r.Result(answer, done.Take("output"))
	}
}
