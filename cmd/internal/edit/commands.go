// Package edit has the verbs that change a store: they import and append events, write documents, move a session's head,
// fork sessions, and forget content.
package edit

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
)

// Sessions returns new commands that add sessions and events to a store.
func Sessions(a *cmdutil.App) []*cobra.Command {
	return []*cobra.Command{newImport(a), newAppend(a)}
}

// Documents returns new verbs of the noun doc that change documents.
func Documents(a *cmdutil.App) []*cobra.Command {
	return []*cobra.Command{newPut(a), newRm(a), newMv(a)}
}

// Rewind returns new commands that move a session's head, fork a session, or forget content.
func Rewind(a *cmdutil.App) []*cobra.Command {
	return []*cobra.Command{newRewind(a), newUndo(a), newRedo(a), newFork(a), newForget(a)}
}
