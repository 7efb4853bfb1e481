package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/metrics"
)

// serving is what serve prints with -o json, when others can attach.
type serving struct {
	Store   string `json:"store"`
	Owner   bool   `json:"owner"`
	Metrics string `json:"metrics,omitempty"`
}

func newServe(a *app.App) *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use: "serve", Short: "Own the store and keep it open for others, until stopped", Args: cobra.NoArgs,
		Long: `Own the store and keep it open for others, until SIGINT or SIGTERM. Commands that
need the store use it through this process then, without being asked, and need
not start a server of their own. It listens on this machine only.

If another process owns the store already, this one waits and takes over when that
one is gone.

With --metrics it answers Prometheus at /metrics; an address without a host is one
of this machine.`,
		Example: app.Examples("tally-ingest serve", "tally-ingest serve --store /srv/tally --log-level info", "tally-ingest serve --metrics :9464 -o json"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Config()
			if err != nil {
				return err
			}
			if c.Backend != config.Local {
				return cli.Usagef("serve keeps a store on this machine open; the backend is %s", c.Backend)
			}
			return serve(cmd.Context(), a, c, address)
		},
	}
	cmd.Flags().StringVar(&address, "metrics", "", "address of a Prometheus endpoint, such as :9464 (default: none)")
	return cmd
}

func serve(ctx context.Context, a *app.App, c config.Config, address string) error {
	m := metrics.New()
	st, err := a.Own(ctx, m)
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped before it was this one's turn
		}
		return err
	}
	said := serving{Store: c.Store, Owner: true}
	if address != "" {
		web, err := serveMetrics(address, c, st, m)
		if err != nil {
			return errors.Join(err, st.Close())
		}
		defer web.Close()
		said.Metrics = "http://" + web.Addr + "/metrics"
	}
	if err := announce(a, said); err != nil {
		return errors.Join(err, st.Close())
	}
	<-ctx.Done()
	// To be told to stop is how this ends.
	return st.Close()
}

// serveMetrics answers requests for the metrics until it is closed.
func serveMetrics(address string, c config.Config, st *tally.Store, m *metrics.Metrics) (*http.Server, error) {
	if strings.HasPrefix(address, ":") {
		address = "127.0.0.1" + address
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, &cli.CodeError{Code: cli.BadUsage, Err: fmt.Errorf("--metrics: %w", err)}
	}
	m.Watch(st, func() (int64, uint64, error) {
		free, err := embedded.FreeBytes(c.Store)
		return app.DiskUse(c.Store), free, err
	})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	web := &http.Server{Addr: l.Addr().String(), Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go web.Serve(l) // until Close; nobody can act on its error
	return web, nil
}

func announce(a *app.App, said serving) error {
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, cli.JSONL, said)
	}
	_, err := fmt.Fprintf(a.Out, "Serving %s; other commands use it through this process. Stop it with Ctrl-C.\n", said.Store)
	if err == nil && said.Metrics != "" {
		_, err = fmt.Fprintf(a.Out, "Metrics are at %s.\n", said.Metrics)
	}
	return err
}
