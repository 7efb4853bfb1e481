// Package live has the verbs that bring the sessions of agents into the store while they
// are written.
package live

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/app"
)

// Commands returns the verbs, anew for each run.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{newWatch(a), newSources(a), newExec(a), newHook(a), newSetup(a)}
}
