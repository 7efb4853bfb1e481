package inspect

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/spend"
	"github.com/tallylog/tally/projector"
)

// stats is the JSON output of stats.
type stats struct {
	By     string       `json:"by"`
	Since  string       `json:"since,omitempty"` // first day
	Until  string       `json:"until,omitempty"` // day after the last one
	Groups []statsGroup `json:"groups"`
	Total  statsSum     `json:"total"`
	TZ     string       `json:"tz,omitempty"` // time zone of the days; absent: UTC
	Prices []spend.Used `json:"prices,omitempty"`
}

type statsGroup struct {
	Key string `json:"key"` // "" for no project, model or kind
	statsSum
}

// statsSum counts what happened. Groups by tool have neither turns nor costs.
type statsSum struct {
	Turns   int         `json:"turns"` // turns that were recorded, rewound or not
	Calls   int         `json:"calls"` // calls of tools
	Errors  int         `json:"errors"`
	Spent   *spend.Sum  `json:"spent,omitempty"`
	InTurns *spend.Told `json:"inTurns,omitempty"`
}

func newStats(a *cmdutil.App) *cobra.Command {
	q := statsQuery{by: "day"}
	var since, until, tz string
	cmd := &cobra.Command{
		Use: "stats [SESSION]", Short: "Count turns, tool calls and costs by day, model, tool or project", Args: cobra.MaximumNArgs(1),
		Long: `Count turns, tool calls, errors of tools, tokens and costs, in one session or in all. The
bar shows turns, or calls for --by tool. Rewound turns count, too.

TOKENS and USD are of recorded costs. IN TURNS are tokens that turns mention without a
recorded cost. ~ is computed at list prices (tally cost --help). These are never added
to each other. Days are whole days of the local time zone, or of --tz. --until excludes
its day.`,
		Example: cmdutil.Examples("tally stats --since 30d", "tally stats --by tool", "tally stats last --by model -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if q.zone, err = cmdutil.ZoneOf(tz); err != nil {
				return err
			}
			if q.since, err = dayFlag("since", since, q.zone); err != nil {
				return err
			}
			if q.until, err = dayFlag("until", until, q.zone); err != nil {
				return err
			}
			return runStats(cmd.Context(), a, q, args)
		},
	}
	cmd.Flags().Var(cli.OneOf(&q.by, "key", "day", "model", "tool", "project", "kind"), "by", "group by day, model, tool, project or kind")
	cmd.Flags().StringVar(&since, "since", "", "only from this day on, or within a duration such as 30d")
	cmd.Flags().StringVar(&until, "until", "", "only before this day")
	cmd.Flags().StringVar(&tz, "tz", "", "count days in this time zone, such as Europe/Berlin or UTC (default local)")
	cmdutil.CompleteZone(cmd)
	return cmd
}

// dayFlag parses the time of a filter to a day.
func dayFlag(name, text string, zone reads.Zone) (string, error) {
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return day.Format(time.DateOnly), nil // a day of the time zone
	}
	at, err := cmdutil.When(name, text, time.Now())
	if err != nil || at.IsZero() {
		return "", err
	}
	return zone.Day(at), nil
}

// statsQuery selects the turns and costs to count. A zero field selects all.
type statsQuery struct {
	by, since, until, session string
	zone                      reads.Zone
}

func (q statsQuery) has(session, day string) bool {
	return (q.session == "" || q.session == session) && q.since <= day && (q.until == "" || day < q.until)
}

// dayOf returns the day of a quarter of an hour in the time zone of the query.
func (q statsQuery) dayOf(d catalog.Day) string {
	at, err := time.Parse(time.DateOnly+" 15:04", d.Day+" "+d.Quarter)
	if err != nil {
		return d.Day
	}
	return q.zone.Day(at)
}

func runStats(ctx context.Context, a *cmdutil.App, q statsQuery, args []string) error {
	table, err := spend.Prices(os.Getenv)
	if err != nil {
		return err
	}
	if len(args) == 1 {
		err = a.WithExisting(ctx, func(st *tally.Store) error {
			s, err := a.Session(ctx, st, args[0])
			if err == nil {
				q.session = s.ID()
			}
			return err
		})
	}
	if err != nil {
		return err
	}
	return a.WithViews(ctx, []string{"catalog", "search"}, func(c config.Config, v reads.Views) error {
		n := &counter{query: q, groups: spend.New(table), whole: spend.New(table), counts: make(map[string]*statsSum)}
		if err := n.count(ctx, c.Namespace, v); err != nil {
			return err
		}
		return writeStats(a, n.cursor, n.stats())
	})
}

// everything is the key of the total.
const everything = ""

// counter counts by key, and in total.
type counter struct {
	query         statsQuery
	of            map[string]string // key by session, for groups by project or kind
	groups, whole *spend.Sums
	counts        map[string]*statsSum
	total         statsSum
	cursor        projector.Cursor // offset up to which events are counted
}

