package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/spend"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// costs is the JSON output of cost.
type costs struct {
	Spent    spend.Sum    `json:"spent"`              // all costs, rewound or not
	OnBranch *spend.Sum   `json:"onBranch,omitempty"` // costs of the records in effect; only for one session
	By       string       `json:"by"`                 // keys, separated by commas
	TZ       string       `json:"tz,omitempty"`       // time zone of the days, if By includes day; absent: UTC
	Groups   []costGroup  `json:"groups"`
	InTurns  *spend.Told  `json:"inTurns,omitempty"` // responses without a recorded cost; not part of another sum
	Copies   []copies     `json:"copies,omitempty"`  // costs that are not part of any sum, because another session has the same response
	Prices   []spend.Used `json:"prices,omitempty"`
}

// copies are costs of a session that are left out, because another session has the same responses.
type copies struct {
	Session string        `json:"session"`
	Of      string        `json:"of"`
	Costs   int           `json:"costs"`
	USD     events.Amount `json:"usd,omitempty"` // sum of amounts in events; absent if no event has an amount
	Tokens  events.Tokens `json:"tokens"`
}

type costGroup struct {
	Key  string   `json:"key"`            // several keys are separated by ", "
	Keys []string `json:"keys,omitempty"` // only for several keys, in the order of By
	spend.Sum
}

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
			for i, key := range strings.Split(by, ",") {
				if costKeys[key] == nil || slices.Contains(strings.Split(by, ",")[:i], key) {
					return cli.Usagef("--by %q: want model, project, agent, run, day, kind or session, or several separated by commas", by)
				}
			}
			zone, err := cmdutil.ZoneOf(tz)
			if err != nil {
				return err
			}
			return cost(cmd.Context(), a, costQuery{by, zone, showPrices}, args)
		},
	}
	cmd.Flags().StringVar(&by, "by", "", "group by model, project, agent, run, day, kind or session, or by several, such as day,model (default: model for one session, session for all)")
	cmd.Flags().StringVar(&tz, "tz", "", "count days in this time zone, such as Europe/Berlin or UTC (default local)")
	cmdutil.CompleteZone(cmd)
	cmd.Flags().BoolVar(&showPrices, "prices", false, "show the prices that were used")
	return cmd
}

// costQuery is how costs are grouped and shown.
type costQuery struct {
	by     string
	zone   cmdutil.Zone
	prices bool
}

// costKeys returns the group of a cost, by the name of the key.
var costKeys = map[string]func(catalog.Usage, catalog.Session, cmdutil.Zone) string{
	"model":   func(u catalog.Usage, _ catalog.Session, _ cmdutil.Zone) string { return u.Model },
	"session": func(u catalog.Usage, _ catalog.Session, _ cmdutil.Zone) string { return cli.ID(u.Session) },
	"day":     func(u catalog.Usage, _ catalog.Session, z cmdutil.Zone) string { return dayIn(z, u.At, u.Day) },
	"project": func(_ catalog.Usage, s catalog.Session, _ cmdutil.Zone) string { return s.Project },
	"kind": func(u catalog.Usage, s catalog.Session, _ cmdutil.Zone) string {
		return cmp.Or(s.Kind, events.KindOf(u.Session)) // the catalog has no items
	},
	"agent": func(u catalog.Usage, s catalog.Session, _ cmdutil.Zone) string {
		name, _, _ := strings.Cut(u.Session, "/")
		if s.Kind != events.KindTranscript {
			return ""
		}
		return name
	},
	"run": func(u catalog.Usage, _ catalog.Session, _ cmdutil.Zone) string {
		if u.Run == nil {
			return "-"
		}
		return u.Run.String()
	},
}

// dayIn returns the day of a time in a time zone. If the time is unknown, it returns the day in UTC.
func dayIn(z cmdutil.Zone, at events.Timestamp, utc string) string {
	if t, ok := at.Time(); ok {
		return z.Day(t)
	}
	return utc
}

