package admin

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
)

func newDaemon(a *cmdutil.App) *cobra.Command {
	return cmdutil.Noun(&cobra.Command{
		Use: "daemon", Short: "Run background work beside a server that others run",
		Long: `Run background work beside a server that others run, or beside a store whose owner runs
none: deadlines of messages, leases of workers, cleaning up, trees of files, and views. The
owner of a local store and tally serve do all of it by themselves.`,
		Example: cmdutil.Examples("tally daemon run", "tally daemon run --once", "tally daemon views"),
	}, newDaemonRun(a), newDaemonViews(a))
}
