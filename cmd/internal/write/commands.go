// Package write has the verbs that put sessions and documents into a store.
package write

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/app"
)

// Commands returns the verbs, anew for each run.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{newImport(a), newAppend(a), newPut(a), newRm(a), newMv(a)}
}
