package cmdutil

import (
	"time"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/internal/reads"
)

// Times describes the times that When accepts, for help texts.
const Times = "a time such as 2026-08-22 or 2026-08-22T10:00Z, today, yesterday, monday, or how long ago: 90m, 36h, 7d, 2w, \"3 days ago\""

// When parses the time of a filter, as [reads.Time] does.
func When(flag, text string, now time.Time) (time.Time, error) {
	at, err := reads.Time(flag, text, now)
	if err != nil {
		return at, cli.Usagef("--%s %q: want %s", flag, text, Times)
	}
	return at, nil
}
