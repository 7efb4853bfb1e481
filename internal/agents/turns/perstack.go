package turns

// The shapes of perstack: a message {type, contents}, whose parts have types of their own,
// and the calls and results of tools as a step lists them beside its messages.

// perstackRole returns who speaks in a message of a type, "" if it is none.
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

func isPerstackMessage(o *object) bool {
	_, ok := o.elements("contents")
	return ok && perstackRole(o.word("type")) != ""
}

func readPerstackMessage(r *reading, o *object) {
	r.by("perstack")
	role := perstackRole(o.word("type"))
	readBlocks(r, role, o.list("contents"))
	r.leave(role, o)
}

// isSkillItem recognises a call of a skill's tool, or what it answered.
func isSkillItem(o *object) bool {
	return o.word("skillName") != "" && o.word("toolName") != "" && o.has("args", "result")
}

func readSkillItem(r *reading, o *object) {
	r.by("perstack")
	role, name, start := "assistant", o.text("skillName")+"/"+o.word("toolName"), len(r.turn.Parts)
	if o.has("result") {
		role = "tool"
		readToolResult(r, role, o)
	} else {
		readCall(r, role, o)
	}
	r.turn.Parts[start].Name = name
	r.leave(role, o)
}

// perstackBlock is for the parts of a message that only perstack has.
func perstackBlock(kind string, _ *object) readBlock {
	switch kind {
	case "textPart":
		return readText
	case "thinkingPart":
		return readReasoning
	case "imageUrlPart", "imageInlinePart", "imageBinaryPart", "fileUrlPart", "fileInlinePart", "fileBinaryPart":
		return readMedia
	}
	return nil
}
