// Package record has the verbs that bring the sessions of agents into the store while they
// are written.
package record

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
)

// Commands returns the verbs, anew for each run.
func Commands(a *cmdutil.App) []*cobra.Command {
	return []*cobra.Command{newWatch(a), newSources(a), newExec(a), newHook(a), newSetup(a)}
}
