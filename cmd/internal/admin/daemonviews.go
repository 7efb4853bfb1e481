package admin

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/config"
)

func newDaemonViews(a *cmdutil.App) *cobra.Command {
	var once bool
	var dir string
	cmd := &cobra.Command{
		Use: "views [VIEW]...", Short: "Keep the views up to date: " + strings.Join(cmdutil.ViewNames(nil), ", "), ValidArgs: cmdutil.ViewNames(nil),
		Args: cobra.OnlyValidArgs,
		Long: `Keep the views, which list and search sessions, up to date with the log until interrupted.
The process that owns a local store does this by itself. For a server that others run, the
views are kept on this machine. A second process waits and takes over when the first one ends.`,
		Example: cmdutil.Examples("tally daemon views", "tally daemon views --once", "tally daemon views search --views /srv/views"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Config()
			if err != nil {
				return err
			}
			if c.Backend != config.NATS && (dir != "" || !once) {
				return cli.Usagef("the owner of a %s store keeps its views: use tally daemon views --once, or name a NATS server", c.Backend)
			}
			return a.WithStore(cmd.Context(), func(st *tally.Store) error {
				if c.Backend != config.NATS {
					return a.Follow(cmd.Context(), st, args)
				}
				return a.Project(cmd.Context(), st, cmp.Or(dir, st.ViewsDir()), args, once)
			})
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "end when the views have caught up with the log")
	cmd.Flags().StringVar(&dir, "views", "", "directory of the views (default: a folder in $XDG_CACHE_HOME)")
	return cmd
}
