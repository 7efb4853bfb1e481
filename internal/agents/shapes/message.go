package shapes

// A Step is {input: message, output: [message...]}, a step of tally-evals.
var Step = Shape{Name: "step", Is: isStep, Read: readStep}

// isStep recognises {input: message, output: [message...]}, a step of tally-evals.
func isStep(o *Object) bool {
	messages, ok := o.Elements("output")
	return ok && All(append(messages, o.Peek("input")), isMember)
}

func readStep(r *Reading, o *Object) {
	readMember(r, o.Take("input"))
	for _, raw := range o.List("output") {
		readMember(r, raw)
	}
	r.Leave("step", o)
	r.Turn.Shape = "step" // whichever maker its messages have
}

// isMember recognises a message inside a turn.
func isMember(o *Object) bool { return isVariant(o) || isUIMessage(o) || isMessage(o) }

// readMember reads a message that isMember recognised.
func readMember(r *Reading, raw []byte) {
	switch o, _ := Open("", raw); {
	case isVariant(o):
		readVariant(r, o)
	case isUIMessage(o):
		readUIMessage(r, o)
	default:
		readMessage(r, o)
	}
}

// A Message is {role, content} of any maker.
var Message = Shape{Name: "message", Is: isMessage, Read: readMessage}

// isMessage recognises {role, content}, also with the names of an older Go encoder, and a message with another member
// instead of the content.
func isMessage(o *Object) bool {
	if o.Word("role") == "" && o.Word("Role") == "" {
		return false
	}
	for _, m := range o.Members {
		switch m.Name {
		case "content", "Content", "tool_calls", "function_call", "refusal", "toolInvocations":
			return true
		}
	}
	return false
}

// readMessage reads a message of any maker.
func readMessage(r *Reading, o *Object) { ReadSpoken(r, RoleOf(o.Text("role", "Role")), o) }

// RoleOf returns the common word for a maker's word for a role.
func RoleOf(role string) string {
	switch role {
	case "human":
		return "user"
	case "ai", "model":
		return "assistant"
	case "function":
		return "tool"
	}
	return role
}

// ReadSpoken reads a message of any maker. It looks for the members of all makers.
func ReadSpoken(r *Reading, role string, o *Object) {
	start := len(r.Turn.Parts)
	if r.Turn.Model == "" {
		r.Turn.Model = o.Text("model")
	}
	r.Usage(o)
	if thought := o.Text("reasoning_content", "reasoning"); thought != "" {
		r.Add(Part{Kind: Reasoning, Role: role, Text: thought})
	}
	if isAnswer(role, o) {
		readAnswer(r, role, o)
	} else {
		readContents(r, role, o)
	}
	readChatMembers(r, role, o)
	readInvocations(r, role, o)
	readAttachments(r, role, o)
	readStop(r, role, o)
	if len(r.Turn.Parts) == start && !o.Has("content", "Content") && !isEmpty(o) {
		r.Add(Part{Role: role})
	}
	if start < len(r.Turn.Parts) && r.Turn.Parts[start].Kind == Said && r.Turn.Parts[start].Name == "" {
		r.Turn.Parts[start].Name = o.Text("name")
	}
	r.Leave(role, o)
}

// isEmpty reports whether the content is an empty list.
func isEmpty(o *Object) bool {
	for _, m := range o.Members {
		if m.Name == "content" || m.Name == "Content" {
			list, ok := listOf(m.Value)
			return ok && len(list) == 0
		}
	}
	return false
}

// readContents reads the content of a message: a text, parts, or something else.
func readContents(r *Reading, role string, o *Object) {
	raw := o.Take("content", "Content")
	if raw == nil {
		return
	}
	if text, ok := textOf(raw); ok {
		if text != "" || !o.Has("tool_calls", "function_call", "refusal", "parts", "toolInvocations") {
			r.Add(Part{Role: role, Text: text})
		}
		return
	}
	list, ok := listOf(raw)
	if !ok {
		r.Keep(role, raw)
		return
	}
	ReadBlocks(r, role, list)
}

// isAnswer reports whether a message is one result of a tool, not a list of them.
func isAnswer(role string, o *Object) bool {
	_, isList := o.Elements("content")
	return o.Word("tool_call_id") != "" || role == "tool" && o.Has("content") && !isList
}

// readAnswer reads a message that is a tool's result.
func readAnswer(r *Reading, role string, o *Object) {
	if o.Has("tool_call_id") {
		r.By("openai")
	}
	p := Part{Role: role, Name: o.Text("name", "tool_name"), ID: o.Text("tool_call_id")}
	p.Error = o.IsTrue("is_error") || o.Word("status") == "error"
	r.Result(p, o.Take("content"))
}
