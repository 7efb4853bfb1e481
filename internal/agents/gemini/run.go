package gemini

import (
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
)

// run is the open turn: from a prompt to the model's last message about it.
type run struct {
	id      string // of the prompt; "": none
	resting bool   // the model wrote a text, and called no tool since
	failed  string // the outcome after an error
	last    time.Time
	told    string // the outcome already reported, if no message came since
}

func (r *run) ref() events.RunRef { return events.RunRef{Kind: "turn", ID: r.id} }

// turn applies a message to the open turn.
func (f *fold) turn(s *saying, m message) {
	r := &f.run
	f.last = m.id
	if m.isPrompt() {
		f.prompt(s, m)
		return
	}
	switch m.kind {
	case "gemini":
		r.resting, r.failed = m.words() != "" && len(m.calls()) == 0, ""
	case "user":
		if !m.isAnswered() {
			return // written by the program in the user's name
		}
		r.resting = false
	case "error":
		r.failed = "failed"
	case "info":
		if strings.TrimSpace(m.words()) == cancelled {
			r.failed = "interrupted"
		}
	}
	r.told = ""
	if !m.time.IsZero() {
		r.last = m.time
	}
}

// cancelled is the text of Gemini CLI for a request that the user stopped.
const cancelled = "Request cancelled."

// prompt begins a turn and ends the one before.
func (f *fold) prompt(s *saying, m message) {
	if m.id == f.run.id || m.id == "" || len(m.id) > agents.MaxID {
		return
	}
	s.After = append(s.After, f.end(f.run.outcome(), "end"+s.key)...)
	f.run = run{id: m.id, last: m.time}
	p := &events.RunCreated{Run: f.run.ref()}
	p.CreatedAt = agents.Stamp(m.time)
	s.after("run", p, m.time)
}

// outcome returns the outcome of the turn if it ends now.
func (r *run) outcome() string {
	switch {
	case r.failed != "":
		return r.failed
	case r.resting:
		return "completed"
	}
	return "stopped:unfinished"
}

// end ends the turn.
func (f *fold) end(outcome, key string) []agents.Fact {
	facts := f.run.finish(outcome, key)
	f.run = run{}
	return facts
}

// finish reports an outcome, once.
func (r *run) finish(outcome, key string) []agents.Fact {
	if r.id == "" || r.told == outcome {
		return nil
	}
	r.told = outcome
	p := &events.RunFinished{Run: r.ref(), Outcome: outcome, Result: events.Raw("{}")}
	p.FinishedAt = agents.Stamp(r.last)
	return []agents.Fact{{Key: key, Time: r.last, Payload: p}}
}
