// Package team has the verbs by which agents and programs work together: messages in
// inboxes, and items in work queues.
package team

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/app"
)

// Commands returns the verbs, anew for each run.
func Commands(a *app.App) []*cobra.Command {
	list := []*cobra.Command{newSend(a), newSeen(a), newAttend(a), newEnqueue(a), newRequeue(a), newWork(a)}
	return append(list, app.Paged(newInbox(a), newQueue(a))...)
}
