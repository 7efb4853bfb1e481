// Package look has the verbs that show what is in a store.
package look

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/app"
)

// Commands returns the verbs, anew for each run.
func Commands(a *app.App) []*cobra.Command {
	return append(app.Paged(newLs(a), newShow(a), newLog(a), newSearch(a), newRuns(a), newJobs(a), newDiff(a), newCost(a), newStats(a), newCat(a)), newDocs(a))
}
