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
	o, err := units.Outline(ctx, src, root, unit)
	if err != nil || pathOf(o) != at || mayHaveTraces(o) {
		return nil, false, err
	}
	f, known := o.Ledger().Formats[foreign.KeyOf(turnsName)]
	if f.Doc != "" || f.Gone {
		return nil, false, nil
	}
	g, ok, err := foreign.GrownSince(ctx, src, o, since, unshown...)
	if err != nil || !ok {
		return nil, false, err
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

// unshown are types of events that no file shows, beside turns: a run has one when it is finished.
var unshown = []string{events.TypeRunCreated, events.TypeRunStarted, events.TypeRunProgressed, events.TypeRunAnnotated, events.TypeCostAccrued}

// mayHaveTraces reports whether a session has step traces, or had some: see steps.HasTraces.
func mayHaveTraces(o *projector.Outline) bool {
	_, known := o.Ledger().Formats[foreign.KeyOf(tracesName)]
	_, simulated := o.Ledger().Fields.Get("trajectory")
	return known || simulated || slices.Contains(o.Names(), steps.TracesThread)
}
