package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// Event summarizes the content of an event in at most width columns. It returns "" if the type of the event says
// everything, or if the content was erased.
func Event(f projector.Fact, width int) string {
	if f.Erased() != "" {
		return ""
	}
	if f.Type == events.TypeDocumentWritten {
		return plain.Bytes(int64(len(f.Data))) + " " + Cut(f.ContentType, width)
	}
	if f.Invalid != nil {
		return ""
	}
	switch p := f.Payload.(type) {
	case *events.SessionCreated:
		if p.Fork != nil {
			return Cut(fmt.Sprintf("%s, fork of %s at %v", p.Kind, p.Fork.Session, p.Fork.Offset), width)
		}
		return Cut(p.Kind+" "+p.Title, width)
	case *events.SessionUpdated:
		var names []string
		for _, f := range p.Set {
			names = append(names, f.Name)
		}
		return Cut(strings.Join(names, ", "), width)
	case *events.TurnAppended:
		return firstTurn(p, width)
	case *events.ThreadReplaced:
		return Cut(strings.Join(slices.Sorted(maps.Keys(p.Threads)), ", ")+" ("+p.Reason+")", width)
	case *events.ThreadTruncated:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(p.Lengths)) {
			parts = append(parts, fmt.Sprintf("%s to %d", name, p.Lengths[name]))
		}
		return Cut(strings.Join(parts, ", "), width)
	case *events.ThreadPinned:
		return Cut(p.Thread+", "+plain.Count(len(p.Pins), "turn"), width)
	case *events.SessionRewound:
		text := "to " + p.To.String()
		if p.Undoes != 0 {
			text += ", takes back " + p.Undoes.String()
		}
		return Cut(text+" "+p.Reason, width)
	case *events.RunCreated:
		return Cut(p.Run.String(), width)
	case *events.RunStarted:
		return Cut(p.Run.String(), width)
	case *events.RunProgressed:
		return Cut(p.Run.String()+" "+p.Kind, width)
	case *events.RunFinished:
		return Cut(p.Run.String()+" "+p.Outcome, width)
	case *events.RunAnnotated:
		return Cut(p.Run.String(), width)
	case *events.CheckpointSaved:
		return Cut(p.Kind+" "+p.ID, width)
	case *events.CheckpointCleared:
		return Cut(p.Kind+" "+p.ID, width)
	case *events.CostAccrued:
		if p.USD == "" {
			return Cut(p.Model, width)
		}
		return Cut(fmt.Sprintf("%s USD %s", p.Model, p.USD), width)
	}
	return ""
}

// firstTurn summarizes the first turn of an event, and the number of further turns.
func firstTurn(p *events.TurnAppended, width int) string {
	if len(p.Entries) == 0 {
		return ""
	}
	e := p.Entries[0]
	thread, more := Cut(e.Thread, width)+"  ", ""
	if len(p.Entries) > 1 {
		more = fmt.Sprintf("  (+%d)", len(p.Entries)-1)
	}
	if columns(thread+more)+enoughColumn > width {
		more = "" // the turn matters more
	}
	return Cut(thread+Summary(projector.Turn{Raw: e.Turn, Bytes: e.Bytes}, max(width-columns(thread+more), 0))+more, width)
}
