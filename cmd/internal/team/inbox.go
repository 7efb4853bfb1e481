package team

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
)

func newInbox(a *cmdutil.App) *cobra.Command {
	return cmdutil.Noun(&cobra.Command{
		Use: "inbox", Short: "Send messages to agents, programs and people, and read them",
		Long: `Send messages to agents, programs and people, and read them. Each receiver has one inbox
with its messages in the order in which they arrived, and a mark that separates the read
from the unread ones.

An inbox is named by its receiver: an agent's id, a beginning of it, or the agent's name;
user, who is the person; or the name of a program that inbox run --open has registered.`,
		Example: cmdutil.Examples("echo 'The build is red again.' | tally inbox send user --from ci", "tally inbox ls user --unread", "tally inbox ack user last"),
	}, append(cmdutil.Paged(newInboxLs(a)), newInboxSend(a), newInboxAck(a), newInboxRun(a))...)
}
