// Package inspect has the commands that show the content of a store.
package inspect

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
)

// Commands returns new commands.
func Commands(a *cmdutil.App) []*cobra.Command {
	return cmdutil.Paged(newLs(a), newShow(a), newLog(a), newSearch(a), newRuns(a), newJobs(a), newDiff(a), newCost(a), newStats(a))
}
