package chat

import (
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Before 1.0.0-rc.1 of the original, the same version number had other shapes: the value of a block {"Text": ...} was
// the text itself, and the content of a tool's result was {"Text": "..."} or {"Error": "..."}.

// Modern returns a message in today's shape, and whether it had an older one. If it has neither, Modern returns an
// error.
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

// modernBlock returns a block in today's shape. It does not change other blocks.
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

// edited returns an object with a member edited. If raw is not an object or lacks the member, edited returns it
// unchanged.
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

// only returns the single member of an object, and a nil value if raw is not an object or has other members.
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

// spelled appends a value made of parsed raw values, whose names are valid.
func spelled(dst []byte, v any) events.Raw {
	raw, err := rawjson.AppendVerbatim(dst, v)
	if err != nil {
		panic(fmt.Sprintf("chat: %v", err))
	}
	return raw
}
