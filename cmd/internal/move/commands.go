// Package move has the verbs that move a session's head, and fork it.
package move

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/app"
)

// Commands returns the verbs, anew for each run.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{newRewind(a), newUndo(a), newRedo(a), newFork(a)}
}
