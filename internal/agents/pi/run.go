package pi

import (
	"strconv"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
)

// run is the open turn: from the user's message to the answer that stops.
type run struct {
	id   string // "": none
	over bool   // its outcome was reported
	last time.Time
}

// turn applies a message to the open turn.
func (f *fold) turn(s *saying, role string) {
	switch role {
	case "user":
		f.prompt(s)
	case "assistant":
		f.answer(s)
	case "toolResult":
		f.run.last = s.time
	}
}

// prompt begins a turn. A turn that is still open is stopped. If entries have no ids, the turn's id is its position.
func (f *fold) prompt(s *saying) {
	id := s.id
	if id == "" || len(id) > agents.MaxID {
		id = f.file.Stem + "@" + strconv.FormatInt(s.at.Start, 10)
	}
	if id == f.run.id {
		return // a copy of all entries
	}
	if f.run.id != "" && !f.run.over {
		f.finish(s, "lost", "stopped:unfinished")
	}
	f.run = run{id: id, last: s.time}
	s.after("run", &events.RunCreated{Run: f.run.ref(), CreatedAt: agents.Stamp(s.time)})
}

// answer reads why the model stopped.
func (f *fold) answer(s *saying) {
	f.run.last = s.time
	outcome := ""
	switch s.message.Text("stopReason") {
	case "stop", "length":
		outcome = "completed"
	case "error":
		outcome = "failed"
	case "aborted":
		outcome = "interrupted"
	}
	if outcome != "" && f.run.id != "" {
		f.finish(s, "end", outcome)
	}
}

func (r *run) ref() events.RunRef { return events.RunRef{Kind: "turn", ID: r.id} }

func (f *fold) finish(s *saying, key, outcome string) {
	result := []byte("{}")
	if text := s.message.Text("errorMessage"); text != "" && key == "end" {
		result = agents.Spell(struct {
			Error string `json:"error"`
		}{text})
	}
	f.run.over = true
	s.after(key, &events.RunFinished{Run: f.run.ref(), Outcome: outcome, Result: result, FinishedAt: agents.Stamp(f.run.last)})
}
