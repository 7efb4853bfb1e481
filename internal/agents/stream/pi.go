package stream

import (
	"cmp"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents/pi"
	"github.com/tallylog/tally/internal/rawjson"
)

// piKind is pi --mode json. It prints every change of a message, each time with the whole message.
var piKind = outputFormat{name: "pi", session: "id", line: (*fold).piLine,
	is: func(program string, args []string) bool {
		return program == "pi" && hasFlag(args, "json", "--mode") && !slices.Contains(args, "rpc")
	}}

func (f *fold) piLine(s *saying) {
	switch s.kind {
	case "session":
		f.about(s, s.Text("cwd"))
	case "agent_start":
		f.finish(s, "stopped:unfinished", events.Raw("{}"), nil)
		f.start(s, "turn")
		f.stop = ""
	case "message_update":
		if e := s.Object("assistantMessageEvent"); e.Text("type") == "text_delta" {
			f.piece(s, e.Text("delta"), "")
		}
	case "message_end":
		s.main("")
		f.piMessage(s, s.Object("message"))
	case "agent_end":
		f.finish(s, piOutcome(f.stop), events.Raw("{}"), nil)
	}
}

// piMessage reads a complete message.
func (f *fold) piMessage(s *saying, m rawjson.Members) {
	if m.Text("role") != "assistant" {
		return
	}
	f.done()
	f.speaks(s, m.Text("model"))
	f.stop = m.Text("stopReason")
	raw, _ := m.Get("usage")
	t, usd := pi.Usage(m)
	f.pay(s, cmp.Or(f.model, "unknown"), pi.Response(s.Members, m), t, usd, clone(raw))
}

// piOutcome returns the outcome of a run from the model's stop reason.
func piOutcome(stop string) string {
	switch stop {
	case "stop", "length":
		return "completed"
	case "aborted":
		return "interrupted"
	case "error":
		return "failed"
	}
	return "stopped:unfinished"
}
