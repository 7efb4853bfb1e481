package inspect

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/spend"
)

// firstPage is the number of sessions that a terminal shows by default.
const firstPage = 100

func newLs(a *cmdutil.App) *cobra.Command {
	q := reads.SessionsQuery{Query: catalog.Query{Sort: catalog.ByActive}}
	var since, until, cwd string
	cmd := &cobra.Command{
		Use: "ls", Short: "List the sessions, the most recently active first", Args: cobra.NoArgs,
		Long: `List the sessions, the most recently active first. The list comes from the catalog, a
view that the owner of the store keeps up to date. If no process owns the store, it is
read without opening the store.

TITLE is the title, else the goal of a simulation, else the first line by a user. ACTIVE
is the latest time in the session's records; an import keeps their times. --sort last
sorts by the order in which records were stored instead. For an agent's session, TURNS
counts the conversation only, without the agent's log and its sub-agents.

USD is reported cost. ~ is computed at list prices (tally cost --help), for costs
without an amount. > is the known part of a cost of which another part has no price. ?
is unknown cost, and a dash means no cost. Times are in UTC.

Sessions of which everything was forgotten are left out: --erased lists them, too.

On a terminal, columns that do not fit are left out. In a pipe nothing is cut.`,
		Example: cmdutil.Examples("tally ls --since 7d --min-cost 0.5", "tally ls --grep cake --sort cost -o jsonl", "tally ls -o json --limit 50"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if q.Since, err = cmdutil.When("since", since, time.Now()); err != nil {
				return err
			}
			if q.Until, err = cmdutil.When("until", until, time.Now()); err != nil {
				return err
			}
			if cwd != "" {
				if q.CWD, err = filepath.Abs(cwd); err != nil {
					return err
				}
			}
			if !cmd.Flags().Changed("limit") && cli.IsTerminal(a.Out) {
				q.Limit = firstPage
			}
			if q.Limit < 0 {
				return cli.Usagef("--limit %d: want a number from 0", q.Limit)
			}
			return a.WithViews(cmd.Context(), []string{"catalog", "search"}, func(c config.Config, v reads.Views) error {
				table, err := spend.Prices(os.Getenv)
				if err != nil {
					return err
				}
				return ls(cmd.Context(), a, reads.Reader{Views: v, Prices: table, Namespace: c.Namespace}, q)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Kind, "kind", "", "only sessions of this kind")
	f.StringVar(&since, "since", "", "only sessions with records since a time, or within a duration such as 7d")
	f.StringVar(&until, "until", "", "only sessions without records since a time")
	f.StringVar(&q.Grep, "grep", "", "only sessions with this text in their id, title, goal or first line")
	f.StringVar(&cwd, "cwd", "", "only sessions in this working directory")
	f.StringVar(&q.Project, "project", "", "only sessions of this project")
	f.Float64Var(&q.MinCost, "min-cost", 0, "only sessions that cost at least this amount in USD, reported or computed")
	f.StringVar(&q.Parent, "parent", "", "only sessions that this session started, and its forks")
	f.BoolVar(&q.Erased, "erased", false, "also sessions of which everything was forgotten")
	f.Var(cli.OneOf(&q.Sort, "order", catalog.ByActive, catalog.ByHead, catalog.ByCreated, reads.ByCost, catalog.ByTurns, catalog.ByRecords, catalog.ByID), "sort", "active, last, created, cost, turns, records or id")
	f.IntVar(&q.Limit, "limit", 0, "maximal number of sessions; 0 is all (default 100 on a terminal)")
	f.StringVar(&q.After, "after", "", "continue after a page: its value of next")
	return cmd
}

func ls(ctx context.Context, a *cmdutil.App, r reads.Reader, q reads.SessionsQuery) error {
	page, err := r.Sessions(ctx, q)
	if err != nil {
		return err
	}
	if a.Format != cli.Text {
		if last := len(page.Items) - 1; last >= 0 {
			page.Items[last].Next = page.Next
		}
		return cli.WriteList(a.Out, a.Format, page.Items)
	}
	if len(page.Items) == 0 {
		return nothingListed(ctx, a, r, q)
	}
	table := tableOf(page.Rows, page.Spent, a.Style())
	if err := a.Table(table); err != nil {
		return err
	}
	spend.Legend(a.Err, table.Rows, "")
	fmt.Fprintln(a.Err, "times are in UTC")
	if page.Next != "" {
		fmt.Fprintf(a.Err, "there are more: --after %s\n", page.Next)
	}
	a.AsOf(page.Cursor)
	return nil
}

// listColumns are the columns of a list of sessions. An optional column is left out if it is empty for all sessions. If
// the columns do not fit, the one with the lowest drops goes first; a column with 0 stays.
var listColumns = []struct {
	head            string
	drops           int
	right, optional bool
	cell            func(catalog.Session, spend.Sum) string
}{
	{head: "SESSION", cell: func(s catalog.Session, _ spend.Sum) string { return cli.ID(s.ID) }},
	{head: "KIND", drops: 3, cell: func(s catalog.Session, _ spend.Sum) string { return s.Kind }},
	{head: "TURNS", drops: 7, right: true, cell: func(s catalog.Session, _ spend.Sum) string { return strconv.Itoa(s.Turns) }},
	{head: "RUNS", drops: 2, right: true, cell: func(s catalog.Session, _ spend.Sum) string { return strconv.Itoa(s.Runs) }},
	{head: "USD", drops: 6, right: true, cell: func(_ catalog.Session, p spend.Sum) string { return p.Text() }},
	{head: "HEAD", drops: 1, right: true, cell: func(s catalog.Session, _ spend.Sum) string { return s.Head.String() }},
	{head: "ACTIVE", drops: 8, cell: func(s catalog.Session, _ spend.Sum) string { return cli.Minute(s.LastAt) }},
	{head: "PROJECT", drops: 5, optional: true, cell: func(s catalog.Session, _ spend.Sum) string { return s.Project }},
	{head: "MODEL", drops: 4, optional: true, cell: func(s catalog.Session, _ spend.Sum) string { return s.Models }},
	{head: "TITLE", cell: func(s catalog.Session, _ spend.Sum) string {
		if s.Erased {
			return "(erased)"
		}
		return s.About()
	}},
}

func tableOf(list []catalog.Session, spent *spend.Sums, style cli.Style) render.Table {
	t := render.Table{Rows: make([][]string, len(list))}
	drops := make(map[int]int) // columns by their number in drops
	for _, c := range listColumns {
		cells := make([]string, len(list))
		for i, s := range list {
			cells[i] = c.cell(s, spent.Of(s.ID))
		}
		if c.optional && !slices.ContainsFunc(cells, func(cell string) bool { return cell != "" }) {
			continue
		}
		for i := range list {
			t.Rows[i] = append(t.Rows[i], cells[i])
		}
		if t.Head = append(t.Head, c.head); c.right {
			t.Right = append(t.Right, len(t.Head)-1)
		}
		if c.drops > 0 {
			drops[c.drops] = len(t.Head) - 1
		}
	}
	title := len(t.Head) - 1
	t.Cut = []int{title, 0}
	if model := slices.Index(t.Head, "MODEL"); model >= 0 {
		t.Cut = append(t.Cut, model) // last, because the beginning of a model's name matters most
	}
	for _, n := range slices.Sorted(maps.Keys(drops)) {
		t.Drop = append(t.Drop, drops[n])
	}
	t.Paint = func(_, column int, cell string) string {
		if column == 0 || column == title {
			return cell
		}
		return style.Dim(cell)
	}
	return t
}

func nothingListed(ctx context.Context, a *cmdutil.App, r reads.Reader, q reads.SessionsQuery) error {
	plain := reads.SessionsQuery{Query: catalog.Query{Sort: q.Sort, Limit: q.Limit, Erased: q.Erased}}
	switch {
	case q.Kind == events.KindItem:
		fmt.Fprintln(a.Err, "Queues list their items. Try: tally queue ls QUEUE")
		return nil
	case q != plain:
		fmt.Fprintln(a.Err, "No session matches.")
		return nil
	}
	if all, err := r.Views.Catalog.List(ctx, catalog.Query{Namespace: r.Namespace, Erased: true, Limit: 1}); err != nil || len(all.Sessions) > 0 {
		fmt.Fprintln(a.Err, "Everything was forgotten. Try: tally ls --erased")
		return err
	}
	fmt.Fprintln(a.Err, "There are no sessions yet. Try: tally import PATH")
	return nil
}
