package chat

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/tallylog/tally/internal/rawjson"
)

// A shape returns the error of a value, nil for a valid one.
type shape func(raw []byte) error

// member is a required or optional member of an object. Other members are allowed, as by the original's reader.
type member struct {
	name     string
	optional bool
	shape    shape
}

// The shapes of a message, bottom up.
var (
	source = tagged(map[string][]member{
		"base64":  {{name: "media_type", shape: text}, {name: "data", shape: text}},
		"url":     {{name: "url", shape: text}},
		"file_id": {{name: "id", shape: text}},
	})
	resultPart = tagged(map[string][]member{
		"text":  {{name: "text", shape: text}},
		"image": {{name: "source", shape: source}},
	})
	resultContent = object([]member{{name: "blocks", shape: listOf(resultPart)}, {name: "is_error", optional: true, shape: boolean}})

	userBlock = variants(map[string]shape{
		"Text":       object([]member{{name: "text", shape: text}}),
		"ToolResult": object([]member{{name: "call_id", shape: text}, {name: "content", shape: resultContent}}),
		"Image":      object([]member{{name: "source", shape: source}}),
		"Document":   object([]member{{name: "source", shape: source}}),
	})
	assistantBlock = variants(map[string]shape{
		"Text":              object([]member{{name: "text", shape: text}}),
		"ToolCall":          object([]member{{name: "id", shape: text}, {name: "name", shape: text}, {name: "args", shape: anything}}),
		"Reasoning":         object([]member{{name: "text", shape: text}, {name: "signature", optional: true, shape: textOrNull}}),
		"RedactedReasoning": object([]member{{name: "data", shape: text}}),
	})
	message = variants(map[string]shape{
		"User":      object([]member{{name: "blocks", shape: listOf(userBlock)}}),
		"Assistant": object([]member{{name: "blocks", shape: listOf(assistantBlock)}}),
	})
)

// CheckMessage returns the error of a message, nil for a valid one.
func CheckMessage(raw []byte) error { return message(raw) }

func anything([]byte) error { return nil }

func text(raw []byte) error {
	_, err := rawjson.String(raw)
	return reasonOf(err)
}

func textOrNull(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	return text(raw)
}

func boolean(raw []byte) error {
	if s := string(raw); s != "true" && s != "false" {
		return errors.New("want true or false")
	}
	return nil
}

func listOf(of shape) shape {
	return func(raw []byte) error {
		elements, err := rawjson.Array(raw)
		if err != nil {
			return reasonOf(err)
		}
		for i, e := range elements {
			if err := of(e); err != nil {
				return within("["+strconv.Itoa(i)+"]", err)
			}
		}
		return nil
	}
}

func object(members []member) shape {
	return func(raw []byte) error {
		have, err := rawjson.Object(raw)
		if err != nil {
			return reasonOf(err)
		}
		return checkMembers(have, members)
	}
}

func checkMembers(have rawjson.Members, want []member) error {
	for _, m := range want {
		value, ok := have.Get(m.name)
		switch {
		case !ok && m.optional:
			continue
		case !ok:
			return &fieldError{m.name, errMissing}
		}
		if err := m.shape(value); err != nil {
			return within(m.name, err)
		}
	}
	return nil
}

// tagged is the shape of an object whose member type selects the other members.
func tagged(kinds map[string][]member) shape {
	return func(raw []byte) error {
		have, err := rawjson.Object(raw)
		if err != nil {
			return reasonOf(err)
		}
		value, ok := have.Get("type")
		if !ok {
			return &fieldError{"type", errMissing}
		}
		name, err := rawjson.String(value)
		if err != nil {
			return within("type", reasonOf(err))
		}
		members, ok := kinds[name]
		if !ok {
			return &fieldError{"type", fmt.Errorf("unknown type %.40q", name)}
		}
		return checkMembers(have, members)
	}
}

// variants is the shape of an object with one member, whose name selects the shape of its value.
func variants(kinds map[string]shape) shape {
	return func(raw []byte) error {
		have, err := rawjson.Object(raw)
		switch {
		case err != nil:
			return reasonOf(err)
		case len(have) != 1:
			return fmt.Errorf("want one member, have %d", len(have))
		}
		of, ok := kinds[have[0].Name]
		if !ok {
			return fmt.Errorf("unknown variant %.40q", have[0].Name)
		}
		if err := of(have[0].Value); err != nil {
			return within(have[0].Name, err)
		}
		return nil
	}
}
