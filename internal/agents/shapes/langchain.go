package shapes

import (
	"cmp"
	"encoding/json"
	"strings"
)

// The shapes of LangChain: a message as dumpd writes it, {lc, type: "constructor", id, kwargs}; as messages_to_dict
// does, {type, data}; and as model_dump does, {type, content}.

// chainRole returns the role for a type of message or a class name, "" if it is neither.
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

// chainBody returns the role, and the member that holds the message: "" for the object itself.
func chainBody(o *Object) (role, member string) {
	kind := o.Word("type")
	if kind == "constructor" && o.Has("lc") {
		return chainRole(className(o.Peek("id"))), "kwargs"
	}
	if o.Has("data") {
		return chainRole(kind), "data"
	}
	return chainRole(kind), ""
}

// className returns the last of the names in an id such as ["langchain", "schema", "messages", "AIMessage"], "" if it
// is not the class of a message.
func className(id []byte) string {
	names, _ := listOf(id)
	if len(names) == 0 {
		return ""
	}
	name := TextOf(names[len(names)-1])
	if !strings.HasSuffix(strings.TrimSuffix(name, "Chunk"), "Message") {
		return ""
	}
	return name
}

// A ChainMessage is a message of LangChain.
var ChainMessage = Shape{Name: "langchain", Is: isChainMessage, Read: readChainMessage}

func isChainMessage(o *Object) bool {
	role, member := chainBody(o)
	body := o
	if member != "" {
		var ok bool
		if body, ok = Open(member, o.Peek(member)); !ok {
			return false
		}
	} else if o.Has("role") && role != "chat" {
		return false
	}
	return role != "" && body.Has("content")
}

func readChainMessage(r *Reading, o *Object) {
	r.By("langchain")
	role, member := chainBody(o)
	if member == "" {
		readChainBody(r, role, o)
		return
	}
	body, _ := o.Object(member)
	readChainBody(r, role, body)
	r.Leave(role, o)
}

func readChainBody(r *Reading, role string, o *Object) {
	if role == "chat" {
		role = cmp.Or(RoleOf(o.Text("role")), role)
	}
	r.Usage(o)
	if meta, ok := Open("response_metadata", o.Peek("response_metadata")); ok {
		r.Turn.Model = meta.Text("model_name", "model", "model_id")
		r.Turn.Response = meta.Text("id", "response_id")
		r.Usage(meta)
	}
	ReadElements(r, role, o.List("invalid_tool_calls"), readToolCall)
	more, ok := o.Object("additional_kwargs")
	if !ok {
		ReadSpoken(r, role, o)
		return
	}
	if thought := more.Text("reasoning_content"); thought != "" {
		r.Add(Part{Kind: Reasoning, Role: role, Text: thought})
	}
	calls, _ := o.Elements("tool_calls")
	ReadSpoken(r, role, o)
	if len(calls) == 0 { // otherwise the calls are repeated there
		readChatMembers(r, role, more)
	}
}

// chainBlock handles the types of parts that only LangChain has.
func chainBlock(kind string, _ *Object) ReadBlock {
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

func readChainServerResult(r *Reading, role string, b *Object) {
	p := Part{Role: role, ID: b.Text("tool_call_id"), Error: b.Word("status") == "error"}
	r.Result(p, b.Take("output"))
}

func readNonStandard(r *Reading, role string, b *Object) {
	if r.depth == maxDepth || !b.Has("value") {
		return
	}
	r.depth++
	ReadBlocks(r, role, []json.RawMessage{b.Take("value")})
	r.depth--
}
