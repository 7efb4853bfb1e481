// Package record has the commands that record the sessions of agents while they are written.
package record

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
)

// Commands returns new commands.
func Commands(a *cmdutil.App) []*cobra.Command {
	return []*cobra.Command{newWatch(a), newSources(a), newExec(a), newHook(a), newSetup(a)}
}
