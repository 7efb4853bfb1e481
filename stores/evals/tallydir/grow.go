package tallydir

import (
	"context"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/evals/internal/steps"
	"github.com/tallylog/tally/stores/internal/sessiondir"
)

var _ layouts.Grower = Layout{}

// grown is the state of a growing conversation between calls of Growth.
type grown struct {
	at      string // its folder
	format  events.FileFormat
	spelled bool // the format is from an import
	main    sessiondir.Grown
}

// Growth implements layouts.Grower for conversation.jsonl, to which steps are appended. It returns false if there are
// step traces: they may depend on the steps, and are written again.
func (Layout) Growth(ctx context.Context, src layouts.Source, root layouts.Root, entry events.Subject, at string, since events.Offset, others []events.Subject, known any) (layouts.Growth, bool, error) {
	if len(others) > 0 || !entry.IsSession() {
		return layouts.Growth{}, false, nil
	}
	g, ok := known.(grown)
	var err error
	if ok = ok && g.at == at; ok {
		g.main, ok, err = g.main.Next(ctx, src, entry, since, events.MainThread, unshown...)
	}
	if err == nil && !ok {
		g, ok, err = grownSince(ctx, src, root, entry, at, since)
	}
	if err != nil || !ok || g.main.Had == 0 {
		return layouts.Growth{}, false, err
	}
	var list []events.Raw
	for i := range g.main.Turns {
		list = append(list, rawOf(&g.main.Turns[i]))
	}
	more, err := sessiondir.MoreLines(g.format, g.main.Had, list, !g.spelled)
	g.main = g.main.Known()
	return layouts.Growth{Added: []layouts.Addition{{Path: at + "/" + turnsName, Data: more}}, Known: g}, err == nil, err
}

func grownSince(ctx context.Context, src layouts.Source, root layouts.Root, entry events.Subject, at string, since events.Offset) (g grown, ok bool, err error) {
	o, err := sessiondir.Outline(ctx, src, store{}, root, entry)
	if err != nil || dirOf(o) != at || mayHaveTraces(o) {
		return g, false, err
	}
	g.at = at
	if g.format, g.spelled = o.Ledger().Formats[sessiondir.KeyOf(turnsName)]; g.format.Doc != "" || g.format.Gone {
		return g, false, nil
	}
	g.main, ok, err = sessiondir.GrownSince(ctx, src, o, since, events.MainThread, unshown...)
	return g, ok, err
}

// unshown has the event types that no file shows, other than turns. Only a finished run has a file.
var unshown = []string{events.TypeRunCreated, events.TypeRunStarted, events.TypeRunProgressed, events.TypeRunAnnotated, events.TypeCostAccrued}

// mayHaveTraces reports whether a session has step traces, or had some: see steps.HasTraces.
func mayHaveTraces(o *projector.Outline) bool {
	_, known := o.Ledger().Formats[sessiondir.KeyOf(tracesName)]
	_, simulated := o.Ledger().Fields.Get("trajectory")
	return known || simulated || slices.Contains(o.Names(), steps.TracesThread)
}

// dirOf returns the folder of an opened session.
func dirOf(o *projector.Outline) string {
	v := view{s: &projector.Session{Subject: o.Subject(), Ledger: o.Ledger()}}
	return v.Dir()
}
