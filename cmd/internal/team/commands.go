// Package team has the verbs by which agents, programs and people work together: messages in
// inboxes, items in work queues, agents with what they promise, the workflows that they go
// through, and the transcripts that their vendor keeps.
package team

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
)

// Commands returns the verbs, anew for each run.
func Commands(a *cmdutil.App) []*cobra.Command {
	list := []*cobra.Command{newSend(a), newSeen(a), newAttend(a), newEnqueue(a), newRequeue(a), newWork(a), newAgent(a), newFlow(a)}
	return append(list, cmdutil.Paged(newInbox(a), newQueue(a), newAgents(a), newFlows(a), newTranscripts(a), newOrphans(a))...)
}
