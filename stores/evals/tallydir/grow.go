package tallydir

import (
	"context"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/formats"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/evals/internal/steps"
	"github.com/tallylog/tally/stores/internal/foreign"
)

var _ formats.Grower = Layout{}

// Growth implements formats.Grower: steps are appended to conversation.jsonl. Where there are step
// traces, they may follow from the steps, and are written anew.
func (Layout) Growth(ctx context.Context, src formats.Source, root formats.Root, unit events.Subject, at string, since events.Offset) ([]formats.Addition, bool, error) {
	if !unit.IsSession() {
		return nil, false, nil
	}
	g, ok, err := units.Grown(ctx, src, root, unit, since)
	if err != nil || !ok || pathOf(g.Outline) != at {
		return nil, false, err
	}
	f, known := g.Ledger().Formats[foreign.KeyOf(turnsName)]
	if f.Doc != "" || f.Gone || mayHaveTraces(g.Outline) {
		return nil, false, nil
	}
	had, turns, err := g.Turns(ctx, events.MainThread)
	if err != nil || had == 0 {
		return nil, false, err
	}
	var list []events.Raw
	for i := range turns {
		list = append(list, rawOf(&turns[i]))
	}
	more, err := foreign.MoreLines(f, had, list, !known)
	return []formats.Addition{{Path: at + "/" + turnsName, Data: more}}, err == nil, err
}

// mayHaveTraces reports whether a session has step traces, or had some: see steps.HasTraces.
func mayHaveTraces(o *projector.Outline) bool {
	_, known := o.Ledger().Formats[foreign.KeyOf(tracesName)]
	_, simulated := o.Ledger().Fields.Get("trajectory")
	return known || simulated || slices.Contains(o.Names(), steps.TracesThread)
}
