// Package serve has the verbs that run a store for others.
package serve

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/app"
)

// Commands returns the verbs, anew for each run.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{newServe(a), newTend(a)}
}
