package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/ingest"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/lockfile"
	"github.com/tallylog/tally/internal/plain"
	"github.com/tallylog/tally/redact"
)

func newWatch(a *app.App) *cobra.Command {
	w := &watcher{app: a, redact: "on"}
	cmd := &cobra.Command{
		Use: "watch [AGENT|PATH]...", Short: "Follow the sessions of agents while they are written", Args: cobra.ArbitraryArgs,
		Long: `Follow the sessions of agents while they are written. Each line of a file becomes an
event of its session as soon as it is there.`,
		Example: app.Examples("tally watch", "tally watch claude codex", "tally watch --once"),
		RunE: func(cmd *cobra.Command, args []string) error {
			app.CollectLess()
			app.WorkBesideSyncs()
			return w.run(cmd.Context(), args)
		},
	}
	cmd.Flags().BoolVar(&w.once, "once", false, "end when everything that is there now is in the store")
	cmd.Flags().Var(cli.OneOf(&w.redact, "when", "on", "off"), "redact", "on or off: whether known shapes of secrets are taken out of lines before they are stored")
	return cmd
}

// watcher is one run of watch.
type watcher struct {
	app    *app.App
	once   bool
	redact string

	config config.Config
	teller *teller
}

// run follows until ctx is done, which is no error, or with once until everything is there.
func (w *watcher) run(ctx context.Context, args []string) error {
	var err error
	if w.config, err = w.app.Config(); err != nil {
		return err
	}
	places, err := placesOf(args, os.Getenv)
	if err != nil {
		return err
	}
	w.teller = newTeller(w.app, w.once)
	in, st, err := w.begin(ctx, places)
	if err != nil {
		return ended(ctx, err)
	}
	if err := w.teller.begin(w.config, places); err != nil {
		return errors.Join(err, in.Close(), st.Close())
	}
	stop := w.teller.follow(in)
	err = in.Run(ctx)
	stop()
	err = errors.Join(ended(ctx, err), in.Close())
	said := w.teller.end(in)
	return errors.Join(err, st.Close(), said)
}

// ended takes the end of ctx for the end of the command.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, errEnded)) {
		return nil
	}
	return err
}

// begin waits until no other process does the same, and opens the store.
func (w *watcher) begin(ctx context.Context, places []place) (*ingest.Ingester, *store, error) {
	st := &store{open: w.app.Open, seen: w.teller.seen}
	o := ingest.Options{Log: st, Namespace: w.config.Namespace, Once: w.once, Report: w.teller.problem}
	for _, p := range places {
		o.Sources = append(o.Sources, ingest.Source{Agent: p.agent, Root: p.root})
	}
	var err error
	if w.redact == "on" {
		if o.Redactor, err = redact.New(redact.Options{}); err != nil {
			return nil, nil, err
		}
	}
	if o.State, err = w.state(); err != nil {
		return nil, nil, err
	}
	in, err := w.take(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	if err := st.start(ctx); err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	return in, st, nil
}

// state is the file in which is kept how far was read.
func (w *watcher) state() (string, error) {
	name := w.config.StoreName()
	if name == "" {
		return "", nil
	}
	dir := config.StateFolder(os.Getenv)
	if dir == "" {
		return "", &config.Error{File: "environment", Field: "HOME", Reason: "not set, and neither is XDG_STATE_HOME: there is no place to remember how far was read"}
	}
	return filepath.Join(dir, "watch-"+name+".db"), nil
}

// take makes the ingester. While another process has the same state this one is its spare:
// it waits, and takes over. With once there is nothing to wait for: it reads beside the
// other, and remembers nothing.
func (w *watcher) take(ctx context.Context, o ingest.Options) (*ingest.Ingester, error) {
	said := sync.OnceFunc(func() {
		fmt.Fprintf(w.app.Err, "another watch follows agents into this store; this one takes over when that one is gone\n")
	})
	for {
		in, err := ingest.New(o)
		switch {
		case !errors.Is(err, lockfile.ErrLocked):
			return in, err
		case w.once:
			o.State = ""
			continue
		}
		said()
		select {
		case <-time.After(pauseToOpen):
		case <-ctx.Done():
			return nil, errEnded
		}
	}
}

// tilde spells a path as people do.
func tilde(path string) string {
	if home, err := os.UserHomeDir(); err == nil && home != "" {
		if rel, err := filepath.Rel(home, path); err == nil && filepath.IsLocal(rel) {
			path = filepath.Join("~", rel)
		}
	}
	return plain.Printable(path)
}
