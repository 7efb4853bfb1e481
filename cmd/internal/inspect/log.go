package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

func newLog(a *cmdutil.App) *cobra.Command {
	r := &reader{app: a}
	cmd := &cobra.Command{
		Use: "log [SESSION] [A..B]", Short: "List the events of a session, or of all sessions", Args: cobra.MaximumNArgs(2),
		Long: `List the events of a session in the order of the log, each with its offset and whether
it is in effect: "*" live, "+" kept on a branch that was left (costs, runs and all that
a rewind leaves alone), "x" rewound, "<" a rewind, "!" stale or rejected, "-" erased: its
content was removed.

A..B is a range of positions, without A; either may be left out.

For an agent's session, text output leaves out the lines of the agent's own log, like
show does. --thread log lists them, and -o json and jsonl include them.

--type selects events of a type, such as turn.appended, or progress in a run by its name
in the program that ran it, such as callTools. It may be repeated.`,
		Example: cmdutil.Examples("tally log last --graph", "tally log travel @10..head", "tally log last --type turn.appended --type session.rewound", "tally log --all-sessions -f -o jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.everything != (len(args) == 0) || r.everything && r.graph {
				return cli.Usagef("name a SESSION, or use --all-sessions (without --graph)")
			}
			open := a.WithLook
			if r.follow {
				open = a.WithExisting
			}
			return open(cmd.Context(), func(st *tally.Store) error { return r.log(cmd.Context(), st, args) })
		},
	}
	cmd.Flags().BoolVar(&r.everything, "all-sessions", false, "events of all sessions and documents of the namespace")
	cmd.Flags().BoolVar(&r.graph, "graph", false, "draw the branches of rewinds")
	cmd.Flags().BoolVarP(&r.follow, "follow", "f", false, "wait for new events, until interrupted")
	cmd.Flags().BoolVar(&r.raw, "raw", false, "only print the data of each event, byte for byte")
	cmd.Flags().StringVar(&r.thread, "thread", "", "only turns of this thread")
	cmd.Flags().StringArrayVar(&r.types, "type", nil, "only events of this type, or progress in a run with this name")
	return cmd
}

// reader prints events.
type reader struct {
	app                            *cmdutil.App
	everything, graph, follow, raw bool
	types                          []string
	thread                         string
	beside                         int                   // number of lines that were left out
	moves                          func(typ string) bool // of types that the store registers
}

// isBeside reports whether a record is a line of an agent's log, which text output leaves out by default.
func (r *reader) isBeside(f projector.Fact) bool {
	if r.app.Format != cli.Text || r.raw || r.everything || len(r.types) > 0 || r.thread != "" || !events.IsAgentLine(f.Event) {
		return false
	}
	return comesTo(f, events.LogThread)
}

// comesTo reports whether a record appends turns to a thread.
func comesTo(f projector.Fact, thread string) bool {
	p, ok := f.Payload.(*events.TurnAppended)
	return ok && slices.ContainsFunc(p.Entries, func(e events.Entry) bool { return e.Thread == thread })
}

// wants reports whether a record matches --type and --thread.
func (r *reader) wants(f projector.Fact) bool {
	if r.thread != "" && !comesTo(f, r.thread) {
		return false
	}
	if len(r.types) == 0 || slices.Contains(r.types, f.Type) || slices.Contains(r.types, shortType(f.Type)) {
		return true
	}
	p, happened := projector.ProgressOf(f)
	return happened && (slices.Contains(r.types, p.Kind) || slices.Contains(r.types, p.Name))
}

// shortType returns a type without the prefix and the suffix of all types.
func shortType(name string) string {
	return strings.TrimSuffix(strings.TrimPrefix(name, "tally."), ".v1")
}

