package acp

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// maxTurn is the maximal size of a collected turn in bytes. Its lines are kept in any case.
const maxTurn = 16 << 20

// maxCall is the maximal size of a call into which later updates are merged. After a larger one, an update becomes an
// update of its own.
const maxCall = 1 << 20

// turn collects the agent's updates since the prompt.
type turn struct {
	id      string
	updates []update
	size    int
	seq     int64
}

func (t *turn) ref() events.RunRef { return events.RunRef{Kind: "turn", ID: t.id} }

// prompt begins a turn. A turn without an answer ends.
func (f *fold) prompt(s *saying, t *talk) {
	f.prompted++
	if t.turn != nil {
		s.after("lost", &events.RunFinished{Run: t.turn.ref(), Outcome: "stopped:unanswered", Result: events.Raw("{}")})
	}
	t.turn = &turn{id: f.file.Stem + "/" + strconv.Itoa(f.prompted)}
	s.Thread = agents.Main
	s.after("run", &events.RunCreated{Run: t.turn.ref()})
}

// update reads an update of a session.
func (f *fold) update(s *saying, t *talk, params rawjson.Members) {
	u := params.Object("update")
	switch kind := u.Text(kindMember); kind {
	case "usage_update":
		f.paid(s, t, u.Object("cost"))
	case "session_info_update":
		if title := u.Text("title"); title != "" && title != t.title {
			t.title = title
			s.after("title", agents.Titled(title))
		}
	case "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan":
		raw, _ := params.Get("update")
		if t.turn != nil {
			t.turn.add(s, kind, u, raw)
		}
	}
}

// add adds an update to a turn.
func (t *turn) add(s *saying, kind string, u rawjson.Members, raw json.RawMessage) {
	if t.size += len(raw); t.size > maxTurn {
		return
	}
	switch kind {
	case "tool_call", "tool_call_update":
		t.call(u, bytes.Clone(raw))
	case "plan":
		t.put(update{kind: kind, id: kind, raw: bytes.Clone(raw)})
	default:
		t.say(s, kind, u, raw)
	}
}

// say adds a piece of the agent's text or thoughts.
func (t *turn) say(s *saying, kind string, u rawjson.Members, raw json.RawMessage) {
	content := u.Object("content")
	text := content.Text("text")
	if content.Text("type") != "text" {
		t.updates = append(t.updates, update{kind: kind, raw: bytes.Clone(raw)})
		return
	}
	t.seq++
	s.after("delta", &events.RunProgressed{Run: t.ref(), Kind: kind, Thread: agents.Main, Turn: t.id, Seq: t.seq, Delta: agents.Spell(text)})
	id := u.Text("messageId")
	if last := len(t.updates) - 1; last >= 0 && t.updates[last].kind == kind && t.updates[last].id == id && t.updates[last].text != nil {
		t.updates[last].text = append(t.updates[last].text, text...)
		return
	}
	t.updates = append(t.updates, update{kind: kind, id: id, text: append([]byte{}, text...)})
}

// call adds a call of a tool, or merges an update into it.
func (t *turn) call(u rawjson.Members, raw json.RawMessage) {
	id := u.Text("toolCallId")
	for i := range t.updates {
		if t.updates[i].kind == "tool_call" && t.updates[i].id == id && len(t.updates[i].raw) <= maxCall {
			t.updates[i].raw = merged(t.updates[i].raw, u)
			return
		}
	}
	t.updates = append(t.updates, update{kind: "tool_call", id: id, raw: raw})
}

// put adds an update, or replaces its older version.
func (t *turn) put(u update) {
	for i := range t.updates {
		if t.updates[i].kind == u.kind && t.updates[i].id == u.id {
			t.updates[i] = u
			return
		}
	}
	t.updates = append(t.updates, u)
}

// finish ends a turn and makes a turn of the collected updates.
func (f *fold) finish(s *saying, t *talk, m said) {
	if t.turn == nil {
		return
	}
	done, result := t.turn, m.Object("result")
	t.turn = nil
	stop := result.Text("stopReason")
	if len(done.updates) > 0 {
		list := make([]json.RawMessage, len(done.updates))
		for i, u := range done.updates {
			list[i] = u.spell()
		}
		ref := done.ref()
		s.after("turn", &events.TurnAppended{Entries: []events.Entry{{Thread: agents.Main, ID: done.id, Run: &ref, Turn: agents.Spell(struct {
			Session string          `json:"sessionId"`
			Updates json.RawMessage `json:"updates"`
			Stop    string          `json:"stopReason,omitempty"`
		}{t.session[len(agentName)+len(f.agent)+2:], rawjson.AppendArray(nil, list), stop})}}})
	}
	end := &events.RunFinished{Run: done.ref(), Outcome: outcomeOf(stop, m), Result: events.Raw("{}")}
	if raw, ok := m.Get("error"); ok {
		end.Result = agents.Spell(struct {
			Error json.RawMessage `json:"error"`
		}{bytes.Clone(raw)})
	}
	if raw, ok := result.Get("usage"); ok {
		end.Usage = bytes.Clone(raw)
	}
	s.after("end", end)
	f.took(s, done, result)
}

// outcomeOf returns the outcome of a turn.
func outcomeOf(stop string, m said) string {
	switch stop {
	case "end_turn", "max_tokens":
		return "completed"
	case "cancelled":
		return "interrupted"
	}
	if token(stop) {
		return "stopped:" + stop
	}
	return "failed"
}
