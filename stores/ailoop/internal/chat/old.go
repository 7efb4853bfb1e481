package chat

import (
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Before 1.0.0-rc.1 of the original the same version number stood for other
// shapes: a block {"Text": "..."} was the bare text, and the content of a tool's
// result was {"Text": "..."} or {"Error": "..."}.

// Modern returns a message in today's shape, and whether it had an older one. A
// message that has neither is an error.
func Modern(raw []byte) (modern events.Raw, changed bool, err error) {
	err = CheckMessage(raw)
	if err == nil {
		return raw, false, nil
	}
	if modern = modernMessage(raw); CheckMessage(modern) != nil {
		return nil, false, err
	}
	return modern, true, nil
}

// modernMessage returns a message with its blocks in today's shape.
func modernMessage(raw events.Raw) events.Raw {
	role, body := only(raw)
	return variant(role, edited(body, "blocks", func(list events.Raw) events.Raw {
		blocks, err := rawjson.Array(list)
		if err != nil {
			return list
		}
		for i := range blocks {
			blocks[i] = modernBlock(blocks[i])
		}
		return spelled(nil, blocks)
	}))
}

// modernBlock returns a block as it is if it has no old shape.
func modernBlock(raw events.Raw) events.Raw {
	switch kind, body := only(raw); {
	case kind == "Text" && body[0] == '"':
		return variant(kind, variant("text", body))
	case kind == "ToolResult":
		return variant(kind, edited(body, "content", modernContent))
	}
	return raw
}

func modernContent(raw events.Raw) events.Raw {
	kind, body := only(raw)
	if kind != "Text" && kind != "Error" || body[0] != '"' {
		return raw
	}
	b := append([]byte(`{"blocks":[{"type":"text","text":`), body...)
	b = append(b, `}]`...)
	if kind == "Error" {
		b = append(b, `,"is_error":true`...)
	}
	return append(b, '}')
}

// edited returns an object with another value of a member. What is no object, or has no
// such member, stays as it is.
func edited(raw events.Raw, name string, edit func(events.Raw) events.Raw) events.Raw {
	members, err := rawjson.Object(raw)
	if err != nil {
		return raw
	}
	for i := range members {
		if members[i].Name == name {
			members[i].Value = edit(members[i].Value)
		}
	}
	return spelled(nil, members)
}

// only returns the one member of an object, no value if it is none or has others.
func only(raw []byte) (name string, value events.Raw) {
	members, err := rawjson.Object(raw)
	if err != nil || len(members) != 1 {
		return "", nil
	}
	return members[0].Name, members[0].Value
}

func variant(name string, value events.Raw) events.Raw {
	return spelled(nil, events.Fields{{Name: name, Value: value}})
}

// spelled appends a value made of raw ones that were read, so that their names are good.
func spelled(dst []byte, v any) events.Raw {
	raw, err := rawjson.AppendVerbatim(dst, v)
	if err != nil {
		panic(fmt.Sprintf("chat: %v", err))
	}
	return raw
}
