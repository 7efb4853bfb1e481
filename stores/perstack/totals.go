package perstack

import (
	"context"

	"github.com/tallylog/tally/internal/rawjson"
)

// Totals are the steps and the usage of a job.
type Totals struct {
	Steps int64 // the largest step
	Usage Usage
	Said  int // number of steps with a usage; 0: Usage is that of the latest checkpoint
}

// Totals sums the usage of all steps of all runs, from the events that end them. Each step counts once, including steps
// of concurrent delegates and of abandoned branches, and steps that were recorded or imported twice. Without such
// events, the usage is that of the checkpoint with the largest step, the last of several.
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
