package turns

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// The shapes of LangChain: a message as dumpd writes it, {lc, type: "constructor", id,
// kwargs}; as messages_to_dict does, {type, data}; and as model_dump does, {type, content}.

// chainRole returns who speaks in a message of a type or of a class, "" if it is neither.
func chainRole(kind string) string {
	kind = strings.TrimSuffix(strings.TrimSuffix(kind, "Chunk"), "Message")
	switch strings.ToLower(kind) {
	case "human":
		return "user"
	case "ai":
		return "assistant"
	case "system", "tool", "chat":
		return strings.ToLower(kind)
	case "function":
		return "tool"
	}
	return ""
}

// chainBody returns who speaks, and the member that holds the message: "" for the object
// itself.
func chainBody(o *object) (role, member string) {
	kind := o.word("type")
	if kind == "constructor" && o.has("lc") {
		return chainRole(className(o.peek("id"))), "kwargs"
	}
	if o.has("data") {
		return chainRole(kind), "data"
	}
	return chainRole(kind), ""
}

// className returns the last of the names in an id such as ["langchain", "schema",
// "messages", "AIMessage"], "" if it is no message.
func className(id []byte) string {
	names, err := rawjson.Array(id)
	if err != nil || len(names) == 0 {
		return ""
	}
	name := words(names[len(names)-1])
	if !strings.HasSuffix(strings.TrimSuffix(name, "Chunk"), "Message") {
		return ""
	}
	return name
}

func isChainMessage(o *object) bool {
	role, member := chainBody(o)
	body := o
	if member != "" {
		var ok bool
		if body, ok = open(member, o.peek(member)); !ok {
			return false
		}
	} else if o.has("role") && role != "chat" {
		return false
	}
	return role != "" && body.has("content")
}

func readChainMessage(r *reading, o *object) {
	r.by("langchain")
	role, member := chainBody(o)
	if member == "" {
		readChainBody(r, role, o)
		return
	}
	body, _ := o.object(member)
	readChainBody(r, role, body)
	r.leave(role, o)
}

func readChainBody(r *reading, role string, o *object) {
	if role == "chat" {
		role = cmp.Or(roleOf(o.text("role")), role)
	}
	r.usage(o)
	if meta, ok := open("response_metadata", o.peek("response_metadata")); ok {
		r.turn.Model = meta.text("model_name", "model", "model_id")
		r.turn.Response = meta.text("id", "response_id")
		r.usage(meta)
	}
	readElements(r, role, o.list("invalid_tool_calls"), readToolCall)
	more, ok := o.object("additional_kwargs")
	if !ok {
		readSpoken(r, role, o)
		return
	}
	if thought := more.text("reasoning_content"); thought != "" {
		r.add(Part{Kind: Reasoning, Role: role, Text: thought})
	}
	calls, _ := o.elements("tool_calls")
	readSpoken(r, role, o)
	if len(calls) == 0 { // else they stand there a second time
		readChatMembers(r, role, more)
	}
}

// chainBlock is for the parts of a message that only LangChain has.
func chainBlock(kind string, _ *object) readBlock {
	switch kind {
	case "tool_call", "tool_call_chunk", "server_tool_call", "invalid_tool_call":
		return readCall
	case "server_tool_result":
		return readChainServerResult
	case "text-plain":
		return readMedia
	case "non_standard":
		return readNonStandard
	}
	return nil
}

func readChainServerResult(r *reading, role string, b *object) {
	p := Part{Role: role, ID: b.text("tool_call_id"), Error: b.word("status") == "error"}
	r.result(p, b.take("output"))
}

func readNonStandard(r *reading, role string, b *object) {
	if r.depth == maxDepth || !b.has("value") {
		return
	}
	r.depth++
	readBlocks(r, role, []json.RawMessage{b.take("value")})
	r.depth--
}
