package projector

import (
	"context"

	"github.com/tallylog/tally/events"
)

// Listed is a session as a list has it.
type Listed struct {
	ID      string
	Kind    string
	Results map[string]int // runs with a result, by their kind
	Raw     events.Offset  // the newest record that has the session as its maker stored it; 0: none
}

// Listed folds a session for a list. One without a record that can be read has no kind.
func (l *Loader) Listed(ctx context.Context, sub events.Subject) (Listed, error) {
	o, err := l.Peek(ctx, sub)
	if err != nil || o.Ledger().Records == 0 {
		return Listed{ID: sub.ID}, err
	}
	list := Listed{ID: sub.ID, Kind: o.Ledger().Kind, Results: make(map[string]int)}
	for _, at := range o.Ledger().Raw {
		list.Raw = max(list.Raw, at)
	}
	for _, r := range o.Ledger().Runs {
		if r.Last() != nil {
			list.Results[r.Kind]++
		}
	}
	return list, nil
}
