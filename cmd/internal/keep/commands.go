// Package keep has the verbs that take things out of a store, and look after it.
package keep

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/app"
)

// Commands returns the verbs, anew for each run.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{newExport(a), newBackup(a), newRestore(a), newVerify(a), newRebuild(a), newProject(a), newInit(a), newStatus(a), newQuota(a), newTree(a), newSecrets(a), newConfig(a), newDoctor(a), newVersion(a), newCompletion(a), newBash(a)}
}
