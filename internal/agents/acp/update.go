package acp

import (
	"encoding/json"

	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// kindMember is the member of an update with its kind.
const kindMember = "sessionUpdate"

// update is a session update, or several that were joined.
type update struct {
	kind string
	id   string // of a call, or of a message
	text []byte // joined pieces of a text; nil: raw has the update
	raw  json.RawMessage
}

// merged returns a call with the members of a later update.
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

// spell returns an update in the protocol's form.
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
