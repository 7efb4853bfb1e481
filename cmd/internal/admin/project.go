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

func newProject(a *cmdutil.App) *cobra.Command {
	var once bool
	var dir string
	cmd := &cobra.Command{
		Use: "project [VIEW]...", Short: "Keep the views up to date: " + strings.Join(cmdutil.ViewNames(nil), ", "), ValidArgs: cmdutil.ViewNames(nil),
		Args: cobra.OnlyValidArgs,
		Long: `Keep the views from which sessions are listed and searched up to date with the
log, until stopped. The process that owns a local store does that by itself; this is
for a server that somebody else runs, whose views are kept on this machine. A second
process waits, and takes over when the first one ends in whatever way.`,
		Example: cmdutil.Examples("tally project", "tally project --once", "tally project search --views /srv/views"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Config()
			if err != nil {
				return err
			}
			if c.Backend != config.NATS && (dir != "" || !once) {
				return cli.Usagef("the owner of a %s store keeps its views: without a server that somebody else runs there is project --once only", c.Backend)
			}
			return a.WithStore(cmd.Context(), func(st *tally.Store) error {
				if c.Backend != config.NATS {
					return a.Follow(cmd.Context(), st, args)
				}
				return a.Project(cmd.Context(), st, cmp.Or(dir, st.ViewsDir()), args, once)
			})
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "end when the views show where the log ends now")
	cmd.Flags().StringVar(&dir, "views", "", "directory of the views (default below $XDG_CACHE_HOME)")
	return cmd
}
