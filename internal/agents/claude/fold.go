package claude

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
)

// fold is what is known of a transcript.
type fold struct {
	file  agents.File
	tree  *tree
	about about
	run   run
	costs costs
	begun bool // the session's beginning was told
}

func newFold(f agents.File) *fold { return &fold{file: f, tree: newTree()} }

// ofSession reports whether the file is the session's own, and no sub-agent's.
func (f *fold) ofSession() bool { return f.file.Thread == agents.Main }

// Line says what the next line means.
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
	if !f.begun { // whatever the first line is, it begins the session
		m.Before = append([]agents.Fact{f.beginning(nil)}, m.Before...)
	}
	return m
}

// Quiet says which turn is over and what its responses took, if nothing more comes.
func (f *fold) Quiet() []agents.Fact {
	facts := f.costs.flush()
	if f.run.open() && f.run.resting {
		facts = append(facts, f.run.finish(f.run.outcome(), nil)...)
	}
	return prefixed("quiet/", facts)
}

// otherwise is the thread of a line that is no message.
func (f *fold) otherwise() string {
	if f.ofSession() {
		return agents.Log
	}
	return f.file.Thread
}

// noted is an entry at its place in the transcript.
type noted struct {
	speech speech
	node   int32 // in the tree; nowhere: it has no uuid
	first  bool  // it did not come before
	again  bool  // it came before, and says the same
	goes   *agents.Position
	thread string
	turn   string
}

// entry notes an entry, and says where it stands.
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
	if n.again = n.again && e.isMessage() && e.spelled != ""; n.again { // kept, and no second turn
		n.thread = agents.Log
		return n
	}
	n.thread = f.threadOf(e, n.node)
	if e.isMessage() {
		n.turn = cmp.Or(e.message.Text("id"), e.uuid)
	}
	return n
}

// goesBack returns the place to which a prompt goes back, nil if it goes on.
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

// threadOf returns the thread that an entry stands in. What a sub-agent says without an
// id, as it does in the files of version 1, stands in the thread of its first entry.
func (f *fold) threadOf(e *entry, node int32) string {
	if !f.ofSession() || !e.isMessage() {
		return f.otherwise()
	}
	id := ""
	switch {
	case !e.side:
		return agents.Main
	case e.agent != "":
		id = e.agent
	case node != nowhere && f.tree.nodes[node].chain > 0:
		id = f.tree.chains[f.tree.nodes[node].chain-1]
	}
	if id == "" || len(agentThread(id)) > events.MaxIDLen {
		return agents.Log
	}
	return agentThread(id)
}

// identity returns the id of a line that is one entry. A uuid is it once a file.
func (f *fold) identity(e *entry, n noted) string {
	if n.node == nowhere || !token(e.uuid) || f.tree.nodes[n.node].marks&named != 0 {
		return ""
	}
	f.tree.nodes[n.node].marks |= named
	return e.uuid
}

// facts are what follows from an entry.
type facts struct{ before, after []agents.Fact }

// told returns what follows from an entry. What comes again is not told again.
func (f *fold) told(at agents.Span, e *entry, n noted) facts {
	var out facts
	if !f.begun {
		out.before = append(out.before, f.beginning(e))
	}
	if f.ofSession() {
		out.after = append(out.after, f.about.update(f, e, n)...)
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

// links spells what an entry is and what it follows.
func links(e *entry) events.Raw {
	raw := append([]byte(`{"uuid":`), text(e.uuid)...)
	parent := json.RawMessage("null")
	if e.parent != "" {
		parent = text(e.parent)
	}
	return append(append(append(raw, `,"parentUuid":`...), parent...), '}')
}

func prefixed(prefix string, list []agents.Fact) []agents.Fact {
	for i := range list {
		list[i].Key = prefix + list[i].Key
	}
	return list
}