func (n *counter) count(ctx context.Context, namespace string, v reads.Views) error {
	if err := n.label(ctx, namespace, v); err != nil {
		return err
	}
	activity, err := catalog.OpenActivity(ctx, v.Dir)
	if err != nil {
		return err
	}
	defer activity.Close()
	if n.cursor, err = v.AsOf(ctx, activity.Standing); err != nil {
		return err
	}
	for c, err := range activity.Calls(ctx, namespace) {
		if err != nil {
			return err
		}
		n.call(c)
	}
	if n.query.by == "tool" {
		return nil
	}
	for d, err := range activity.Days(ctx, namespace) {
		if err != nil {
			return err
		}
		if day := n.query.dayOf(d); n.query.has(d.Session, day) {
			n.each(n.key(d.Session, day, d.Model, ""), func(s *statsSum) { s.Turns += d.Turns })
		}
	}
	for u, err := range activity.Usages(ctx, namespace, nil) {
		if err != nil {
			return err
		}
		if day := n.query.zone.DayOf(u.At, u.Day); n.query.has(u.Session, day) {
			key := n.key(u.Session, day, u.Model, "")
			n.each(key, func(*statsSum) {})
			n.groups.Add(key, u)
			n.whole.Add(everything, u)
		}
	}
	return nil
}

// label reads the project or the kind of each session from the catalog.
func (n *counter) label(ctx context.Context, namespace string, v reads.Views) error {
	if n.query.by != "project" && n.query.by != "kind" {
		return nil
	}
	page, err := v.Catalog.List(ctx, catalog.Query{Namespace: namespace, Erased: true})
	if err != nil {
		return err
	}
	n.of = make(map[string]string, len(page.Sessions))
	for _, s := range page.Sessions {
		n.of[s.ID] = s.Project
		if n.query.by == "kind" {
			n.of[s.ID] = s.Kind
		}
	}
	return nil
}

// key returns the group of an event.
func (n *counter) key(session, day, model, tool string) string {
	switch n.query.by {
	case "day":
		return day
	case "model":
		return model
	case "tool":
		return tool
	}
	if n.query.by == "kind" {
		return cmp.Or(n.of[session], events.KindOf(session)) // the catalog has no items
	}
	return n.of[session]
}

// each counts under a key, and in the total.
func (n *counter) each(key string, count func(*statsSum)) {
	if n.counts[key] == nil {
		n.counts[key] = new(statsSum)
	}
	count(n.counts[key])
	count(&n.total)
}

func (n *counter) call(c catalog.Call) {
	day := n.query.zone.DayOf(c.At, c.Day)
	if !n.query.has(c.Session, day) {
		return
	}
	n.each(n.key(c.Session, day, c.Model, c.Tool), func(s *statsSum) {
		s.Calls++
		if c.Failed {
			s.Errors++
		}
	})
}

// stats returns the groups: days in order, other groups by size.
func (n *counter) stats() stats {
	doc := stats{By: n.query.by, Since: n.query.since, Until: n.query.until, Groups: []statsGroup{}, Prices: n.whole.Prices()}
	if n.query.zone.Name != "UTC" {
		doc.TZ = n.query.zone.Name
	}
	doc.Total = withSums(n.total, n.whole, everything)
	for key, counts := range n.counts {
		doc.Groups = append(doc.Groups, statsGroup{key, withSums(*counts, n.groups, key)})
	}
	slices.SortFunc(doc.Groups, func(a, b statsGroup) int {
		if n.query.by == "day" {
			return cmp.Compare(a.Key, b.Key)
		}
		return cmp.Or(cmp.Compare(doc.measure(b.statsSum), doc.measure(a.statsSum)), cmp.Compare(a.Key, b.Key))
	})
	return doc
}

// withSums adds the costs under a key to counts.
func withSums(s statsSum, of *spend.Sums, key string) statsSum {
	if spent := of.Of(key); spent.Events > 0 {
		s.Spent = &spent
	}
	s.InTurns = of.ToldOf(key)
	return s
}

// measure returns the value that the bar of a group shows.
func (d stats) measure(s statsSum) int64 {
	if d.By == "tool" {
		return int64(s.Calls)
	}
	return int64(s.Turns)
}

func writeStats(a *cmdutil.App, at projector.Cursor, doc stats) error {
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, a.Format, doc)
	}
	if len(doc.Groups) == 0 {
		fmt.Fprintln(a.Err, "Nothing to count.")
	} else if err := drawStats(a, doc); err != nil {
		return err
	}
	spend.SayPrices(a.Err, doc.Prices)
	if doc.By == "day" || doc.Since != "" || doc.Until != "" {
		fmt.Fprintf(a.Err, "days are those of %s\n", cmp.Or(doc.TZ, "UTC"))
	}
	a.AsOf(at)
	return nil
}
