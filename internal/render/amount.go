package render

import "github.com/tallylog/tally/projector"

// USD is what was spent, in a list: a dash where nothing is known to have been, so that
// what is unknown does not look free.
func USD(t projector.Total) string {
	if r, ok := t.USD.Rat(); !ok || r.Sign() == 0 {
		return "-"
	}
	return string(t.USD)
}
