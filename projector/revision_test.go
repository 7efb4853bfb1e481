package projector_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Revision selects by position, in a document whose third revision has an earlier time and whose last one expires.
func TestPositionOfRevision(t *testing.T) {
	var list []projector.Revision
	for i, minute := range []int{0, 10, 5, 20} {
		list = append(list, projector.Revision{Offset: events.Offset(10 * (i + 1)), ID: fmt.Sprintf("event-%d", i), Time: events.Timestamp(fmt.Sprintf("2026-01-01T10:%02d:00Z", minute))})
	}
	list[3].Meta.ExpiresAt = "2026-01-01T12:00:00Z"
	for position, want := range map[string]int{
		"": 4, "head": 4, "@10": 1, "@19": 1, "@20": 2, "@99": 4, "#1": 1, "#4": 4, "~0": 4, "~3": 1, "e:event-2": 3,
		"2026-01-01T10:00Z": 1, "2026-01-01T10:05Z": 1, "2026-01-01T10:10Z": 3, "2026-01-01T10:20Z": 4, "2026-01-01T11:59:58Z": 4, "-10m": 3, "-20m": 1,
		// no revision
		"start": 0, "@9": 0, "#5": 0, "~4": 0, "e:event-": 0, "e:nobody": 0, "2025": 0, "2025-12-31": 0, "2026-01-01T12:00Z": 0, "-30m": 0, "main#1": 0,
	} {
		p, err := projector.ParsePosition(position)
		n := -1
		if err == nil {
			n, err = p.Revision(recipe, list)
		}
		if want > 0 && (err != nil || n != want-1) {
			t.Errorf("%q: got revision %d, %v, want %d", position, n+1, err, want)
		}
		if _, ok := errors.AsType[*events.InvalidError](err); want == 0 && !errors.Is(err, projector.ErrNotFound) && !ok {
			t.Errorf("%q: got revision %d, %v, want ErrNotFound or an *InvalidError", position, n+1, err)
		}
	}
}
