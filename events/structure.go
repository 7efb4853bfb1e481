package events

import (
	"maps"
	"strings"

	"github.com/tallylog/tally/internal/rawjson"
)

// A structure returns what remains of a valid JSON value when its event is erased, or nil. The result is never longer
// than the value.
type structure func(Raw) Raw

// structures are those of the data of each type. An event of another type keeps no data.
var structures = map[string]structure{
	TypeSessionCreated: object{
		"kind": whole, "createdAt": whole, "fork": object{"session": whole, "offset": whole}.of,
		"parent": object{"session": whole, "offset": whole}.of, "origin": originStructure,
	}.of,
	TypeSessionUpdated: object{"set": updateStructure.of}.of,
	TypeTurnAppended:   object{"entries": list(entryStructure), "threadMeta": each(empty), "pins": each(whole)}.of,
	TypeThreadReplaced: object{
		"threads": each(object{"items": list(entryStructure)}.of), "others": whole, "reason": reason,
	}.of,
	TypeThreadTruncated: object{"lengths": whole, "reason": reason}.of,
	TypeThreadPinned:    object{"thread": whole, "pins": whole}.of,
	TypeSessionRewound:  object{"to": whole, "checkpoint": whole, "undoes": whole}.of,
	TypeRunCreated: object{
		"run": runStructure, "parent": object{"session": whole, "offset": whole}.of, "maxSteps": whole, "after": list(runStructure),
		"dueAt": whole, "createdAt": whole,
	}.of,
	TypeRunStarted: object{"run": runStructure, "attempt": whole, "leaseUntil": whole}.of,
	TypeRunProgressed: object{
		"run": runStructure, "kind": whole, "thread": whole, "seq": whole, "step": whole,
		"state": object{"from": whole, "to": whole}.of, "leaseUntil": whole, "fence": whole,
	}.of,
	TypeRunFinished:  object{"run": runStructure, "outcome": stopped, "result": noResult, "finishedAt": whole, "fence": whole}.of,
	TypeRunAnnotated: object{"run": runStructure, "touchedAt": whole}.of,
	TypeCheckpointSaved: object{
		"id": whole, "kind": whole, "at": whole, "run": runStructure, "step": whole, "feedIndex": whole, "lengths": whole, "parent": whole,
	}.of,
	TypeCheckpointCleared: object{"kind": whole, "id": whole, "reason": reason}.of,
	TypeCostAccrued: object{
		"model": whole, "usd": whole, "tokens": object{"input": whole, "output": whole, "reasoning": whole, "cacheRead": whole, "cacheWrite": whole}.of,
		"run": runStructure, "response": whole, "purpose": whole, "source": whole, "raw": termsStructure,
	}.of,
	TypeDocumentDeleted: object{"reason": reason, "to": whole}.of,
}

var (
	runStructure    = object{"kind": whole, "id": whole}.of
	originStructure = object{"format": whole, "marker": whole}.of
	updateStructure = object{
		"cursors": whole, "status": stopped, "sourceGone": whole, "lease": object{"holder": whole, "until": whole}.of, "origin": originStructure,
	}
	lineStructure = notEmpty(object{"before": blank, "eol": blank}.of)

	// termsStructure keeps what TermsOf reads.
	termsStructure = notEmpty(object{
		"cache_creation": object{"ephemeral_1h_input_tokens": number}.of, "input_token_details": object{"ephemeral_1h_input_tokens": number}.of,
		"server_tool_use": object{"web_search_requests": number}.of, "speed": term, "service_tier": term, "inference_geo": term,
	}.of)
)

// ingestedUpdate is the structure of an update that follows from lines of an agent's files. It also keeps the sessions
// that have lines of these files.
var ingestedUpdate = object{"set": func(v Raw) Raw {
	fields := maps.Clone(updateStructure)
	fields["sessions"] = ids
	return fields.of(v)
}}.of

// docStructure returns what remains of the value of ExtDoc, or "". An invalid value remains invalid.
func docStructure(meta string) string {
	if _, err := ParseDocMeta(meta); err != nil {
		return "{"
	}
	return string(notEmpty(object{"part": object{"index": whole, "count": whole, "sha256": whole}.of, "base": whole, "expiresAt": whole}.of)(Raw(meta)))
}

// whole keeps a value.
func whole(v Raw) Raw { return v }

// object keeps members, in their order.
type object map[string]structure

func (o object) of(v Raw) Raw {
	members, err := rawjson.Object(v)
	if err != nil {
		return null(v)
	}
	out := Raw("{")
	for _, m := range members {
		keep := o[m.Name]
		if keep == nil {
			continue
		}
		if value := keep(m.Value); value != nil {
			out = appendTo(out, m.Name, value)
		}
	}
	return append(out, '}')
}

// null keeps null, and no other value.
func null(v Raw) Raw {
	if string(v) == "null" {
		return v
	}
	return nil
}

