package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/spend"
	"github.com/tallylog/tally/projector"
)

func newCost(a *cmdutil.App) *cobra.Command {
	var by, tz string
	var showPrices bool
	cmd := &cobra.Command{
		Use: "cost [SESSION]", Short: "Show what sessions cost", Args: cobra.MaximumNArgs(1),
		Long: `Show what one session or all sessions cost: the sum of recorded costs. A rewind does
not reduce it; "on this branch" is the cost of the records in effect.

USD is reported by the makers of models. ~USD is computed, by the program that recorded
the cost, or else from tokens at the list price of the day. The two are never added. A
dash means that neither is known; UNKNOWN counts those costs. > means that a part has no
known price, so the cost is higher. "In turns" are tokens that turns mention without a
recorded cost: they are not part of other sums.

If several sessions record the cost of one response, it counts once, provided the id of
the response is unique. Copies that are left out are listed. Days are those of the local
time zone, or of --tz.

Prices are built in, each with its source and the day on which it was read; --prices
shows those that were used. Your own file prices.json next to config.toml takes
precedence: {"prices": [{"models": ["name", "name-*"], "from": "2026-03-01", "input":
"1.25", "output": "10", "cacheRead": "0.125", "cacheWrite": "1.25"}]}, in USD for a
million tokens. "upTo": 200000 limits an entry to shorter prompts. For "cacheWrite1h",
"webSearch" (for a thousand), "speed": "fast", "regions" and "tiers" (factors such as
{"batch": "0.5"}), see docs/prices.md.`,
		Example: cmdutil.Examples("tally cost", "tally cost last --by model", "tally cost --by day,model,project", "tally cost --by day --tz UTC -o json", "tally cost --prices"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if by == "" {
				by = "session"
				if len(args) == 1 {
					by = "model"
				}
			}
			q := reads.CostsQuery{By: by}
			if invalid, ok := errors.AsType[*events.InvalidError](q.Check()); ok {
				return cli.Usagef("--%s %s", invalid.Field, invalid.Reason)
			}
			var err error
			if q.Zone, err = cmdutil.ZoneOf(tz); err != nil {
				return err
			}
			return cost(cmd.Context(), a, q, showPrices, args)
		},
	}
	cmd.Flags().StringVar(&by, "by", "", "group by model, project, agent, run, day, kind or session, or by several, such as day,model (default: model for one session, session for all)")
	cmd.Flags().StringVar(&tz, "tz", "", "count days in this time zone, such as Europe/Berlin or UTC (default local)")
	cmdutil.CompleteZone(cmd)
	cmd.Flags().BoolVar(&showPrices, "prices", false, "show the prices that were used")
	return cmd
}

func cost(ctx context.Context, a *cmdutil.App, q reads.CostsQuery, showPrices bool, args []string) error {
	table, err := spend.Prices(os.Getenv)
	if err != nil {
		return err
	}
	if len(args) == 1 {
		err = a.WithExisting(ctx, func(st *tally.Store) (err error) {
			q.Session, err = loaded(ctx, a, st, args[0])
			return err
		})
	}
	var doc reads.Costs
	if err == nil {
		err = a.WithViews(ctx, []string{"catalog", "search"}, func(c config.Config, v reads.Views) (err error) {
			doc, err = reads.Reader{Views: v, Prices: table, Namespace: c.Namespace}.Costs(ctx, q)
			return err
		})
	}
	if err != nil {
		return err
	}
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, a.Format, doc)
	}
	if err := writeCosts(a, doc); err != nil {
		return err
	}
	if showPrices {
		if err := writePrices(a, doc.Prices); err != nil {
			return err
		}
	} else {
		spend.SayPrices(a.Err, doc.Prices)
	}
	sayCopies(a, doc.Copies)
	if slices.Contains(strings.Split(q.By, ","), "day") {
		fmt.Fprintf(a.Err, "days are those of %s\n", q.Zone.Name)
	}
	if doc.Speaking > 0 {
		fmt.Fprintf(a.Err, "the latest answer of %s is counted once it is complete: a minute after its last line at the latest\n", plain.Count(doc.Speaking, "session"))
	}
	a.AsOf(doc.Cursor)
	return nil
}

// loaded loads the session whose costs are shown, to know which records are in effect.
func loaded(ctx context.Context, a *cmdutil.App, st *tally.Store, name string) (*projector.Session, error) {
	handle, err := a.Session(ctx, st, name)
	if err != nil {
		return nil, err
	}
	s, err := handle.Load(ctx, "")
	return s, projector.Tolerate(err)
}

