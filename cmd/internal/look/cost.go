package look

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/projector/catalog"
)

// costs is what cost prints with -o json.
type costs struct {
	Spent    spentSum    `json:"spent"`              // all of it, rewound or not
	OnBranch *spentSum   `json:"onBranch,omitempty"` // what led to the threads as they are; of one session
	By       string      `json:"by"`                 // with commas between them, if there are several
	Groups   []costGroup `json:"groups"`
	InTurns  *toldSum    `json:"inTurns,omitempty"` // of responses of which no cost tells; in no other sum
	Prices   []usedPrice `json:"prices,omitempty"`
}

type costGroup struct {
	Key  string   `json:"key"`            // of several, with ", " between them
	Keys []string `json:"keys,omitempty"` // if there are several, in the order of by
	spentSum
}

func newCost(a *app.App) *cobra.Command {
	var by string
	cmd := &cobra.Command{
		Use: "cost [SESSION]", Short: "Sum what was spent, of one session or of all", Args: cobra.MaximumNArgs(1),
		Long: `Sum the recorded costs. What was spent stays spent whatever is rewound; "on this
branch" counts only what led to the threads as they are now.

USD is what makers reported. ~USD is computed: by who recorded the cost, else from its
tokens at the list price of its day. The two are never added, and a dash stands where
neither is known; UNKNOWN counts those costs. Of the costs that name one response of a
model, in whatever sessions, one counts. "In turns" are tokens that turns tell of
and no recorded cost does: they are in no other sum.

Prices are built in; prices.json beside config.toml comes first:
{"prices": [{"models": ["name", "name-*"], "from": "2026-03-01", "input": "1.25",
"output": "10", "cacheRead": "0.125", "cacheWrite": "1.25"}]}, in USD for a million
tokens. "upTo": 200000 bounds an entry to prompts of so many tokens.`,
		Example: app.Examples("tally cost", "tally cost last --by model", "tally cost --by day,model,project", "tally cost --by day -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if by == "" {
				by = "session"
				if len(args) == 1 {
					by = "model"
				}
			}
			for i, key := range strings.Split(by, ",") {
				if costKeys[key] == nil || slices.Contains(strings.Split(by, ",")[:i], key) {
					return cli.Usagef("--by %q: want model, project, agent, run, day, kind or session, or several of them with commas between", by)
				}
			}
			return cost(cmd.Context(), a, by, args)
		},
	}
	cmd.Flags().StringVar(&by, "by", "", "group by model, project, agent, run, day, kind or session, or by several, such as day,model (default model of one session, session of all)")
	return cmd
}

// costKeys are what costs are grouped by, given the session that counts them.
var costKeys = map[string]func(catalog.Usage, catalog.Session) string{
	"model":   func(u catalog.Usage, _ catalog.Session) string { return u.Model },
	"session": func(u catalog.Usage, _ catalog.Session) string { return cli.ID(u.Session) },
	"day":     func(u catalog.Usage, _ catalog.Session) string { return u.Day },
	"project": func(_ catalog.Usage, s catalog.Session) string { return s.Project },
	"kind":    func(_ catalog.Usage, s catalog.Session) string { return s.Kind },
	"agent": func(u catalog.Usage, s catalog.Session) string {
		name, _, _ := strings.Cut(u.Session, "/")
		if s.Kind != events.KindTranscript {
			return ""
		}
		return name
	},
	"run": func(u catalog.Usage, _ catalog.Session) string {
		if u.Run == nil {
			return "-"
		}
		return u.Run.String()
	},
}

func cost(ctx context.Context, a *app.App, by string, args []string) error {
	table, err := pricesOf(os.Getenv)
	if err != nil {
		return err
	}
	t := tab{by: by, groups: newSums(table), whole: newSums(table)}
	if len(args) == 1 {
		err = a.WithExisting(ctx, func(st *tally.Store) error { return t.session(ctx, st, args[0]) })
	}
	if err == nil {
		err = a.WithViews(ctx, "search", func(c config.Config, v app.Views) error { return t.views(ctx, c, v) })
	}
	if err != nil {
		return err
	}
	doc := t.costs()
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, a.Format, doc)
	}
	if err := writeCosts(a, doc); err != nil {
		return err
	}
	sayPrices(a, doc.Prices)
	return nil
}

// tab sums what was spent.
type tab struct {
	by            string
	sessions      map[string]catalog.Session // by id, where a key asks for them
	groups, whole *sums
	one           *projector.Session // nil: of all
}