func (r *reader) log(ctx context.Context, st *tally.Store, args []string) error {
	if r.everything {
		return r.list(ctx, st, events.Range{Namespace: st.Namespace()}, nil)
	}
	handle, err := r.app.Session(ctx, st, args[0])
	if err != nil {
		return err
	}
	s, err := handle.Outline(ctx)
	err = projector.Tolerate(err)
	if err != nil {
		return err
	}
	rng := events.Range{Subject: s.Subject()}
	if len(args) == 2 {
		if rng.After, rng.Upto, err = r.bounds(ctx, s, args[1]); err != nil {
			return err
		}
	}
	if r.graph && (r.follow || len(r.types) > 0 || r.thread != "") {
		return cli.Usagef("--graph draws all records: use it without --follow, --type and --thread")
	}
	if r.moves, err = reads.MovesOf(ctx, st.Log, s.Ledger()); err != nil {
		return err
	}
	if r.graph {
		return r.drawGraph(ctx, st, handle, rng)
	}
	return r.list(ctx, st, rng, s)
}

// bounds resolves A..B to offsets: after A, up to B.
func (r *reader) bounds(ctx context.Context, s *projector.Outline, text string) (after, upto events.Offset, err error) {
	from, to, ok := strings.Cut(text, "..")
	if !ok {
		return 0, 0, cli.Usagef("%q: want a range such as @10..@20 or @10..", text)
	}
	for _, end := range []struct {
		text string
		at   *events.Offset
	}{{from, &after}, {to, &upto}} {
		if end.text == "" {
			continue
		}
		p, err := projector.ParsePosition(end.text)
		if err != nil {
			return 0, 0, err
		}
		if *end.at, err = s.Resolve(ctx, p); err != nil {
			return 0, 0, err
		}
	}
	if to != "" && (after > upto || upto == 0) {
		return 0, 0, cli.Usagef("%q ends at %v, which is not after %v where it begins: the earlier position comes first", text, upto, after)
	}
	return after, upto, nil
}

// logged is an event in log -o json.
type logged struct {
	Offset   events.Offset `json:"offset"`
	Recorded string        `json:"recorded,omitempty"`
	State    string        `json:"state,omitempty"` // see reads.StateOf; purged for a document, or erased; else absent with --all-sessions and -f
	Reason   string        `json:"reason,omitempty"`
	Damaged  string        `json:"damaged,omitempty"`
	Event    events.Raw    `json:"event,omitempty"` // as CloudEvents JSON
}

// list prints records in order. If there is a session s, list also prints whether each is in effect.
func (r *reader) list(ctx context.Context, st *tally.Store, rng events.Range, s *projector.Outline) error {
	records := st.Log.Read(ctx, rng)
	format := r.app.Format
	if r.follow {
		records = st.Log.Follow(ctx, rng)
		if format == cli.JSON {
			format = cli.JSONL // lines, because a JSON array would have to end
		}
	}
	list := cli.NewList(r.app.Out, format)
	damaged := 0
	for rec, err := range st.Loader().Shown(ctx, records) {
		damage, isDamage := errors.AsType[*events.DamageError](err)
		if isDamage {
			damaged++
			fmt.Fprintln(r.app.Err, plain.Printable(damage.Error()))
			if format != cli.Text && !r.raw {
				if err := list.Add(logged{Offset: damage.Offset, Damaged: damage.Error()}); err != nil {
					return err
				}
			}
			continue
		}
		if err != nil {
			return err
		}
		f := projector.Fact{Record: rec.Record}
		if format == cli.Text && !r.raw || r.thread != "" || len(r.types) > 0 {
			f = projector.Decode(rec.Record) // decoded once, because a record may be large
		}
		if !r.wants(f) {
			continue
		}
		if r.isBeside(f) {
			r.beside++
			continue
		}
		if err := r.print(list, format, f, rec.Purged, s); err != nil {
			return err
		}
	}
	if r.follow && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r.beside > 0 {
		fmt.Fprintf(r.app.Err, "%s beside the conversation left out: --thread %s lists them\n", plain.Count(r.beside, "line"), events.LogThread)
	}
	if format != cli.Text && !r.raw {
		if err := list.Close(); err != nil {
			return err
		}
	}
	if damaged > 0 {
		return cli.Silent(cli.Integrity)
	}
	return nil
}

