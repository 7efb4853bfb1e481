package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/internal/config"
)

// serving is what serve prints with -o json, when others can attach.
type serving struct {
	Store string `json:"store"`
	Owner bool   `json:"owner"`
}

func newServe(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "serve", Short: "Own the store and keep it open for others, until stopped", Args: cobra.NoArgs,
		Long: `Own the store and keep it open for others, until SIGINT or SIGTERM. Commands that
need the store use it through this process then, without being asked, and need
not start a server of their own. It listens on this machine only.

If another process owns the store already, this one waits and takes over when that
one is gone.`,
		Example: app.Examples("tally-ingest serve", "tally-ingest serve --store /srv/tally --log-level info", "tally-ingest serve -o json"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Config()
			if err != nil {
				return err
			}
			if c.Backend != config.Local {
				return cli.Usagef("serve keeps a store on this machine open; the backend is %s", c.Backend)
			}
			return serve(cmd.Context(), a, c)
		},
	}
}

func serve(ctx context.Context, a *app.App, c config.Config) error {
	st, err := a.Own(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped before it was this one's turn
		}
		return err
	}
	if err := announce(a, c); err != nil {
		return errors.Join(err, st.Close())
	}
	<-ctx.Done()
	// To be told to stop is how this ends.
	return st.Close()
}

func announce(a *app.App, c config.Config) error {
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, cli.JSONL, serving{c.Store, true})
	}
	_, err := fmt.Fprintf(a.Out, "Serving %s; other commands use it through this process. Stop it with Ctrl-C.\n", c.Store)
	return err
}
