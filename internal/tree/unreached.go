package tree

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tallylog/tally/events"
)

// Unreached lists, one line each, texts of files that are not content of the subjects and may have come from it: an
// erasure of the subjects leaves them.
func (t *Tree) Unreached(ctx context.Context, subjects []events.Subject) (lines []string, err error) {
	conflicts, err := t.Conflicts(ctx)
	if err != nil {
		return nil, err
	}
	isOne := func(name string) bool {
		return slices.ContainsFunc(subjects, func(s events.Subject) bool { return s.String() == name })
	}
	for _, c := range conflicts {
		if isOne(c.Subject) {
			lines = append(lines, fmt.Sprintf("%s is an edit of %s that was not taken in: resolve the conflict, then forget document/%s/%s", c.Copy, c.Path, KindConflict, c.ID))
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range slices.Sorted(maps.Keys(t.out)) {
		if d := t.out[p]; t.skipped[p] != "" && (d.entry.ID == "" || isOne(d.entry.String())) {
			lines = append(lines, fmt.Sprintf("%s is an edit of %s that cannot be stored: %s", p, d.from, t.skipped[p]))
		}
	}
	return lines, nil
}
