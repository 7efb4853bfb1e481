package perstack

import (
	"context"

	"github.com/tallylog/tally/internal/rawjson"
)

// Totals are what a job took.
type Totals struct {
	Steps int64 // the largest number of a step
	Usage Usage
	Said  int // how many steps said what they used; 0: Usage is that of the latest checkpoint
}

// Totals adds up what the steps of all runs used, as the events say that end them: each
// step counts once, also those of delegates at work at the same time, of branches that were
// left, and of what was recorded or imported twice. Without such events it is what the
// checkpoint of the largest step says, of several the last.
func (h *Handle) Totals(ctx context.Context) (Totals, error) {
	x := &h.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.catchUp(ctx, h); err != nil {
		return Totals{}, err
	}
	t := Totals{Steps: x.steps, Usage: x.used, Said: x.said}
	if x.said > 0 || x.latest == 0 {
		return t, nil
	}
	rec, err := h.record(ctx, x.latest)
	if err != nil {
		return t, err
	}
	raw, _, err := rawOf(rec)
	if err != nil {
		return t, err
	}
	m, err := rawjson.Object(raw)
	if err != nil {
		return t, err
	}
	if used, says := m.Get("usage"); says {
		t.Usage, err = decode[Usage]("usage", used, usageNumbers...)
	}
	return t, err
}
