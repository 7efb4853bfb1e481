package look

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/projector/catalog"
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
		Example: app.Examples("tally cost", "tally cost last --by model", "tally cost --by day -o json"),
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
			t := tab{by: by}
			var err error
			if len(args) == 1 {
				err = a.WithExisting(cmd.Context(), func(st *tally.Store) error { return t.session(cmd.Context(), st, args[0]) })
			} else {
				err = a.WithViews(cmd.Context(), "catalog", func(c config.Config, v app.Views) error { return t.all(cmd.Context(), c, v) })
			}
			if err != nil {
				return err
			}
			if a.Format != cli.Text {
				return cli.WriteJSON(a.Out, a.Format, t.spent())
			}
			return writeCost(a, t.spent())
		},
	}
	cmd.Flags().StringVar(&by, "by", "", "group by model, run, day or session (default model of one session, session of all)")
	return cmd
}

var keyOf = map[string]func(catalog.Spending) string{
	"model":   func(s catalog.Spending) string { return s.Model },
	"session": func(s catalog.Spending) string { return cli.ID(s.Session) },
	"day":     func(s catalog.Spending) string { return s.Day },
	"run": func(s catalog.Spending) string {
		if s.Run == nil {
			return "-"
		}
		return s.Run.String()
	},
}

// tab sums what was spent.
type tab struct {
	by            string
	groups, total projector.Totals[string]
	onBranch      *projector.Total
}

func (t *tab) add(s catalog.Spending) {
	t.groups.AddTotal(keyOf[t.by](s), s.Total)
	t.total.AddTotal("", s.Total)
}

// session takes the costs of one session, of which it is known what is in effect.
func (t *tab) session(ctx context.Context, st *tally.Store, name string) error {
	handle, err := app.Session(ctx, st, name)
	if err != nil {
		return err
	}
	s, err := handle.Load(ctx, "")
	if err != nil {
		return err
	}
	branch := s.OnBranch()
	t.onBranch = &branch
	for _, c := range s.Ledger.Costs {
		t.add(catalog.Spending{Session: s.Subject.ID, Day: c.Day(), Model: c.Model, Run: c.Run, Total: projector.Total{USD: c.USD, Tokens: c.Tokens, Events: 1}})
	}
	return nil
}

// all takes the costs of all sessions from the catalog.
func (t *tab) all(ctx context.Context, c config.Config, v app.Views) error {
	for s, err := range v.Catalog.Spendings(ctx, c.Namespace) {
		if err != nil {
			return err
		}
		t.add(s)
	}
	return nil
}

func (t *tab) spent() spent {
	doc := spent{Spent: t.total.Of(""), OnBranch: t.onBranch, By: t.by, Groups: []group{}}
	for _, key := range t.groups.Keys() {
		doc.Groups = append(doc.Groups, group{key, t.groups.Of(key)})
	}
	return doc
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
