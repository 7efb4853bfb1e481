package stream

import (
	"cmp"
	"encoding/json"
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/rawjson"
)

// geminiKind is gemini --output-format stream-json. It prints the text of the model in pieces, and never as a whole.
var geminiKind = outputFormat{name: "gemini", session: "session_id", inPieces: true, line: (*fold).geminiLine,
	is: func(program string, args []string) bool {
		return program == "gemini" && hasFlag(args, "stream-json", "--output-format", "-o")
	}}

func (f *fold) geminiLine(s *saying) {
	role := s.Text("role")
	if raw, _ := s.Get("delta"); s.kind == "message" && string(raw) == "true" && role == "assistant" {
		f.piece(s, s.Text("content"), f.saidID())
		return
	}
	if s.kind != "" {
		f.whole(s)
	}
	switch s.kind {
	case "init":
		f.speaks(s, s.Text("model"))
	case "message":
		s.main("")
		if role == "user" {
			f.finish(s, "stopped:unfinished", events.Raw("{}"), nil)
			f.start(s, "turn")
		}
	case "tool_use", "tool_result", "error":
		s.main("")
	case "result":
		f.geminiResult(s)
	}
}

// saidID returns the id of the turn for the collected pieces.
func (f *fold) saidID() string { return f.file.Stem + "/said/" + strconv.Itoa(f.text.said+1) }

// said returns the turn for the collected pieces: a message in the form that the program uses for whole messages.
func (f *fold) said() events.Entry {
	e := events.Entry{Thread: agents.Main, ID: f.saidID(), Turn: agents.Spell(struct {
		Type    string          `json:"type"`
		Time    json.RawMessage `json:"timestamp,omitempty"`
		Role    string          `json:"role"`
		Content string          `json:"content"`
	}{"message", f.text.at, "assistant", valid(string(f.text.text))})}
	if f.run.ID != "" {
		ref := f.run.RunRef
		e.Run = &ref
	}
	return e
}

// geminiResult reads the end of a run and the usage of each model.
func (f *fold) geminiResult(s *saying) {
	stats := s.Object("stats")
	models := stats.Object("models")
	for i, m := range models {
		u, _ := rawjson.Object(m.Value)
		f.geminiCost(s, "/"+strconv.Itoa(i), cut(m.Name), u)
	}
	if len(models) == 0 {
		f.geminiCost(s, "", f.model, stats)
	}
	raw, _ := s.Get("stats")
	if s.Text("status") == "success" {
		f.finish(s, "completed", events.Raw("{}"), clone(raw))
		return
	}
	s.main("")
	f.finish(s, "failed", failure(s.Object("error").Text("message")), clone(raw))
}

// geminiCost adds the usage of a model. The input includes cached tokens. Tokens of the total that are in neither
// input nor output are reasoning.
func (f *fold) geminiCost(s *saying, key, model string, u rawjson.Members) {
	in, out := agents.Count(u, "input_tokens"), agents.Count(u, "output_tokens")
	thought := max(agents.Count(u, "total_tokens")-in-out, 0)
	t := events.Tokens{Input: in, Output: out + thought, Reasoning: thought, CacheRead: agents.Count(u, "cached")}
	if t.CacheRead <= in {
		t.Input -= t.CacheRead
	}
	f.spend(s, key, cmp.Or(model, f.model, "unknown"), "", t, nil)
}
