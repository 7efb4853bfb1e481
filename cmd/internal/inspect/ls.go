package inspect

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/spend"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
)

// listed is a session in a list.
type listed struct {
	Session    string           `json:"session"`
	Kind       string           `json:"kind"`
	Title      string           `json:"title,omitempty"`
	About      string           `json:"about,omitempty"` // title, else goal, else first line of a user
	Status     string           `json:"status,omitempty"`
	Project    string           `json:"project,omitempty"`
	CWD        string           `json:"cwd,omitempty"`
	CreatedAt  events.Timestamp `json:"createdAt,omitempty"`
	LastAt     events.Timestamp `json:"lastAt,omitempty"`
	Turns      int              `json:"turns"` // turns in effect, over all threads
	TotalTurns int              `json:"totalTurns"`
	Runs       int              `json:"runs"`
	Rewinds    int              `json:"rewinds"`
	Records    int              `json:"records"`
	USD        events.Amount    `json:"usd,omitempty"`      // sum of amounts in records; absent if there are costs and none has an amount
	Computed   events.Amount    `json:"computed,omitempty"` // USD at list prices, for costs without an amount; absent if no price is known
	Partial    int              `json:"partial,omitempty"`  // costs of which Computed has only a part, because another part has no known price
	Unknown    int              `json:"unknown,omitempty"`  // costs of unknown amount
	Tokens     events.Tokens    `json:"tokens"`
	Models     []string         `json:"models,omitempty"` // models that the session names
	First      events.Offset    `json:"first"`
	Head       events.Offset    `json:"head"`
	Parent     string           `json:"parent,omitempty"`
	Fork       *events.Fork     `json:"fork,omitempty"`
	Next       string           `json:"next,omitempty"` // only in the last session of a page: the value for --after
}

// firstPage is the number of sessions that a terminal shows by default.
const firstPage = 100

func newLs(a *cmdutil.App) *cobra.Command {
	q := listing{Query: catalog.Query{Sort: catalog.ByActive}}
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
			return a.WithViews(cmd.Context(), []string{"catalog", "search"}, func(c config.Config, v cmdutil.Views) error {
				q.Namespace = c.Namespace
				return ls(cmd.Context(), a, v, q)
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
	f.Float64Var(&q.minCost, "min-cost", 0, "only sessions that cost at least this amount in USD, reported or computed")
	f.StringVar(&q.Parent, "parent", "", "only sessions that this session started, and its forks")
	f.Var(cli.OneOf(&q.Sort, "order", catalog.ByActive, catalog.ByHead, catalog.ByCreated, byCost, catalog.ByTurns, catalog.ByRecords, catalog.ByID), "sort", "active, last, created, cost, turns, records or id")
	f.IntVar(&q.Limit, "limit", 0, "maximal number of sessions; 0 is all (default 100 on a terminal)")
	f.StringVar(&q.After, "after", "", "continue after a page: its value of next")
	return cmd
}

func ls(ctx context.Context, a *cmdutil.App, v cmdutil.Views, q listing) error {
	page, spent, asOf, err := q.read(ctx, v)
	if err != nil {
		return err
	}
	if a.Format != cli.Text {
		return writeListed(a, page, spent)
	}
	if len(page.Sessions) == 0 {
		return nothingListed(a, q)
	}
	table := tableOf(page.Sessions, spent, a.Style())
	if err := a.Table(table); err != nil {
		return err
	}
	spend.Legend(a.Err, table.Rows, "")
	fmt.Fprintln(a.Err, "times are in UTC")
	if page.Next != "" {
		fmt.Fprintf(a.Err, "there are more: --after %s\n", page.Next)
	}
	a.AsOf(asOf)
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
	{head: "TITLE", cell: func(s catalog.Session, _ spend.Sum) string { return s.About() }},
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

// spentBy adds up the costs of sessions, and returns up to which offset they are known.
func spentBy(ctx context.Context, v cmdutil.Views, namespace string, list []catalog.Session) (*spend.Sums, projector.Cursor, error) {
	ids := make([]string, len(list))
	for i, s := range list {
		ids[i] = s.ID
	}
	return sumOf(ctx, v, func(a catalog.Activity) iter.Seq2[catalog.Usage, error] {
		return a.UsagesOf(ctx, namespace, nil, ids...)
	})
}

// spentByAll is spentBy for all sessions.
func spentByAll(ctx context.Context, v cmdutil.Views, namespace string) (*spend.Sums, projector.Cursor, error) {
	return sumOf(ctx, v, func(a catalog.Activity) iter.Seq2[catalog.Usage, error] { return a.Usages(ctx, namespace, nil) })
}

func sumOf(ctx context.Context, v cmdutil.Views, usages func(catalog.Activity) iter.Seq2[catalog.Usage, error]) (*spend.Sums, projector.Cursor, error) {
	table, err := spend.Prices(os.Getenv)
	if err != nil {
		return nil, projector.Cursor{}, err
	}
	activity, err := catalog.OpenActivity(ctx, v.Dir)
	if err != nil {
		return nil, projector.Cursor{}, err
	}
	defer activity.Close()
	asOf, err := v.AsOf(ctx, v.Catalog.Standing, activity.Standing)
	if err != nil {
		return nil, asOf, err
	}
	by := spend.New(table)
	for u, err := range usages(activity) {
		if err != nil {
			return nil, asOf, err
		}
		by.Add(u.Session, u)
	}
	return by, asOf, nil
}

func nothingListed(a *cmdutil.App, q listing) error {
	plain := listing{Query: catalog.Query{Namespace: q.Namespace, Sort: q.Sort, Limit: q.Limit}}
	switch {
	case q.Kind == events.KindItem:
		fmt.Fprintln(a.Err, "Queues list their items. Try: tally queue ls QUEUE")
		return nil
	case q != plain:
		fmt.Fprintln(a.Err, "No session matches.")
		return nil
	}
	fmt.Fprintln(a.Err, "There are no sessions yet. Try: tally import PATH")
	return nil
}

func writeListed(a *cmdutil.App, page catalog.Page, spent *spend.Sums) error {
	list := make([]listed, len(page.Sessions))
	for i, s := range page.Sessions {
		list[i] = listedOf(s)
		of := spent.Of(s.ID)
		list[i].USD, list[i].Tokens, list[i].Computed, list[i].Partial, list[i].Unknown = of.USD, of.Tokens, of.Computed, of.Partial, of.Unknown
	}
	if len(list) > 0 {
		list[len(list)-1].Next = page.Next
	}
	return cli.WriteList(a.Out, a.Format, list)
}

func listedOf(s catalog.Session) listed {
	l := listed{
		Session: cli.ID(s.ID), Kind: s.Kind, Title: s.Title, About: s.About(), Status: s.Status, Project: s.Project, CWD: s.CWD,
		CreatedAt: s.CreatedAt, LastAt: s.LastAt, Turns: s.Turns, TotalTurns: s.TotalTurns, Runs: s.Runs, Rewinds: s.Rewinds,
		Records: s.Records, USD: s.Spent.USD, Tokens: s.Spent.Tokens, First: s.First, Head: s.Head, Parent: cli.ID(s.Parent),
	}
	if s.Fork.Session != "" {
		l.Fork = &s.Fork
	}
	if s.Models != "" {
		l.Models = strings.Split(s.Models, ", ")
	}
	return l
}