// appendTo appends a member to an object that is not closed.
func appendTo(object Raw, name string, value Raw) Raw {
	if len(object) > 1 {
		object = append(object, ',')
	}
	return append(append(rawjson.AppendString(object, name), ':'), value...)
}

// notEmpty keeps nothing where an object keeps no member.
func notEmpty(of structure) structure {
	return func(v Raw) Raw {
		if v = of(v); string(v) == "{}" {
			return nil
		}
		return v
	}
}

// each keeps the names of an object, and a part of each value.
func each(of structure) structure {
	return func(v Raw) Raw {
		members, err := rawjson.Object(v)
		if err != nil {
			return null(v)
		}
		out := Raw("{")
		for _, m := range members {
			out = appendTo(out, m.Name, of(m.Value))
		}
		return append(out, '}')
	}
}

// list keeps the length of an array, and a part of each element.
func list(of structure) structure {
	return func(v Raw) Raw {
		elems, err := rawjson.Array(v)
		if err != nil {
			return null(v)
		}
		for i := range elems {
			elems[i] = of(elems[i])
		}
		return rawjson.AppendArray(nil, elems)
	}
}

// empty is a value without content: {}, or 0 where that is too long.
func empty(v Raw) Raw {
	if len(v) < len("{}") {
		return Raw("0")
	}
	return Raw("{}")
}

// noResult is {} for an object, so that readers of a result find one. For other values it is null, or 0 where that is too
// long.
func noResult(v Raw) Raw {
	switch {
	case v[0] == '{':
		return Raw("{}")
	case len(v) < len("null"):
		return Raw("0")
	}
	return Raw("null")
}

// entryStructure is that of an entry of turn.appended, and of an item of thread.replaced.
func entryStructure(v Raw) Raw {
	members, err := rawjson.Object(v)
	if err != nil {
		return nil
	}
	out := Raw("{")
	for _, m := range members {
		switch m.Name {
		case "thread", "keep", "pinned", "timestamp":
			out = appendTo(out, m.Name, m.Value)
		case "turn", "bytes":
			out = appendTo(out, "turn", empty(m.Value))
		case "run":
			out = appendTo(out, m.Name, runStructure(m.Value))
		case "meta":
			if meta := lineStructure(m.Value); meta != nil {
				out = appendTo(out, m.Name, meta)
			}
		}
	}
	return append(out, '}')
}

// reason keeps a reason that readers treat specially.
func reason(v Raw) Raw {
	switch text, _ := rawjson.String(v); text {
	case "save", "compact", "import", "clear", "source", "deleted", ReasonPurged, ReasonRenamed, ReasonExpired:
		return rawjson.AppendString(nil, text)
	}
	return Raw(`"-"`)
}

// stopped keeps a word, of stopped:<reason> without the reason.
func stopped(v Raw) Raw {
	if text, _ := rawjson.String(v); strings.HasPrefix(text, "stopped:") {
		return Raw(`"stopped:-"`)
	}
	return v
}

// blank keeps a text of white space.
func blank(v Raw) Raw {
	text, err := rawjson.String(v)
	if err != nil || strings.TrimSpace(text) != "" {
		return nil
	}
	return v
}

// ids keeps an array of texts.
func ids(v Raw) Raw {
	var list []string
	if rawjson.Unmarshal(v, &list) != nil {
		return nil
	}
	return v
}

// number keeps a whole number.
func number(v Raw) Raw {
	if !digits(string(v)) {
		return nil
	}
	return v
}

// term keeps a word of the terms of a price.
func term(v Raw) Raw {
	text, err := rawjson.String(v)
	switch {
	case err != nil || text == "":
		return nil
	case len(text) > maxTerm || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "":
		return Raw(`"-"`)
	}
	return v
}

// withLists adds the pieces of an event's lists, because a record may be rejected for them. One list has all pieces: it
// is the value of the only member of an object, or the whole value if that was no object.
func withLists(data Raw, e Event) Raw {
	members, _ := rawjson.Object(e.Data)
	name := "raw"
	if e.Type == TypeRunFinished {
		name = "result"
	}
	value, lists := Raw("[]"), Raw(`{"":[`)
	if raw, _ := members.Get(name); rawjson.Begins(raw, '{') {
		value, lists = Raw(`{"":[]}`), Raw(`{"/":[`)
	}
	n := len(lists)
	for _, l := range members.Object("lists") {
		pieces, _ := rawjson.Array(l.Value)
		for _, p := range pieces {
			if len(lists) > n {
				lists = append(lists, ',')
			}
			lists = append(lists, object{"thread": whole, "from": whole, "to": whole}.of(p)...)
		}
	}
	lists = append(lists, "]}"...)
	if with, err := rawjson.SetMember(data, name, value); err == nil {
		data = with
	}
	if with, err := rawjson.SetMember(data, "lists", lists); err == nil {
		data = with
	}
	return data
}
