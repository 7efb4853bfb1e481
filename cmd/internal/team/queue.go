package team

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
)

func newQueue(a *cmdutil.App) *cobra.Command {
	return cmdutil.Noun(&cobra.Command{
		Use: "queue", Short: "Hand out work: add items to a queue, and run a command for each",
		Long: `Hand out work: add items to a queue, and run a command for each of them. A worker claims
an item for a limited time, the lease. If the worker dies, the item goes to another one.

An item is in one of these states:

  ready     the next worker gets it
  claimed   a worker has it until its lease ends
  waiting   it is not due yet, or an item that must be done first is not done
  done      it was completed
  dead      it failed too often or expired; tally queue retry makes it ready again

A lease ends by the log's time, which is the time of the newest record plus the time
that has passed since the program read it.`,
		Example: cmdutil.Examples("printf 'docs\\nbinaries\\n' | tally queue add build --id v1", "tally queue work build --until-empty -- ./build-one", "tally queue ls build"),
	}, append(cmdutil.Paged(newQueueLs(a), newQueueShow(a)), newQueueAdd(a), newQueueRetry(a), newQueueWork(a))...)
}