func cost(ctx context.Context, a *cmdutil.App, q costQuery, args []string) error {
	table, err := spend.Prices(os.Getenv)
	if err != nil {
		return err
	}
	t := tab{costQuery: q, groups: spend.New(table), whole: spend.New(table), copies: make(map[[2]string]*projector.Total)}
	if len(args) == 1 {
		err = a.WithExisting(ctx, func(st *tally.Store) error { return t.session(ctx, a, st, args[0]) })
	}
	if err == nil {
		err = a.WithViews(ctx, []string{"catalog", "search"}, func(c config.Config, v cmdutil.Views) error { return t.views(ctx, c, v) })
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
	if q.prices {
		if err := writePrices(a, doc.Prices); err != nil {
			return err
		}
	} else {
		spend.SayPrices(a.Err, doc.Prices)
	}
	sayCopies(a, doc.Copies)
	if t.names("day") {
		fmt.Fprintf(a.Err, "days are those of %s\n", q.zone.Name)
	}
	if t.speaking > 0 {
		fmt.Fprintf(a.Err, "the latest answer of %s is counted once it is complete: a minute after its last line at the latest\n", plain.Count(t.speaking, "session"))
	}
	a.AsOf(t.asOf)
	return nil
}

// sayCopies prints which costs were left out as copies, one line for each pair of sessions.
func sayCopies(a *cmdutil.App, list []copies) {
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

// tab adds up costs.
type tab struct {
	costQuery
	sessions      map[string]catalog.Session // by id, if a key needs them
	groups, whole *spend.Sums
	copies        map[[2]string]*projector.Total // by the session of the copy and that of the original
	one           *projector.Session             // nil for all sessions
	asOf          projector.Cursor
	speaking      int // sessions whose last response is not counted yet
}

// names reports whether costs are grouped by a key.
func (t *tab) names(key string) bool { return slices.Contains(strings.Split(t.by, ","), key) }

// Keys of the totals.
const (
	everything = ""
	onBranch   = "on this branch"
)

func (t *tab) add(u catalog.Usage) {
	t.whole.Add(everything, u)
	if u.Source != catalog.InTurn {
		t.groups.Add(t.key(u), u)
	}
}

// key returns the group of a cost: its keys, joined by a separator that no key contains.
func (t *tab) key(u catalog.Usage) string {
	var keys []string
	for name := range strings.SplitSeq(t.by, ",") {
		keys = append(keys, strings.ReplaceAll(costKeys[name](u, t.sessions[u.Session], t.zone), between, " "))
	}
	return strings.Join(keys, between)
}

const between = "\x00"

// session loads the session whose costs are shown, to know which records are in effect.
func (t *tab) session(ctx context.Context, a *cmdutil.App, st *tally.Store, name string) error {
	handle, err := a.Session(ctx, st, name)
	if err != nil {
		return err
	}
	t.one, err = handle.Load(ctx, "")
	err = projector.Tolerate(err)
	return err
}

// views reads costs and tokens from the view. The view knows all sessions, so a response in several sessions counts
// once.
func (t *tab) views(ctx context.Context, c config.Config, v cmdutil.Views) error {
	if err := t.label(ctx, c.Namespace, v); err != nil {
		return err
	}
	activity, err := catalog.OpenActivity(ctx, v.Dir)
	if err != nil {
		return err
	}
	defer activity.Close()
	if t.asOf, err = v.AsOf(ctx, activity.Standing); err != nil {
		return err
	}
	if err := t.countSpeaking(ctx, c.Namespace, v); err != nil {
		return err
	}
	usages := activity.Usages(ctx, c.Namespace, t.leaveOut)
	if t.one != nil {
		usages = activity.UsagesOf(ctx, c.Namespace, t.leaveOut, t.one.Subject.ID)
	}
	for u, err := range usages {
		if err != nil {
			return err
		}
		if t.add(u); t.one != nil && u.Source != catalog.InTurn && t.one.History.IsLive(u.CountsAt()) {
			t.whole.Add(onBranch, u)
		}
	}
	return nil
}

// countSpeaking counts the sessions of Claude Code whose last response is not counted yet. Each line of a response has
// the tokens so far. The response counts when the next one begins, the turn ends, or a minute passes without a line.
func (t *tab) countSpeaking(ctx context.Context, namespace string, v cmdutil.Views) error {
	page, err := v.Catalog.List(ctx, catalog.Query{Namespace: namespace, Since: time.Now().Add(-time.Minute)})
	for _, s := range page.Sessions {
		of := t.one == nil || t.one.Subject.ID == s.ID
		if of && s.Kind == events.KindTranscript && strings.HasPrefix(s.ID, "claude/") {
			t.speaking++
		}
	}
	return err
}

// leaveOut records a copy.
func (t *tab) leaveOut(c catalog.Copy) {
	key := [2]string{c.Session, c.Of}
	if t.copies[key] == nil {
		t.copies[key] = &projector.Total{USD: "0"}
	}
	*t.copies[key] = t.copies[key].Plus(projector.Cost{USD: c.USD, Tokens: c.Tokens})
}

// label reads the sessions from the catalog, if costs are grouped by their attributes.
func (t *tab) label(ctx context.Context, namespace string, v cmdutil.Views) error {
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
	doc := costs{Spent: t.whole.Of(everything), By: t.by, Groups: []costGroup{}, InTurns: t.whole.ToldOf(everything), Prices: t.whole.Prices()}
	if t.one != nil {
		branch := t.whole.Of(onBranch)
		doc.OnBranch = &branch
	}
	if t.names("day") && t.zone.Name != "UTC" {
		doc.TZ = t.zone.Name
	}
	for _, key := range slices.SortedFunc(maps.Keys(t.copies), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		c := t.copies[key]
		doc.Copies = append(doc.Copies, copies{cli.ID(key[0]), cli.ID(key[1]), c.Events, nonzero(c.USD), c.Tokens})
	}
	for _, key := range slices.Sorted(slices.Values(t.groups.Keys())) {
		g := costGroup{Key: key, Sum: t.groups.Of(key)}
		if keys := strings.Split(key, between); len(keys) > 1 {
			g.Key, g.Keys = strings.Join(keys, ", "), keys
		}
		doc.Groups = append(doc.Groups, g)
	}
	return doc
}

// nonzero returns an amount, or "" for zero.
func nonzero(usd events.Amount) events.Amount {
	if r, ok := usd.Rat(); !ok || r.Sign() == 0 {
		return ""
	}
	return usd
}

// writeCosts prints a table with as many details as fit.
func writeCosts(a *cmdutil.App, doc costs) error {
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
func costTable(a *cmdutil.App, doc costs, classes bool) render.Table {
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
		spent([]string{onBranch}, *doc.OnBranch)
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
