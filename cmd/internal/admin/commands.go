// Package admin has the commands that export, back up, check, configure and serve a store.
package admin

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
)

// Maintain returns new commands that export a store and look after it.
func Maintain(a *cmdutil.App) []*cobra.Command {
	return []*cobra.Command{newExport(a), newBackup(a), newRestore(a), newCopy(a), newVerify(a), newRebuild(a), newInit(a), newStatus(a), newQuota(a), newTypes(a), newTree(a), newSecrets(a), newConfig(a), newDoctor(a), newVersion(a), newCompletion(a), newBash(a)}
}

// Serve returns new commands that keep a store open for others.
func Serve(a *cmdutil.App) []*cobra.Command {
	return []*cobra.Command{newServe(a), newDaemon(a), newToken(a)}
}
