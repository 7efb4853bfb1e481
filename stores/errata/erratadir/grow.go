package erratadir

import (
	"context"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/stores/errata/internal/panel"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

var _ layouts.Grower = Layout{}

// grown is the state of the prompts between calls of Growth.
type grown struct {
	format events.FileFormat
	turns  sessiondir.Grown
}

// Growth implements layouts.Grower for prompt_history.jsonl, to which prompts are appended. Every other file is one
// JSON value.
func (Layout) Growth(ctx context.Context, src layouts.Source, root layouts.Root, entry events.Subject, at string, since events.Offset, others []events.Subject, known any) (layouts.Growth, bool, error) {
	if len(others) > 0 || !entry.IsSession() || entry.ID != promptsID || at != promptsName {
		return layouts.Growth{}, false, nil
	}
	g, ok := known.(grown)
	var err error
	if ok {
		g.turns, ok, err = g.turns.Next(ctx, src, entry, since, promptsID)
	}
	if err == nil && !ok {
		g, ok, err = grownSince(ctx, src, root, entry, since)
	}
	if err != nil || !ok || g.turns.Had == 0 {
		return layouts.Growth{}, false, err
	}
	var list []events.Raw
	for i := range g.turns.Turns {
		list = append(list, panel.RawOf(&g.turns.Turns[i]))
	}
	more, err := sessiondir.MoreLines(g.format, g.turns.Had, list, false)
	g.turns = g.turns.Known()
	return layouts.Growth{Added: []layouts.Addition{{Path: at, Data: more}}, Known: g}, err == nil, err
}

func grownSince(ctx context.Context, src layouts.Source, root layouts.Root, entry events.Subject, since events.Offset) (g grown, ok bool, err error) {
	o, err := sessiondir.Outline(ctx, src, store{}, root, entry)
	if err != nil {
		return g, false, err
	}
	var spelled bool
	if g.format, spelled = o.Ledger().Formats[sessiondir.KeyOf(promptsName)]; g.format.Doc != "" || g.format.Gone {
		return g, false, nil
	}
	if !spelled {
		g.format.FinalNewline = true
	}
	g.turns, ok, err = sessiondir.GrownSince(ctx, src, o, since, promptsID)
	return g, ok, err
}
