package chat

import (
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
	modern, ok := modernMessage(raw)
	if !ok || CheckMessage(modern) != nil {
		return nil, false, err
	}
	return modern, true, nil
}

// modernMessage rewrites the blocks of a message.
func modernMessage(raw []byte) (events.Raw, bool) {
	role, body, ok := only(raw)
	if !ok {
		return nil, false
	}
	members, err := rawjson.Object(body)
	if err != nil {
		return nil, false
	}
	for i := range members {
		if members[i].Name != "blocks" {
			continue
		}
		blocks, err := rawjson.Array(members[i].Value)
		if err != nil {
			return nil, false
		}
		for k := range blocks {
			blocks[k] = modernBlock(blocks[k])
		}
		members[i].Value = appendArray(nil, blocks)
	}
	return appendVariant(nil, role, appendObject(nil, members)), true
}

// modernBlock returns a block as it is if it has no old shape.
func modernBlock(raw events.Raw) events.Raw {
	kind, body, ok := only(raw)
	switch {
	case !ok:
		return raw
	case kind == "Text" && body[0] == '"':
		return appendVariant(nil, kind, appendVariant(nil, "text", body))
	case kind != "ToolResult":
		return raw
	}
	members, err := rawjson.Object(body)
	if err != nil {
		return raw
	}
	for i := range members {
		if members[i].Name == "content" {
			members[i].Value = modernContent(members[i].Value)
		}
	}
	return appendVariant(nil, kind, appendObject(nil, members))
}

func modernContent(raw events.Raw) events.Raw {
	kind, body, ok := only(raw)
	if !ok || body[0] != '"' || kind != "Text" && kind != "Error" {
		return raw
	}
	b := append([]byte(`{"blocks":[{"type":"text","text":`), body...)
	b = append(b, `}]`...)
	if kind == "Error" {
		b = append(b, `,"is_error":true`...)
	}
	return append(b, '}')
}

// only returns the one member of an object.
func only(raw []byte) (name string, value events.Raw, ok bool) {
	members, err := rawjson.Object(raw)
	if err != nil || len(members) != 1 {
		return "", nil, false
	}
	return members[0].Name, members[0].Value, true
}

func appendVariant(dst []byte, name string, value events.Raw) events.Raw {
	return appendObject(dst, events.Fields{{Name: name, Value: value}})
}

func appendObject(dst []byte, members events.Fields) events.Raw {
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(rawjson.AppendString(dst, m.Name), ':')
		dst = append(dst, m.Value...)
	}
	return append(dst, '}')
}

func appendArray(dst []byte, elements []events.Raw) events.Raw {
	dst = append(dst, '[')
	for i, e := range elements {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, e...)
	}
	return append(dst, ']')
}
