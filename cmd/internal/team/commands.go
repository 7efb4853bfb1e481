// Package team has the commands for agents, programs and people that work together: inboxes of messages, work queues,
// agents with their commitments, workflows, and the transcripts that Claude Code keeps. Each noun is a file of its own,
// and so is each of its verbs.
package team

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
)

// Commands returns new commands, one for each noun.
func Commands(a *cmdutil.App) []*cobra.Command {
	return []*cobra.Command{newQueue(a), newInbox(a), newAgent(a), newFlow(a), newTranscript(a)}
}
