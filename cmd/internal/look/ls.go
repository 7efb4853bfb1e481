package look

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector/catalog"
)

// listed is a session in a list.
type listed struct {
	Session    string           `json:"session"`
	Kind       string           `json:"kind"`
	Title      string           `json:"title,omitempty"`
	About      string           `json:"about,omitempty"` // the title, else the goal, else what a user said first
	Status     string           `json:"status,omitempty"`
	Project    string           `json:"project,omitempty"`
	CWD        string           `json:"cwd,omitempty"`
	CreatedAt  events.Timestamp `json:"createdAt,omitempty"`
	LastAt     events.Timestamp `json:"lastAt,omitempty"`
	Turns      int              `json:"turns"` // in effect, over all threads
	TotalTurns int              `json:"totalTurns"`
	Runs       int              `json:"runs"`
	Rewinds    int              `json:"rewinds"`
	Records    int              `json:"records"`
	USD        events.Amount    `json:"usd"`
	Tokens     events.Tokens    `json:"tokens"`
	First      events.Offset    `json:"first"`
	Head       events.Offset    `json:"head"`
	Parent     string           `json:"parent,omitempty"`
	Fork       *events.Fork     `json:"fork,omitempty"`
	Next       string           `json:"next,omitempty"` // of the last one of a page, if there is another
}

// firstPage is how many sessions a terminal shows, unless asked for more.
const firstPage = 100

func newLs(a *app.App) *cobra.Command {
	q := catalog.Query{Sort: catalog.ByHead}
	var since, until, cwd string
	cmd := &cobra.Command{
		Use: "ls", Short: "List the sessions, the one written to last first", Args: cobra.NoArgs,
		Long: `List the sessions, the one written to last first, from the catalog: a view that the
owner of the store keeps up to date, and that is read without opening the store if
nobody owns it.

TITLE is the title, else the goal of a simulation, else the first line that a user
said. ACTIVE is the latest time that the records of a session say. An import keeps
their times, so ACTIVE need not descend unless --sort active asks for it; HEAD, the
offset of the last record, does. USD is a dash where no price is known.

On a terminal a list is as wide as that: columns that do not fit are left out. In a
pipe nothing is cut.`,
		Example: app.Examples("tally ls --since 7d --min-cost 0.5", "tally ls --grep cake --sort cost -o jsonl", "tally ls -o json --limit 50"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if q.Since, err = app.When("since", since, time.Now()); err != nil {
				return err
			}
			if q.Until, err = app.When("until", until, time.Now()); err != nil {
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
			return a.WithViews(cmd.Context(), "catalog", func(c config.Config, v app.Views) error {
				q.Namespace = c.Namespace
				return ls(cmd.Context(), a, v, q)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Kind, "kind", "", "only sessions of this kind")
	f.StringVar(&since, "since", "", "only those written to since a time, or for so long, such as 7d")
	f.StringVar(&until, "until", "", "only those not written to since")
	f.StringVar(&q.Grep, "grep", "", "only those with this text in their id, title, goal or opening")
	f.StringVar(&cwd, "cwd", "", "only those that worked in this directory")
	f.StringVar(&q.Project, "project", "", "only those of this project")
	f.Float64Var(&q.MinCost, "min-cost", 0, "only those that cost so many USD or more")
	f.StringVar(&q.Parent, "parent", "", "only those that this session started, and its forks")
	f.Var(cli.OneOf(&q.Sort, "order", catalog.ByHead, catalog.ByActive, catalog.ByCreated, catalog.ByCost, catalog.ByTurns, catalog.ByRecords, catalog.ByID), "sort", "last, active, created, cost, turns, records or id")
	f.IntVar(&q.Limit, "limit", 0, "so many at most; 0 is all (default 100 on a terminal)")
	f.StringVar(&q.After, "after", "", "go on behind a page, with what it gave as next")
	return cmd
}

func ls(ctx context.Context, a *app.App, v app.Views, q catalog.Query) error {
	standing, err := v.Catalog.Standing(ctx)
	if err != nil {
		return err
	}
	page, err := v.Catalog.List(ctx, q)
	if err != nil {
		return err
	}
	if a.Format != cli.Text {
		return writeListed(a, page)
	}
	if len(page.Sessions) == 0 {
		return nothingListed(a, q)
	}
	if err := a.Table(tableOf(page.Sessions, a.Style())); err != nil {
		return err
	}
	if page.Next != "" {
		fmt.Fprintf(a.Err, "there are more: --after %s\n", page.Next)
	}
	a.AsOf(standing.Cursor)
	return nil
}

func tableOf(list []catalog.Session, style cli.Style) render.Table {
	const kind, turns, runs, usd, head, active, title = 1, 2, 3, 4, 5, 6, 7
	t := render.Table{
		Head:  []string{"SESSION", "KIND", "TURNS", "RUNS", "USD", "HEAD", "ACTIVE", "TITLE"},
		Right: []int{turns, runs, usd, head}, Cut: []int{title, 0}, Drop: []int{head, runs, kind, usd, turns, active},
	}
	for _, s := range list {
		t.Rows = append(t.Rows, []string{cli.ID(s.ID), s.Kind, strconv.Itoa(s.Turns), strconv.Itoa(s.Runs), usdOf(s.Spent.USD), s.Head.String(), minute(s.LastAt), s.About()})
	}
	t.Paint = func(_, column int, cell string) string {
		if column == 0 || column == title {
			return cell
		}
		return style.Dim(cell)
	}
	return t
}

// usdOf is what was spent, in a list: a dash where nothing is known to have been, so that
// what is unknown does not look free.
func usdOf(a events.Amount) string {
	if r, ok := a.Rat(); !ok || r.Sign() == 0 {
		return "-"
	}
	return string(a)
}

func nothingListed(a *app.App, q catalog.Query) error {
	plain := catalog.Query{Namespace: q.Namespace, Sort: q.Sort, Limit: q.Limit}
	if q != plain {
		fmt.Fprintln(a.Err, "No session is like that.")
		return nil
	}
	fmt.Fprintln(a.Err, "There are no sessions yet. Try: tally import PATH")
	return nil
}

func writeListed(a *app.App, page catalog.Page) error {
	list := make([]listed, len(page.Sessions))
	for i, s := range page.Sessions {
		list[i] = listedOf(s)
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
	return l
}

// minute spells a time for a table.
func minute(t events.Timestamp) string {
	at, ok := t.Time()
	if !ok {
		return "-"
	}
	return at.UTC().Format("2006-01-02 15:04")
}
