package admin

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/registry"
	"github.com/tallylog/tally/internal/render"
)

// typeRow is a type of events in types -o json.
type typeRow struct {
	Type    string        `json:"type"`
	Moves   string        `json:"moves"`
	Schema  bool          `json:"schema,omitempty"`
	Offsets []string      `json:"offsets,omitempty"`
	Since   events.Offset `json:"since,omitempty"` // absent: not registered
	Last    events.Offset `json:"last,omitempty"`
	Events  *int          `json:"events,omitempty"` // with --count
	Written bool          `json:"written,omitempty"`
}

func typeRowOf(e registry.Entry) typeRow {
	return typeRow{Type: e.Name, Moves: e.Moves, Schema: e.Schema != nil, Offsets: e.Offsets, Since: e.Since, Last: e.Last}
}

func newTypes(a *cmdutil.App) *cobra.Command {
	count := false
	cmd := &cobra.Command{
		Use: "types", Short: "List the types of events that your programs add, or register one",
		Long: `List the registered types of events: how their events move with rewinds, whether a schema
checks their data, and the offset since which the type is registered. --count reads the
whole log, counts the events, and also lists types that are not registered.

Events of a type that moves with the thread go out of effect when they are rewound, as
turns do. All others stay in effect, as costs do: those of types that move with the
ledger, and of types that are not registered.

A type is the document type/NAME in the namespace default. Go programs register types by
embedded.Options.Types, any program by types add.`,
		Example: cmdutil.Examples("tally types", "tally types --count -o json", "tally types add vote.json"),
	}
	cmd = cmdutil.Noun(cmd, newTypesAdd(a))
	unknown := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknown(cmd, args)
		}
		return a.WithLook(cmd.Context(), func(st *tally.Store) error { return listTypes(cmd.Context(), a, st, count) })
	}
	cmd.Flags().BoolVar(&count, "count", false, "count the events of each type")
	return cmd
}

func newTypesAdd(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "add FILE|-", Short: "Register a type of events from a JSON file", Args: cobra.ExactArgs(1),
		Long: `Register a type of events from a file, or from standard input:

  {"name": "com.acme.vote.cast.v1", "moves": "thread",
   "schema": {"type": "object", "required": ["for"]}, "offsets": ["/target"]}

moves is thread or ledger: see tally types --help. schema is a JSON Schema of up to 64 KiB
that the data of new events must match; without one, any data does. offsets are JSON
pointers to members that hold offsets of the event's own subject.

If the type is registered already, its schema is replaced. Its moves and its offsets never
change: other ones are a conflict, with exit code 6.`,
		Example: cmdutil.Examples("tally types add vote.json", "tally types add - -o json < vote.json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := a.Content(args)
			if err != nil {
				return err
			}
			t, err := registry.Parse("", data)
			if err != nil {
				return err
			}
			return a.WithStore(cmd.Context(), func(st *tally.Store) error { return addType(cmd.Context(), a, st, t) })
		},
	}
}

func addType(ctx context.Context, a *cmdutil.App, st *tally.Store, t events.Type) error {
	e, wrote, err := registry.Register(ctx, st, t, true)
	if err != nil {
		return err
	}
	if a.Format != cli.Text {
		row := typeRowOf(e)
		row.Written = wrote
		return cli.WriteJSON(a.Out, a.Format, row)
	}
	if !wrote {
		return a.Say("%s is registered already, since %v.", cli.ID(e.Name), e.Since)
	}
	return a.Say("Registered %s: %v.", cli.ID(e.Name), e.Last)
}

func listTypes(ctx context.Context, a *cmdutil.App, st *tally.Store, count bool) error {
	list, err := registry.All(ctx, st.Log)
	if err != nil {
		return err
	}
	rows := make([]typeRow, 0, len(list))
	for _, e := range list {
		rows = append(rows, typeRowOf(e))
	}
	if count {
		if rows, err = counted(ctx, st, rows); err != nil {
			return err
		}
	}
	if a.Format != cli.Text {
		return cli.WriteList(a.Out, a.Format, rows)
	}
	if len(rows) == 0 {
		fmt.Fprintln(a.Err, "no type of events is registered: see tally types add --help")
		return nil
	}
	t := render.Table{Head: []string{"TYPE", "MOVES WITH", "SCHEMA", "SINCE"}, Right: []int{3, 4}, Cut: []int{0}}
	if count {
		t.Head = append(t.Head, "EVENTS")
	}
	for _, r := range rows {
		t.Rows = append(t.Rows, r.cells())
	}
	return a.Table(t)
}

func (r typeRow) cells() []string {
	schema, since := "no", "not registered"
	if r.Schema {
		schema = "yes"
	}
	if r.Since != 0 {
		since = r.Since.String()
	}
	cells := []string{cli.ID(r.Type), r.Moves, schema, since}
	if r.Events != nil {
		cells = append(cells, strconv.Itoa(*r.Events))
	}
	return cells
}

// counted counts the events of each type in the log. It adds types that are not registered.
func counted(ctx context.Context, st *tally.Store, rows []typeRow) ([]typeRow, error) {
	counts := make(map[string]int)
	for rec, err := range events.Readable(st.Log.Read(ctx, events.Range{})) {
		if err != nil {
			return nil, err
		}
		if !events.IsKnown(rec.Type) && rec.Type != events.TypeUnitAppended {
			counts[rec.Type]++
		}
	}
	for i := range rows {
		n := counts[rows[i].Type]
		rows[i].Events = &n
		delete(counts, rows[i].Type)
	}
	for typ, n := range counts {
		rows = append(rows, typeRow{Type: typ, Moves: events.InLedger, Events: &n})
	}
	slices.SortFunc(rows, func(a, b typeRow) int { return strings.Compare(a.Type, b.Type) })
	return rows, nil
}
