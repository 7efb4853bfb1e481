package codex

import (
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

func runOf(id string) events.RunRef { return events.RunRef{Kind: "turn", ID: id} }

// started begins a turn. An open turn was interrupted, because Codex was ended. If turns have no ids, their id is the
// position of their beginning.
func (f *fold) started(s *saying) {
	f.task = s.at
	if f.copied.now() {
		return
	}
	id := s.payload.Text("turn_id")
	if id == "" || len(id) > agents.MaxID {
		id = f.name.id + "@" + strconv.FormatInt(s.at, 10)
	}
	if f.run != "" && f.run != id {
		f.end(s, "lost", f.run, "interrupted", nil)
	}
	f.run = id
	s.after("run", &events.RunCreated{Run: runOf(id), CreatedAt: agents.Stamp(s.time)})
}

// finished ends a turn.
func (f *fold) finished(s *saying, outcome string) {
	f.task = -1
	if f.copied.now() {
		return
	}
	id := s.payload.Text("turn_id")
	if id == "" || len(id) > agents.MaxID {
		id = f.run
	}
	if id == "" {
		return
	}
	if value(s.payload, "error") != nil {
		outcome = "failed"
	}
	f.end(s, "end", id, outcome, s.payload)
	f.run = ""
}

// end adds the end of a turn. The model's last message is already in the thread.
func (f *fold) end(s *saying, key, id, outcome string, said rawjson.Members) {
	var result rawjson.Members
	for _, name := range []string{"reason", "error", "duration_ms", "time_to_first_token_ms"} {
		if raw := value(said, name); raw != nil {
			result = append(result, rawjson.Member{Name: name, Value: raw})
		}
	}
	raw, err := rawjson.Marshal(result)
	if err != nil {
		raw = []byte("{}") // cannot happen: the values were parsed
	}
	s.after(key, &events.RunFinished{Run: runOf(id), Outcome: outcome, Result: raw, FinishedAt: agents.Stamp(s.time)})
}

// rolledBack removes the newest turns of the user, by a rewind to before the line that began the oldest of them. If
// there are fewer, it removes all.
func (f *fold) rolledBack(s *saying) {
	n, _ := count(s.payload, "num_turns")
	if n == 0 || len(f.asked) == 0 {
		return
	}
	keep := len(f.asked) - int(min(n, int64(len(f.asked))))
	to := f.asked[keep]
	f.asked, f.task = f.asked[:keep], -1
	raw := append(append([]byte(`{"num_turns":`), strconv.FormatInt(n, 10)...), '}')
	s.Before = append(s.Before, agents.Fact{Key: "rewound" + s.key, Time: s.time,
		Payload: &events.SessionRewound{Reason: sourceReason, Raw: raw}, Position: &agents.Position{Stem: f.file.Stem, End: to}})
}
