package codex

import (
	"strconv"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/shapes"
	"github.com/tallylog/tally/internal/rawjson"
)

// fold is the state of a file.
type fold struct {
	file   agents.File
	name   rollout
	begun  bool // the first line was read
	copied copies
	spent  spending
	model  string        // the current model, "" if unknown
	models agents.Models // all models, in the order of their first messages
	run    string        // the open turn, or ""
	task   int64         // start of the line that began the turn; -1 after a user's message in it
	asked  []int64       // start of each turn of the user, which a rollback counts
	items  bool          // the screen shows items
	shown  string        // the model's message that was reported last
	unsaid string        // the message that was not reported before it came
	title  string        // the user's name for the thread
}

func newFold(f agents.File) *fold {
	r, _ := rolloutOf(f.Name)
	r.thread, r.id = strings.TrimPrefix(f.Session, agentName+"/"), f.Stem
	return &fold{file: f, name: r, task: -1}
}

// Quiet implements agents.Fold. Codex writes the end of a turn itself.
func (f *fold) Quiet() []agents.Fact { return nil }

// Line implements agents.Fold.
func (f *fold) Line(at agents.Span, line []byte) agents.Meaning {
	m := agents.Meaning{Thread: agents.Log}
	list := entriesOf(line)
	if !f.begun {
		f.begun = true
		m.Before = f.beginning(list)
	}
	for i, e := range list {
		said := &saying{Meaning: &m, at: at.Start, entry: e}
		if i > 0 {
			said.key = "/" + strconv.Itoa(i)
		}
		f.entry(said)
		if !e.time.IsZero() {
			m.Time = e.time
		}
	}
	return m
}

// saying is an entry while it is read.
type saying struct {
	*agents.Meaning
	entry
	at  int64  // start of its line
	key string // suffix of the keys of its facts
}

// after adds a fact.
func (s *saying) after(key string, p events.Payload) {
	s.After = append(s.After, agents.Fact{Key: key + s.key, Time: s.time, Payload: p})
}

// main puts the entry into the conversation.
func (s *saying) main(id string) {
	s.Thread = agents.Main
	if len(id) <= agents.MaxID {
		s.Turn = id
	}
}

func (f *fold) entry(s *saying) {
	f.copied.last = s.ordinal
	switch s.kind {
	case metaLine:
		f.items = s.payload.Text("history_mode") == "paginated"
		f.copied.meta(f.name.thread, s)
	case itemLine:
		f.item(s)
	case compactedLine:
		if !f.copied.hidden() {
			s.main("")
		}
	case contextLine:
		f.copied.turn(f.name.thread, s)
		f.speaks(s, s.payload.Text("model"))
	case usageLine:
		f.record(s)
	case eventLine:
		f.event(s)
	}
}

func (f *fold) event(s *saying) {
	switch s.event {
	case "task_started", "turn_started":
		f.copied.turn(f.name.thread, s)
		f.started(s)
	case "task_complete", "turn_complete":
		f.finished(s, "completed")
	case "turn_aborted":
		f.finished(s, "interrupted")
	case "token_count":
		f.counted(s)
	case "thread_rolled_back":
		f.rolledBack(s)
	case "thread_settings_applied":
		f.speaks(s, s.payload.Object("thread_settings").Text("model"))
	case "thread_name_updated":
		f.named(s)
	case "item_completed":
		f.completed(s, s.payload.Object("item"))
	}
}

// completed reads an item of the screen. A plan is not an item of the model's conversation, so no other line has it.
func (f *fold) completed(s *saying, item rawjson.Members) {
	id, isShown := item.Text("id"), false
	switch item.Text("type") {
	case "Plan":
		isShown = true
	case "AgentMessage":
		f.shown = id
		isShown = id != "" && id == f.unsaid
	}
	if isShown && !f.copied.hidden() {
		s.main(id)
	}
}

// item reads an item of the model's conversation. The screen shows neither Codex' own messages to the model nor the
// model's answers to them. If the screen shows items, an answer is reported as one before its line; the summary for a
// compaction is not reported.
func (f *fold) item(s *saying) {
	if f.copied.hidden() {
		return
	}
	who := ""
	if s.event == "message" {
		who = speaker(s.raw)
	}
	switch who {
	case "system", "developer":
		return
	case "user":
		f.asked = append(f.asked, s.at)
		if f.task >= 0 {
			f.asked[len(f.asked)-1], f.task = f.task, -1
		}
	case "assistant":
		if id := s.payload.Text("id"); f.items && id != "" && id != f.shown {
			f.unsaid = id
			return
		}
	}
	s.main(s.payload.Text("id"))
}

// speaker returns the speaker of a message's line: the user, if any part of it is theirs.
func speaker(raw []byte) string {
	o, ok := shapes.Open("", raw)
	if !ok || !Line.Is(o) {
		return ""
	}
	who := ""
	for _, p := range Line.Turn(o).Parts {
		if who == "" || p.Role == "user" {
			who = p.Role
		}
	}
	return who
}

// speaks sets the current model and adds it to the session's models.
func (f *fold) speaks(s *saying, model string) {
	if model == "" || len(model) > agents.MaxID {
		return
	}
	f.model = model
	if f.copied.now() || !f.models.Add(model) {
		return
	}
	s.after("models", &events.SessionUpdated{Set: events.Fields{f.models.Field()}})
}
