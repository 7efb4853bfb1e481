package claude

import (
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
)

// kindTurn is the kind of a run that is a turn: from a prompt to the end of the model's work on it.
const kindTurn = "turn"

// runState is the open turn of the session's own conversation.
type runState struct {
	id      string    // uuid of its prompt; "": none
	begun   time.Time // time of the prompt
	created bool      // it was reported
	resting bool      // the model wrote a text, and called no tool since
	failed  bool      // its last message is an error of the service
	last    time.Time // time of the last message
	told    string    // the outcome already reported, if no message came since
}

func (r *runState) open() bool { return r.id != "" && r.created }

func (r *runState) ref() events.RunRef { return events.RunRef{Kind: kindTurn, ID: r.id} }

// refOf returns the turn that a message in a thread belongs to, nil if that is unknown. A sub-agent in a file of its
// own may work longer than the turn.
func (r *runState) refOf(thread string) *events.RunRef {
	if !r.open() || thread == agents.Log {
		return nil
	}
	ref := r.ref()
	return &ref
}

// turn returns the facts of an entry about turns.
func (f *fold) turn(e *entry, n noted) []agents.Fact {
	if n.thread != agents.Main && e.kind != "system" || !f.ofSession() || e.side {
		return nil
	}
	r := &f.run
	switch {
	case n.speech.prompts():
		return f.begin(e, n.speech)
	case n.speech == interrupted:
		return f.end("interrupted", nil, e)
	case n.speech == blocked:
		return f.end("stopped:hook", nil, e)
	case e.kind == "system" && e.subtype == "turn_duration":
		return f.end(r.outcome(), e, e)
	case n.speech == answered:
		return r.answer(e)
	case n.speech == returned:
		r.hear(e)
	}
	return nil
}

// begin begins a turn and ends the one before. A command is a turn only if the model answers it.
func (f *fold) begin(e *entry, s speech) []agents.Fact {
	facts := f.end(f.run.outcome(), nil, nil)
	f.run = runState{id: e.uuid, begun: e.time, last: e.time}
	if s == asked {
		facts = append(facts, f.run.create()...)
	}
	return facts
}

func (r *runState) create() []agents.Fact {
	if r.id == "" || r.created {
		return nil
	}
	r.created = true
	p := &events.RunCreated{Run: r.ref()}
	p.CreatedAt = agents.Stamp(r.begun)
	return []agents.Fact{{Key: "run", Time: r.begun, Payload: p}}
}

// hear records a message of the model or a tool.
func (r *runState) hear(e *entry) {
	r.told, r.resting = "", false
	if !e.time.IsZero() {
		r.last = e.time
	}
}

// answer records a message of the model.
func (r *runState) answer(e *entry) []agents.Fact {
	r.hear(e)
	r.failed = isTrue(e.Members, "isApiErrorMessage")
	switch e.message.Text("stop_reason") {
	case "", "end_turn", "stop_sequence", "max_tokens", "refusal":
		blocks := e.blocks()
		r.resting = len(blocks) == 0 || blocks[len(blocks)-1].Text("type") == "text"
	}
	return r.create()
}

// outcome returns the outcome of the turn if it ends now.
func (r *runState) outcome() string {
	switch {
	case r.failed:
		return "failed"
	case r.resting:
		return "completed"
	}
	return "stopped:unfinished" // the program was probably killed
}

// end ends the turn. measured is the entry with its duration, last is its last entry; either may be nil.
func (f *fold) end(outcome string, measured, last *entry) []agents.Fact {
	facts := f.costs.flush()
	if last != nil && !last.time.IsZero() {
		f.run.last = last.time
	}
	if f.run.open() {
		facts = append(facts, f.run.finish(outcome, measured)...)
	}
	f.run = runState{}
	return facts
}

// finish reports an outcome, once.
func (r *runState) finish(outcome string, measured *entry) []agents.Fact {
	if r.told == outcome {
		return nil
	}
	r.told = outcome
	p := &events.RunFinished{Run: r.ref(), Outcome: outcome, Result: events.Raw("{}")}
	if measured != nil {
		if took, _ := measured.Get("durationMs"); isDuration(took) {
			p.Result = append(append([]byte(`{"durationMs":`), took...), '}')
		}
	}
	p.FinishedAt = agents.Stamp(r.last)
	return []agents.Fact{{Key: "end/" + keyed(r.id), Time: r.last, Payload: p}}
}