// Keys of the sums of the whole.
const (
	everything = ""
	onBranch   = "on this branch"
)

func (t *tab) add(u catalog.Usage) {
	t.whole.add(everything, u)
	if u.Source != catalog.InTurn {
		t.groups.add(t.key(u), u)
	}
}

// key is the group of a cost: its keys, with a sign between them that none has.
func (t *tab) key(u catalog.Usage) string {
	var keys []string
	for name := range strings.SplitSeq(t.by, ",") {
		keys = append(keys, strings.ReplaceAll(costKeys[name](u, t.sessions[u.Session]), between, " "))
	}
	return strings.Join(keys, between)
}

const between = "\x00"

// session has the costs of one session summed, of which it is known what is in effect.
func (t *tab) session(ctx context.Context, st *tally.Store, name string) error {
	handle, err := app.Session(ctx, st, name)
	if err != nil {
		return err
	}
	t.one, err = handle.Load(ctx, "")
	return err
}

// views takes the costs, and what turns tell. The view knows them of all sessions: a
// response that several paid for counts in one.
func (t *tab) views(ctx context.Context, c config.Config, v app.Views) error {
	if err := t.label(ctx, c.Namespace, v); err != nil {
		return err
	}
	activity, err := catalog.OpenActivity(ctx, v.Dir)
	if err != nil {
		return err
	}
	defer activity.Close()
	usages := activity.Usages(ctx, c.Namespace)
	if t.one != nil {
		usages = activity.UsagesOf(ctx, c.Namespace, t.one.Subject.ID)
	}
	for u, err := range usages {
		if err != nil {
			return err
		}
		if t.add(u); t.one != nil && u.Source != catalog.InTurn && t.one.History.IsLive(u.Place()) {
			t.whole.add(onBranch, u)
		}
	}
	return nil
}

// label takes the sessions from the catalog if costs are grouped by what these say.
func (t *tab) label(ctx context.Context, namespace string, v app.Views) error {
	if !slices.ContainsFunc(strings.Split(t.by, ","), func(name string) bool { return slices.Contains([]string{"project", "kind", "agent"}, name) }) {
		return nil
	}
	page, err := v.Catalog.List(ctx, catalog.Query{Namespace: namespace})
	t.sessions = make(map[string]catalog.Session, len(page.Sessions))
	for _, s := range page.Sessions {
		t.sessions[s.ID] = s
	}
	return err
}

func (t *tab) costs() costs {
	doc := costs{Spent: t.whole.spent(everything), By: t.by, Groups: []costGroup{}, InTurns: t.whole.inTurns(everything), Prices: t.whole.prices()}
	if t.one != nil {
		branch := t.whole.spent(onBranch)
		doc.OnBranch = &branch
	}
	for _, key := range slices.Sorted(slices.Values(t.groups.costs.Keys())) {
		g := costGroup{Key: key, spentSum: t.groups.spent(key)}
		if keys := strings.Split(key, between); len(keys) > 1 {
			g.Key, g.Keys = strings.Join(keys, ", "), keys
		}
		doc.Groups = append(doc.Groups, g)
	}
	return doc
}

// writeCosts prints a table that is as detailed as the terminal is wide.
func writeCosts(a *app.App, doc costs) error {
	width := cli.Width(a.Out)
	table := costTable(a, doc, true)
	if table.Width(width) > width {
		table = costTable(a, doc, false)
	}
	return a.Table(table)
}

// costTable lays out costs, with each class of tokens or with all in one.
func costTable(a *app.App, doc costs, classes bool) render.Table {
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
	spent := func(labels []string, s spentSum) {
		row(labels, dashed(s.Reported), about(s.Computed), s.Tokens, s.Unknown)
	}
	for _, g := range doc.Groups {
		labels := []string{g.Key}
		if len(heads) > 1 {
			labels = slices.Clone(g.Keys)
		}
		for i := range labels {
			labels[i] = cmp.Or(labels[i], "-")
		}
		spent(labels, g.spentSum)
	}
	spent([]string{"spent"}, doc.Spent)
	if doc.OnBranch != nil {
		spent([]string{onBranch}, *doc.OnBranch)
	}
	if told := doc.InTurns; told != nil {
		row([]string{"in turns"}, "-", about(told.Computed), told.Tokens, told.Unknown)
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
