package shapes

import (
	"encoding/json"
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// quietNames are members without text of a speaker: types, states and times; proofs and encrypted data; counts; data
// that a program keeps for itself; settings of a request that a response repeats; turns that a compaction replaces; a
// tool's answer to the program that ran it. A name with a dot is a member of an object with the first name. Names
// that end in id, such as id, call_id and toolCallId, are quiet too.
var quietNames = Names(`
	type object role Role status state phase lc index finish_reason finishReason stop_reason stop_sequence
	created_at createdAt timestamp expires_at createTime system_fingerprint service_tier serviceTier language
	signature thoughtSignature thought_signature encrypted_content encrypted_index encrypted_stdout logprobs logprobsResult
	usage usageMetadata usage_metadata token_usage totalUsage safetyRatings safety_ratings detail format
	metadata providerOptions providerMetadata callProviderMetadata resultProviderMetadata experimental_providerMetadata
	response_metadata cache_control caller videoMetadata video_metadata
	internal_chat_message_metadata_passthrough
	replacement_history replacement_history_metadata retained_context latest_token_usage_record resume_metadata
	tools tool_choice truncation prompt_cache_key prompt_cache_retention
	text.format text.verbosity reasoning.effort reasoning.summary reasoning.mode response.headers response.body request.body
	RedactedReasoning.data codeExecutionResult.outcome code_execution_result.outcome
	uuid message.toolUseResult attachment.commandMode
	toolCalls.displayName toolCalls.description toolCalls.resultDisplay
	jsonrpc message.method message.api message.provider message.stopReason message.details thinkingSignature textSignature
	updates.sessionUpdate updates.kind updates.locations updates.rawOutput content.path params._meta updates._meta stopReason entries.priority`)

// Names returns the set of the names in a text.
func Names(list string) map[string]bool {
	set := make(map[string]bool)
	for _, name := range strings.Fields(list) {
		set[name] = true
	}
	return set
}

// Quiet reports whether a member never has text of a speaker, whatever its value.
func Quiet(object, name string) bool {
	return quietNames[name] || quietNames[object+"."+name] || name == "id" || strings.HasSuffix(name, "_id") || strings.HasSuffix(name, "Id")
}

// encoded is the length from which a text of base64 alone counts as data.
const encoded = 256

// binary reports whether a text is encoded data.
func binary(text string) bool {
	return isDataURL(text) || len(text) >= encoded && isBase64(text)
}

func isDataURL(text string) bool {
	head, _, ok := strings.Cut(text[:min(len(text), 200)], ",")
	return ok && strings.HasPrefix(head, "data:") && strings.HasSuffix(head, ";base64")
}

// isBase64 reports whether a text can be base64, in either alphabet.
func isBase64(text string) bool {
	text = strings.TrimRight(text, "=")
	for i := range len(text) {
		c := text[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("+/-_", c) >= 0) {
			return false
		}
	}
	return text != ""
}

// A spot is the position of a reader in a value: in the member name of an object, which is itself the member object.
type spot struct {
	object, name string
	quiet        bool
}

// visitTexts calls visit with every text in a valid JSON value at a spot, until visit returns false. It skips names of
// members, quiet members and binary data. It takes one pass, however deep the value is.
func visitTexts(at spot, raw []byte, visit func(text string) bool) {
	var outer []spot
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '{':
			outer = append(outer, at)
			at = spot{object: at.name, quiet: at.quiet}
		case '}':
			at, outer = outer[len(outer)-1], outer[:len(outer)-1]
		case '"':
			end := rawjson.StringEnd(raw, i)
			text := TextOf(raw[i:end])
			i = end - 1
			if isName(raw[end:]) {
				at.name = text
				at.quiet = outer[len(outer)-1].quiet || Quiet(at.object, text)
			} else if text != "" && !at.quiet && !binary(text) && !visit(text) {
				return
			}
		}
	}
}

// isName reports whether the string before rest is the name of a member.
func isName(rest []byte) bool {
	for _, c := range rest {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c == ':'
		}
	}
	return false
}

// Plain returns a text for search. In JSON, strings are unescaped and binary data is left out. Any other text is
// returned as it is, or "" if it is binary.
func Plain(text string) string {
	raw := []byte(text)
	if !IsJSON(raw) {
		if binary(text) {
			return ""
		}
		return text
	}
	var out []byte
	for i := 0; i < len(raw); {
		if raw[i] != '"' {
			out = append(out, raw[i])
			i++
			continue
		}
		end := rawjson.StringEnd(raw, i)
		if said := TextOf(raw[i:end]); !binary(said) {
			out = append(append(append(out, '"'), said...), '"')
		}
		i = end
	}
	return string(out)
}

// heard is the set of the texts in the parts of a turn.
type heard map[string]bool

// hear adds a text and, if it is JSON, the texts in it.
func (h heard) hear(text string) {
	h[text] = true
	if raw := []byte(text); IsJSON(raw) {
		visitTexts(spot{}, raw, func(text string) bool { h[text] = true; return true })
	}
}

// has reports whether a text is known, or is JSON with only known texts.
func (h heard) has(text string) bool {
	if h[text] {
		return true
	}
	raw := []byte(text)
	if !IsJSON(raw) {
		return false
	}
	all := true
	visitTexts(spot{}, raw, func(text string) bool { all = h[text]; return all })
	return all
}

// IsJSON reports whether a text is a JSON object or list.
func IsJSON(raw []byte) bool {
	trimmed := rawjson.Trim(raw)
	return len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') && rawjson.Check(raw) == nil
}

// news reports whether a value has an unknown text.
func (h heard) news(at spot, raw json.RawMessage) bool {
	is := false
	visitTexts(at, raw, func(text string) bool { is = !h.has(text); return !is })
	return is
}

// rest returns the untaken members with unknown texts, as an object, or nil.
func (o *Object) rest(h heard) []byte {
	var out []byte
	for i, m := range o.Members {
		var value []byte
		switch {
		case Quiet(o.name, m.Name), o.quiet[m.Name]:
		case o.inner[i] != nil:
			value = o.inner[i].rest(h)
		case !o.taken[i] && h.news(spot{object: o.name, name: m.Name}, m.Value):
			value = rawjson.AppendCompact(nil, m.Value)
		}
		if value != nil {
			out = append(rawjson.AppendString(append(out, ','), m.Name), ':')
			out = append(out, value...)
		}
	}
	if out == nil {
		return nil
	}
	out[0] = '{'
	return append(out, '}')
}