func (r *reader) print(list *cli.List, format cli.Format, rec projector.Fact, purged bool, s *projector.Outline) error {
	if r.raw {
		_, err := r.app.Bytes().Write(append(rec.Data[:len(rec.Data):len(rec.Data)], '\n'))
		return err
	}
	state, reason := "", ""
	if s != nil && !r.follow {
		state, reason = reads.StateOf(s.Ledger(), s.IsLive(rec.Offset), s.InEffect(rec.Record, r.moves), rec.Record)
	}
	if purged {
		state, reason = "purged", "its content was purged"
	}
	if receipt := rec.Erased(); receipt != "" {
		state, reason = "erased", "receipt "+receipt
	}
	if format == cli.Text {
		mark := stateMarks[state]
		if mark == 0 {
			mark = ' '
		}
		_, err := fmt.Fprintln(r.app.Out, r.paint(state, string(mark)+" "+r.line(rec, s == nil, reason, cli.Width(r.app.Out)-2)))
		return err
	}
	event, err := events.AppendJSON(nil, rec.Event)
	if err != nil {
		return err
	}
	return list.Add(logged{Offset: rec.Offset, Recorded: rec.Recorded.UTC().Format(time.RFC3339Nano), State: state, Reason: reason, Event: event})
}

var stateMarks = map[string]byte{"live": '*', "kept": '+', "rewound": 'x', "rewind": '<', "stale": '!', "rejected": '!', "erased": '-'}

// paint colours a line by the state of its record. The mark says the same.
func (r *reader) paint(state, line string) string {
	style := r.app.Style()
	switch state {
	case "rewound":
		return style.Dim(line)
	case "rewind":
		return style.Cyan(line)
	case "stale", "rejected":
		return style.Yellow(line)
	}
	return line
}

// minTimed is the minimal width of a line with a time.
const minTimed = 60

// line returns a record as text in at most width columns. The time is left out on narrow output.
func (r *reader) line(rec projector.Fact, withSubject bool, reason string, width int) string {
	name := shortType(rec.Type)
	at := rec.Shown()
	text := fmt.Sprintf("%-7v %s", rec.Offset, name)
	if width >= minTimed {
		text = fmt.Sprintf("%-7v %s  %-18s", rec.Offset, at.UTC().Format("2006-01-02 15:04:05"), name)
	}
	if withSubject {
		text += " " + render.Cut(subject(rec.Record), max((width-len(text))/2, 12))
	}
	if reason != "" {
		reason = "  (" + reason + ")"
	}
	room := width - len(text) - 1
	if what := render.Event(rec, render.Excerpt(max(room-len(reason), min(room, 20)))); what != "" {
		text += " " + what
	}
	return strings.TrimRight(render.Cut(text+reason, width), " ")
}

// subject returns the id of a session, or the kind and id of a document.
func subject(rec events.Record) string {
	if rec.Subject.IsSession() {
		return rec.Subject.ID
	}
	return rec.Subject.String()
}

// drawGraph prints the records of a session, with the graph of its branches.
func (r *reader) drawGraph(ctx context.Context, st *tally.Store, handle *tally.Session, rng events.Range) error {
	grown, s, err := reads.Reader{Store: st}.Branches(ctx, reads.BranchesQuery{Session: handle.ID(), After: rng.After, Upto: rng.Upto})
	if err != nil {
		return err
	}
	nodes := make([]render.Node, len(grown.Records))
	for i, g := range grown.Records {
		mark := stateMarks[g.State]
		if g.State == "rewound" || g.State == "kept" {
			mark = '*'
		}
		nodes[i] = render.Node{Offset: g.Offset, Live: g.Live, After: g.After, Mark: mark}
	}
	before, marks := render.Graph(nodes)
	list, width := cli.NewList(r.app.Out, r.app.Format), cli.Width(r.app.Out)
	for i, g := range grown.Records {
		if r.app.Format != cli.Text {
			if err := list.Add(g); err != nil {
				return err
			}
			continue
		}
		for _, line := range before[i] {
			fmt.Fprintln(r.app.Out, line)
		}
		line := marks[i] + r.line(projector.Decode(g.Record), false, g.Reason, width-len(marks[i]))
		if _, err := fmt.Fprintln(r.app.Out, r.paint(g.State, line)); err != nil {
			return err
		}
	}
	if r.app.Format != cli.Text {
		err = list.Close()
	}
	return errors.Join(err, r.app.WarnDamaged(s))
}
