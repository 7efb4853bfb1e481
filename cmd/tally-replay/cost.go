package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
)

// spent is what cost prints with -o json.
type spent struct {
	Spent    projector.Total  `json:"spent"`              // all of it, rewound or not
	OnBranch *projector.Total `json:"onBranch,omitempty"` // what led to the threads as they are; of one session
	By       string           `json:"by"`
	Groups   []group          `json:"groups"`
}

type group struct {
	Key string `json:"key"`
	projector.Total
}

func newCost(a *app.App) *cobra.Command {
	var by string
	cmd := &cobra.Command{
		Use: "cost [SESSION]", Short: "Sum what was spent, of one session or of all", Args: cobra.MaximumNArgs(1),
		Long: `Sum the recorded costs. What was spent stays spent whatever is rewound; "on this
branch" counts only what led to the threads as they are now.`,
		Example: app.Examples("tally-replay cost", "tally-replay cost last --by model", "tally-replay cost --by day -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if by == "" {
				by = "session"
				if len(args) == 1 {
					by = "model"
				}
			}
			if keyOf[by] == nil {
				return cli.Usagef("--by %q: want model, run, day or session", by)
			}
			return a.WithStore(cmd.Context(), func(st *tally.Store) error { return cost(cmd.Context(), a, st, args, by) })
		},
	}
	cmd.Flags().StringVar(&by, "by", "", "group by model, run, day or session (default model of one session, session of all)")
	return cmd
}

var keyOf = map[string]func(*projector.Session, projector.Cost) string{
	"model":   func(_ *projector.Session, c projector.Cost) string { return c.Model },
	"session": func(s *projector.Session, _ projector.Cost) string { return cli.ID(s.Subject.ID) },
	"day":     func(_ *projector.Session, c projector.Cost) string { return string(c.Time)[:len("2006-01-02")] },
	"run": func(_ *projector.Session, c projector.Cost) string {
		if c.Run == nil {
			return "-"
		}
		return c.Run.String()
	},
}

func cost(ctx context.Context, a *app.App, st *tally.Store, args []string, by string) error {
	var all []*projector.Session
	doc := spent{By: by, Groups: []group{}}
	if len(args) == 1 {
		handle, err := app.Session(ctx, st, args[0])
		if err != nil {
			return err
		}
		s, err := handle.Load(ctx, "")
		if err != nil {
			return err
		}
		branch := s.OnBranch()
		all, doc.OnBranch = append(all, s), &branch
	} else {
		var err error
		if all, err = sessions(ctx, st); err != nil {
			return err
		}
	}
	var groups, total projector.Totals[string]
	for _, s := range all {
		for _, c := range s.Ledger.Costs {
			groups.Add(keyOf[by](s, c), c)
			total.Add("", c)
		}
	}
	doc.Spent = total.Of("")
	for _, key := range groups.Keys() {
		doc.Groups = append(doc.Groups, group{key, groups.Of(key)})
	}
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, a.Format, doc)
	}
	return writeCost(a, doc)
}

func writeCost(a *app.App, doc spent) error {
	w := tabwriter.NewWriter(a.Out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "USD\tINPUT\tOUTPUT\tCACHE READ\tCACHE WRITE\t  \t")
	row := func(t projector.Total, name string) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t  %s\t\n", t.USD, t.Tokens.Input, t.Tokens.Output, t.Tokens.CacheRead, t.Tokens.CacheWrite, name)
	}
	for _, g := range doc.Groups {
		row(g.Total, render.Cut(g.Key, 60))
	}
	row(doc.Spent, "spent")
	if doc.OnBranch != nil {
		row(*doc.OnBranch, "on this branch")
	}
	return w.Flush()
}
