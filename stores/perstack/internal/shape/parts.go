package shape

import (
	"maps"
	"slices"
	"unicode/utf16"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Parts that several documents have.
var (
	usage = object(must("inputTokens", count), must("outputTokens", count), must("reasoningTokens", count),
		must("totalTokens", count), must("cachedInputTokens", count))

	expert = object(must("key", text), must("name", text), must("version", text))

	toolCall   = object(must("id", callID), must("skillName", text), must("toolName", text), must("args", object()))
	toolResult = object(must("id", text), must("skillName", text), must("toolName", text), must("result", list(anyPart)))
)

// kinds are objects with a member type, by its value, with the members of each.
type kinds map[string][]member

// Parts of messages, by kind.
var (
	textParts  = kinds{"textPart": {must("text", text)}}
	mediaParts = kinds{"imageUrlPart": address, "imageInlinePart": inline, "imageBinaryPart": binary,
		"fileUrlPart": address, "fileInlinePart": inline, "fileBinaryPart": binary}
	callParts   = kinds{"toolCallPart": {must("toolCallId", text), must("toolName", text), must("args", anything)}}
	resultParts = kinds{"toolResultPart": {must("toolCallId", text), must("toolName", text), must("contents", list(part(textParts, mediaParts))), may("isError", boolean)}}
	thoughts    = kinds{"thinkingPart": {must("thinking", text), may("signature", text)}}

	anyPart = part(textParts, mediaParts, callParts, resultParts, thoughts)
)

var (
	address = []member{must("url", text), must("mimeType", text)}
	inline  = []member{must("encodedData", text), must("mimeType", text)}
	binary  = []member{must("data", text), must("mimeType", text)}
)

// message is one of four kinds of messages, each with only some of the parts. A tool's answer is in its result, never
// in a text beside it.
var message = oneOf(kinds{
	"instructionMessage": holding(textParts),
	"userMessage":        holding(textParts, mediaParts),
	"expertMessage":      holding(textParts, callParts, thoughts),
	"toolMessage":        holding(resultParts),
})

func holding(parts ...kinds) []member {
	return []member{must("id", id), must("contents", list(part(parts...))), may("cache", boolean)}
}

// part is a part of one of several kinds.
func part(some ...kinds) rule {
	all := make(kinds)
	for _, k := range some {
		for name, members := range k {
			all[name] = append(slices.Clip(members), must("id", text))
		}
	}
	return oneOf(all)
}

// oneOf is an object of one of several kinds.
func oneOf(of kinds) rule {
	rules := make(map[string]rule, len(of))
	for name, members := range of {
		rules[name] = object(members...)
	}
	known := word(slices.Sorted(maps.Keys(of))...)
	return func(at string, raw events.Raw) error {
		have, err := rawjson.Object(raw)
		if err != nil {
			return invalid(at, "%v", err)
		}
		kind, ok := have.Get("type")
		if !ok {
			return invalid(at+".type", "missing")
		}
		if err := known(at+".type", kind); err != nil {
			return err
		}
		return rules[have.Text("type")](at, raw)
	}
}

// maxCallID is the maximum length of a call's id, in UTF-16 code units.
const maxCallID = 255

// callID is the id of a tool call.
func callID(at string, raw events.Raw) error {
	if err := id(at, raw); err != nil {
		return err
	}
	if s, _ := rawjson.String(raw); len(utf16.Encode([]rune(s))) > maxCallID {
		return invalid(at, "longer than %d", maxCallID)
	}
	return nil
}
