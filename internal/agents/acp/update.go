package acp

import (
	"encoding/json"

	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// kindMember is the member of an update that says of which kind it is.
const kindMember = "sessionUpdate"

// update is a session update, or several that are one.
type update struct {
	kind string
	id   string // of a call, or of a message
	text []byte // what pieces of a text say; nil: raw is it
	raw  json.RawMessage
}

// merged is a call with members of what was said of it later.
func merged(call json.RawMessage, u rawjson.Members) json.RawMessage {
	for _, m := range u {
		if m.Name == kindMember || string(m.Value) == "null" {
			continue
		}
		if with, err := rawjson.SetMember(call, m.Name, m.Value); err == nil {
			call = with
		}
	}
	return call
}

// spell spells an update as the protocol has it.
func (u update) spell() json.RawMessage {
	if u.text == nil {
		return u.raw
	}
	type content struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	return agents.Spell(struct {
		Kind    string  `json:"sessionUpdate"`
		Message string  `json:"messageId,omitempty"`
		Content content `json:"content"`
	}{u.kind, u.id, content{"text", string(u.text)}})
}
