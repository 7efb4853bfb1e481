package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
)

// listed is a session in a list.
type listed struct {
	Session   string           `json:"session"`
	Kind      string           `json:"kind"`
	Title     string           `json:"title,omitempty"`
	Status    string           `json:"status,omitempty"`
	CreatedAt events.Timestamp `json:"createdAt,omitempty"`
	LastAt    events.Timestamp `json:"lastAt,omitempty"`
	Turns     int              `json:"turns"` // in effect, over all threads
	Runs      int              `json:"runs"`
	Rewinds   int              `json:"rewinds"`
	Records   int              `json:"records"`
	USD       events.Amount    `json:"usd"`
	Head      events.Offset    `json:"head"`
	Fork      *events.Fork     `json:"fork,omitempty"`
}

func newLs(a *app.App) *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use: "ls", Short: "List the sessions, the one written to last first", Args: cobra.NoArgs,
		Example: app.Examples("tally-replay ls", "tally-replay ls --kind conversation -o jsonl", "tally-replay ls -o json --namespace other"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithStore(cmd.Context(), func(st *tally.Store) error { return ls(cmd.Context(), a, st, kind) })
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "", "only sessions of this kind")
	return cmd
}

func ls(ctx context.Context, a *app.App, st *tally.Store, kind string) error {
	all, err := sessions(ctx, st)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(s *projector.Session) bool { return kind != "" && s.Ledger.Kind != kind })
	slices.SortFunc(all, func(x, y *projector.Session) int { return cmp.Compare(y.Offset(), x.Offset()) })
	if a.Format != cli.Text {
		list := cli.NewList(a.Out, a.Format)
		for _, s := range all {
			if err := list.Add(listedOf(s)); err != nil {
				return err
			}
		}
		return list.Close()
	}
	if len(all) == 0 {
		fmt.Fprintln(a.Err, "There are no sessions yet. Try: tally-ingest import PATH")
		return nil
	}
	w := tabwriter.NewWriter(a.Out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SESSION\tKIND\tTURNS\tRUNS\tUSD\tHEAD\tLAST\tTITLE")
	for _, s := range all {
		l := listedOf(s)
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%v\t%s\t%s\n", render.Cut(l.Session, 60), l.Kind, l.Turns, l.Runs, l.USD, l.Head, minute(l.LastAt), render.Cut(l.Title, 40))
	}
	return w.Flush()
}

// sessions folds all sessions of the namespace; the part of the log that cannot
// be read is left to verify.
func sessions(ctx context.Context, st *tally.Store) ([]*projector.Session, error) {
	fold := projector.NewSessions()
	for rec, err := range st.Log.Read(ctx, events.Range{Namespace: st.Namespace(), Kind: events.KindSession}) {
		if _, damaged := errors.AsType[*events.DamageError](err); damaged {
			continue
		}
		if err == nil {
			rec, err = projector.Resolve(ctx, st.Log, rec, events.MaxValue)
		}
		if err != nil {
			return nil, err
		}
		fold.Apply(rec)
	}
	return fold.All(), nil
}

func listedOf(s *projector.Session) listed {
	return listed{
		Session: cli.ID(s.Subject.ID), Kind: s.Ledger.Kind, Title: s.Ledger.Text("title"), Status: s.Ledger.Text("status"),
		CreatedAt: s.Ledger.CreatedAt, LastAt: s.Ledger.LastAt, Turns: s.History.Turns(), Runs: len(s.Ledger.Runs),
		Rewinds: len(s.Ledger.Rewinds), Records: s.Ledger.Records, USD: s.Ledger.Spent().USD, Head: s.Offset(), Fork: s.Ledger.Fork,
	}
}

// minute spells a time for a table.
func minute(t events.Timestamp) string {
	at, ok := t.Time()
	if !ok {
		return "-"
	}
	return at.UTC().Format("2006-01-02 15:04")
}