// sayCopies prints which costs were left out as copies, one line for each pair of sessions.
func sayCopies(a *cmdutil.App, list []reads.Copies) {
	const limit = 5
	for i, c := range list {
		if i == limit {
			fmt.Fprintf(a.Err, "left out as copies: those of %d more sessions (-o json)\n", len(list)-limit)
			return
		}
		amount := plain.Count(c.Costs, "cost")
		if c.USD != "" {
			amount += ", " + spend.Rounded(c.USD) + " USD"
		}
		fmt.Fprintf(a.Err, "left out as copies: %s of %s, the responses of which count for %s\n", amount, plain.Printable(c.Session), plain.Printable(c.Of))
	}
}

// writePrices prints the prices that were used.
func writePrices(a *cmdutil.App, list []spend.Used) error {
	t := render.Table{Head: []string{"PRICE OF", "FROM", "UP TO", "SPEED", "INPUT", "OUTPUT", "CACHE READ", "WRITE 5M", "WRITE 1H", "SEARCHES", "READ ON", "SOURCE"}, Cut: []int{11}, Right: []int{2, 4, 5, 6, 7, 8, 9}}
	for _, p := range list {
		upTo := ""
		if p.UpTo > 0 {
			upTo = strconv.FormatInt(p.UpTo, 10)
		}
		row := []string{p.Model, p.From, upTo, p.Speed, string(p.Input), string(p.Output), string(p.CacheRead), string(p.CacheWrite), string(p.CacheWrite1h), string(p.WebSearch), p.Checked, p.Source}
		for i := range row {
			row[i] = cmp.Or(row[i], "-")
		}
		t.Rows = append(t.Rows, row)
	}
	if len(t.Rows) == 0 {
		fmt.Fprintln(a.Err, "No price was used: no cost was computed from tokens.")
		return nil
	}
	fmt.Fprintln(a.Out)
	return a.Table(t)
}

// writeCosts prints a table with as many details as fit.
func writeCosts(a *cmdutil.App, doc reads.Costs) error {
	width := cli.Width(a.Out)
	table := costTable(a, doc, true)
	if table.Width(width) > width {
		table = costTable(a, doc, false)
	}
	if err := a.Table(table); err != nil {
		return err
	}
	spend.Legend(a.Err, table.Rows, "~")
	return nil
}

// costTable lays out costs, with tokens by class or in one column.
func costTable(a *cmdutil.App, doc reads.Costs, classes bool) render.Table {
	heads := strings.Split(strings.ToUpper(doc.By), ",")
	t := render.Table{Head: slices.Concat(heads, []string{"USD", "~USD"}, tokensHead(classes))}
	for c := range heads {
		t.Cut = append(t.Cut, c)
	}
	unknown := doc.Spent.Unknown > 0 || doc.InTurns != nil && doc.InTurns.Unknown > 0
	if unknown {
		t.Head = append(t.Head, "UNKNOWN")
	}
	row := func(labels []string, usd, computed string, tokens events.Tokens, n int) {
		labels = append(labels, make([]string, len(heads)-len(labels))...)
		cells := slices.Concat(labels, []string{usd, computed}, tokensCells(tokens, classes))
		if unknown {
			cells = append(cells, strconv.Itoa(n))
		}
		t.Rows = append(t.Rows, cells)
	}
	spent := func(labels []string, s spend.Sum) {
		row(labels, s.ReportedText(), s.ComputedText(), s.Tokens, s.Unknown)
	}
	for _, g := range doc.Groups {
		labels := []string{g.Key}
		if len(heads) > 1 {
			labels = slices.Clone(g.Keys)
		}
		for i := range labels {
			labels[i] = cmp.Or(labels[i], "-")
		}
		spent(labels, g.Sum)
	}
	spent([]string{"spent"}, doc.Spent)
	if doc.OnBranch != nil {
		spent([]string{"on this branch"}, *doc.OnBranch)
	}
	if told := doc.InTurns; told != nil {
		row([]string{"in turns"}, "-", told.ComputedText(), told.Tokens, told.Unknown)
	}
	for c := len(heads); c < len(t.Head); c++ {
		t.Right = append(t.Right, c)
	}
	style := a.Style()
	t.Paint = func(row, column int, padded string) string {
		switch {
		case row == len(doc.Groups):
			return style.Bold(padded)
		case t.Head[column] == "UNKNOWN" && strings.TrimSpace(padded) != "0":
			return style.Yellow(padded)
		case strings.TrimSpace(padded) == "-", t.Head[column] == "~USD":
			return style.Dim(padded)
		}
		return padded
	}
	return t
}

func tokensHead(classes bool) []string {
	if classes {
		return []string{"INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE"}
	}
	return []string{"TOKENS"}
}

func tokensCells(t events.Tokens, classes bool) (cells []string) {
	list := []int64{t.Total()}
	if classes {
		list = []int64{t.Input, t.Output, t.CacheRead, t.CacheWrite}
	}
	for _, n := range list {
		cells = append(cells, strconv.FormatInt(n, 10))
	}
	return cells
}
