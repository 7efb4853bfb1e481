// Command tally-replay looks at what an event log holds: sessions as they are and
// as they were, their branches and costs. It rewinds and forks them, exports
// them, and checks that every view is a fold of the log.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/app"
)

func main() { os.Exit(app.Main("tally-replay", newRoot)) }

// newRoot builds the whole tree of commands, anew for each run.
func newRoot(a *app.App) *cobra.Command {
	root := &cobra.Command{
		Use:   "tally-replay",
		Short: "Look at sessions as they are and as they were; rewind, fork and export them",
		Long: `Replay folds recorded events; it never calls a model and never runs a tool.

A session is named by its id, a unique beginning of it, or "last".
A position is head, start, @1234 (offset), #12 (turn 12 of main), gpt-5#3, ~2
(without the last 2 turns), 2026-08-22T10:00Z, -10m, or e:<event id>.

Exit codes: 0 ok, 1 failed, 2 usage, 3 partial, 4 not found, 5 integrity,
6 conflict, 7 store unreachable, 8 store incompatible, 130 and 143 signals.`,
	}
	root.AddCommand(newLs(a), newShow(a), newRuns(a), newLog(a), newRewind(a), newUndo(a), newRedo(a), newFork(a), newDiff(a), newCost(a), newSearch(a), newProject(a),
		a.StatusCommand(), newRebuild(a), newVerify(a), newExport(a), a.VersionCommand())
	return root
}
