package stream

import (
	"cmp"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/agents/codex"
)

// codexKind is codex exec --json. It prints items that begin, change and complete, and never prints the prompt.
var codexKind = outputFormat{name: "codex", session: "thread_id", silent: true, line: (*fold).codexLine,
	is: func(program string, args []string) bool {
		return program == "codex" && (slices.Contains(args, "exec") || slices.Contains(args, "e")) && (slices.Contains(args, "--json") || slices.Contains(args, "--experimental-json"))
	}}

func (f *fold) codexLine(s *saying) {
	switch s.kind {
	case "turn.started":
		f.finish(s, "stopped:unfinished", events.Raw("{}"), nil)
		f.start(s, "turn")
	case "item.completed", "error":
		s.main("")
	case "turn.completed":
		raw, _ := s.Get("usage")
		f.codexCost(s, clone(raw))
		f.finish(s, "completed", events.Raw("{}"), clone(raw))
	case "turn.failed":
		s.main("")
		f.finish(s, "failed", failure(s.Object("error").Text("message")), nil)
	}
}

// codexCost adds the usage of the thread so far. All such sums have the same response, the thread, so the largest
// counts: the last one.
func (f *fold) codexCost(s *saying, raw events.Raw) {
	f.spend(s, "", cmp.Or(f.model, "unknown"), agents.Response("exec/codex/"+cmp.Or(f.thread, f.file.Stem), cmp.Or(f.thread, f.file.Stem)), codex.Tokens(s.Object("usage")), raw)
}
