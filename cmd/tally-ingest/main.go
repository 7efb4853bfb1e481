// Command tally-ingest puts sessions into an event log: folders that other
// programs wrote, and live events line by line.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/app"
)

func main() { os.Exit(app.Main("tally-ingest", newRoot)) }

// newRoot builds the whole tree of commands, anew for each run.
func newRoot(a *app.App) *cobra.Command {
	root := &cobra.Command{
		Use:   "tally-ingest",
		Short: "Put sessions into an event log",
		Long: `Put sessions of AI agents into an event log, and never lose one that was
acknowledged. What is in the log is looked at with tally-replay.

Exit codes: 0 ok, 1 failed, 2 usage, 3 partial (some input was unreadable, the
rest went in), 4 not found, 5 integrity, 6 conflict, 7 store unreachable,
8 store incompatible, 130 and 143 signals.`,
	}
	root.AddCommand(newImport(a), newAppend(a), newServe(a), newBench(a), newInit(a), a.StatusCommand(), a.VersionCommand(), newGenerate(a))
	return root
}
