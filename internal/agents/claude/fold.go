package claude

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
)

// fold is the state of a transcript.
type fold struct {
	file  agents.File
	tree  *tree
	info  sessionInfo
	run   runState
	costs costs
	begun bool // the session's beginning was reported
}

func newFold(f agents.File) *fold { return &fold{file: f, tree: newTree()} }

// ofSession reports whether the file is the session's own, not a sub-agent's.
func (f *fold) ofSession() bool { return f.file.Thread == agents.Main }

// Line implements agents.Fold.
func (f *fold) Line(at agents.Span, line []byte) agents.Meaning {
	list := agents.Values(line, isOurs)
	m := agents.Meaning{Thread: f.otherwise()}
	for i, v := range list {
		e := newEntry(v.Members)
		n := f.entry(at, &e)
		told := f.told(at, &e, n)
		prefix := ""
		if i > 0 {
			prefix = fmt.Sprintf("%d/", i+1)
		}
		m.Before = append(m.Before, prefixed(prefix, told.before)...)
		m.After = append(m.After, prefixed(prefix, told.after)...)
		if i == 0 || m.Thread == agents.Log {
			m.Thread, m.Turn = n.thread, n.turn
		}
		if m.Time.IsZero() {
			m.Time = e.time
		}
		if len(list) == 1 {
			m.ID = f.identity(&e, n)
		}
	}
	if !f.begun { // the first line of any kind begins the session
		m.Before = append([]agents.Fact{f.beginning(nil)}, m.Before...)
	}
	return m
}

// Quiet implements agents.Fold. It returns the end of the turn and the costs of its responses, as if no more lines
// come.
func (f *fold) Quiet() []agents.Fact {
	facts := f.costs.flush()
	if f.run.open() && f.run.resting {
		facts = append(facts, f.run.finish(f.run.outcome(), nil)...)
	}
	return prefixed("quiet/", facts)
}

// otherwise returns the thread of a line that is not a message.
func (f *fold) otherwise() string {
	if f.ofSession() {
		return agents.Log
	}
	return f.file.Thread
}

// noted is an entry with its position in the transcript.
type noted struct {
	speech speech
	node   int32 // index in the tree; nowhere: it has no uuid
	first  bool  // the first entry of its id
	again  bool  // an equal entry came before
	goes   *agents.Position
	thread string
	turn   string
}

// entry adds an entry to the tree and returns its position.
func (f *fold) entry(at agents.Span, e *entry) noted {
	n := noted{speech: speechOf(e), node: nowhere, first: true}
	if e.uuid != "" {
		if f.ofSession() && !e.side && n.speech.prompts() {
			n.goes = f.goesBack(e)
		}
		n.node, n.first, n.again = f.tree.come(e, n.speech, at.Start, at.End)
	}
	if e.kind == "system" && e.subtype == "compact_boundary" {
		f.tree.cut = true
	}
	if n.again = n.again && e.isMessage() && e.spelled != ""; n.again { // a duplicate: it is kept, but not as a second turn
		n.thread = agents.Log
		return n
	}
	n.thread = f.threadOf(e, n.node)
	if e.isMessage() {
		n.turn = cmp.Or(e.message.Text("id"), e.uuid)
	}
	return n
}

// goesBack returns the position to which a prompt goes back, nil if it does not.
func (f *fold) goesBack(e *entry) *agents.Position {
	if f.tree.has(e.uuid) {
		return nil
	}
	end, ok := f.tree.rewound(e)
	if !ok {
		return nil
	}
	return &agents.Position{Stem: f.file.Stem, End: end}
}

// threadOf returns the thread of an entry. A sub-agent without an id, as in the files of version 1, has the thread of
// its first entry.
func (f *fold) threadOf(e *entry, at int32) string {
	if !f.ofSession() || !e.isMessage() {
		return f.otherwise()
	}
	id := ""
	switch {
	case !e.side:
		return agents.Main
	case e.agent != "":
		id = e.agent
	case at != nowhere && f.tree.nodes[at].chain > 0:
		id = f.tree.chains[f.tree.nodes[at].chain-1]
	}
	if id == "" || len(agentThread(id)) > events.MaxIDLen {
		return agents.Log
	}
	return agentThread(id)
}

// identity returns the id of a line with one entry: its uuid, once in a file.
func (f *fold) identity(e *entry, n noted) string {
	if n.node == nowhere || !token(e.uuid) || f.tree.nodes[n.node].marks&named != 0 {
		return ""
	}
	f.tree.nodes[n.node].marks |= named
	return e.uuid
}

// entryFacts are the facts of an entry.
type entryFacts struct{ before, after []agents.Fact }

// told returns the facts of an entry, none for a duplicate.
func (f *fold) told(at agents.Span, e *entry, n noted) entryFacts {
	var out entryFacts
	if !f.begun {
		out.before = append(out.before, f.beginning(e))
	}
	if f.ofSession() {
		out.after = append(out.after, f.info.update(f, e, n)...)
	}
	if n.goes != nil {
		out.before = append(out.before, agents.Fact{Key: "rewind", Position: n.goes, Payload: &events.SessionRewound{Reason: "source", Raw: links(e)}})
	}
	if n.first {
		out.after = append(out.after, f.turn(e, n)...)
	}
	if n.speech == answered && !n.again {
		out.after = append(out.after, f.costs.take(e, n.thread, f.run.refOf(n.thread))...)
	}
	return out
}

// links returns the id of an entry and of its parent as JSON.
func links(e *entry) events.Raw {
	raw := append([]byte(`{"uuid":`), jsonString(e.uuid)...)
	parent := json.RawMessage("null")
	if e.parent != "" {
		parent = jsonString(e.parent)
	}
	return append(append(append(raw, `,"parentUuid":`...), parent...), '}')
}

func prefixed(prefix string, list []agents.Fact) []agents.Fact {
	for i := range list {
		list[i].Key = prefix + list[i].Key
	}
	return list
}
