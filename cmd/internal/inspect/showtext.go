package inspect

import (
	"fmt"
	"slices"

	"github.com/tallylog/tally/cmd/internal/show"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

func (v *viewer) writeText(s *projector.Session, gone []projector.TurnAt) error {
	p := newPage(v)
	p.Header(s)
	p.Folds = s.Ledger.Kind == events.KindTranscript && v.Tools != show.ToolsFull
	aside := v.aside(s)
	for _, name := range v.Names(s) {
		if slices.Contains(aside, name) {
			continue
		}
		turns := s.Threads.Turns(name)
		before := v.Before[name]
		p.Printf("\n%s\n", p.Style.Bold(render.Cut(name+", "+plain.Count(before+len(turns), "turn"), p.Width)))
		for i, t := range turns {
			p.Turn(fmt.Sprintf("#%d", before+i+1), name, t)
		}
	}
	p.sayAside(v, s, aside)
	p.Gone(slices.DeleteFunc(gone, func(t projector.TurnAt) bool { return v.Thread != "" && t.Thread != v.Thread }))
	return p.Err
}

// aside lists the threads of an agent's session that are not shown by default: the agent's log, and its sub-agents. The
// last word of a sub-agent is in the conversation, as the result of a call.
func (v *viewer) aside(s *projector.Session) (names []string) {
	if s.Ledger.Kind != events.KindTranscript || v.Thread != "" || v.All {
		return nil
	}
	for _, name := range s.Threads.Names() {
		if name == events.LogThread || name != events.MainThread && len(s.Threads.Turns(events.MainThread)) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// sayAside prints which threads are not shown.
func (p threadsPage) sayAside(v *viewer, s *projector.Session, names []string) {
	var list []string
	for _, name := range names {
		if n := v.Before[name] + len(s.Threads.Turns(name)); n > 0 {
			list = append(list, fmt.Sprintf("%s, %s", name, plain.Count(n, "turn")))
		}
	}
	if len(list) == 0 {
		return
	}
	p.Printf("\n")
	for i, text := range list {
		if i == 0 {
			text += "  (beside the conversation: --thread NAME shows it)"
		}
		p.Printf("%s\n", p.Style.Dim(render.Cut(text, p.Width)))
	}
}
