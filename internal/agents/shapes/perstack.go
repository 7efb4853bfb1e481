package shapes

// The shapes of perstack: a message {type, contents}, whose parts have types of their own, and the calls and results
// of tools, which a step lists beside its messages.

// perstackRole returns the role for a type of message, "" for any other type.
func perstackRole(kind string) string {
	switch kind {
	case "instructionMessage":
		return "system"
	case "userMessage":
		return "user"
	case "expertMessage":
		return "assistant"
	case "toolMessage":
		return "tool"
	}
	return ""
}

// A PerstackMessage is a message of perstack.
var PerstackMessage = Shape{Name: "perstack", Is: isPerstackMessage, Read: readPerstackMessage}

func isPerstackMessage(o *Object) bool {
	_, ok := o.Elements("contents")
	return ok && perstackRole(o.Word("type")) != ""
}

func readPerstackMessage(r *Reading, o *Object) {
	r.By("perstack")
	role := perstackRole(o.Word("type"))
	ReadBlocks(r, role, o.List("contents"))
	r.Leave(role, o)
}

// A SkillItem is a call of a skill's tool, or its result.
var SkillItem = Shape{Name: "perstack", Is: isSkillItem, Read: readSkillItem}

// isSkillItem recognises a call of a skill's tool, or its result.
func isSkillItem(o *Object) bool {
	return o.Word("skillName") != "" && o.Word("toolName") != "" && o.Has("args", "result")
}

func readSkillItem(r *Reading, o *Object) {
	r.By("perstack")
	role, name, start := "assistant", o.Text("skillName")+"/"+o.Word("toolName"), len(r.Turn.Parts)
	if o.Has("result") {
		role = "tool"
		readToolResult(r, role, o)
	} else {
		readCall(r, role, o)
	}
	r.Turn.Parts[start].Name = name
	r.Leave(role, o)
}

// perstackBlock handles the types of parts that only perstack has.
func perstackBlock(kind string, _ *Object) ReadBlock {
	switch kind {
	case "textPart":
		return ReadText
	case "thinkingPart":
		return readReasoning
	case "imageUrlPart", "imageInlinePart", "imageBinaryPart", "fileUrlPart", "fileInlinePart", "fileBinaryPart":
		return readMedia
	}
	return nil
}
