package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/cmd/internal/show"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

func newRuns(a *cmdutil.App) *cobra.Command {
	r := &runLister{app: a}
	cmd := &cobra.Command{
		Use: "runs SESSION", Short: "List the runs of a session, such as evaluations and simulations", Args: cobra.ExactArgs(1),
		Long: `List the runs of a session: evaluations (tally), simulations (trajectory) and others,
each with its newest outcome and its number of results.

STALE shows whether the turns that a run judged have changed since: yes, no, or - if
the run did not record which turns it judged.

--tree shows which run delegated to which, including runs without a result yet. If no
run was delegated to, the list is the usual one.`,
		Example: cmdutil.Examples("tally runs order-desk", "tally runs last -o jsonl", "tally runs job/ID --tree", "tally show order-desk --run run-1785748100000-b4k3ry1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.tree && r.at != "" {
				return cli.Usagef("--tree shows the current runs: use it without --at")
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error { return r.list(cmd.Context(), st, args[0]) })
		},
	}
	cmd.Flags().StringVar(&r.at, "at", "", "position; default head")
	cmd.Flags().BoolVar(&r.all, "all", false, "also runs without a result")
	cmd.Flags().BoolVar(&r.tree, "tree", false, "show each run below the run that delegated to it")
	return cmd
}

type runLister struct {
	app       *cmdutil.App
	at        string
	all, tree bool
}

func (r *runLister) list(ctx context.Context, st *tally.Store, arg string) error {
	handle, err := r.app.Session(ctx, st, arg)
	if err != nil {
		return err
	}
	if r.tree {
		if done, err := r.asTree(ctx, handle); done || err != nil {
			return err
		}
	}
	s, err := handle.Load(ctx, r.at)
	err = projector.Tolerate(err)
	if err != nil {
		return err
	}
	var runs []show.Run
	for _, run := range s.Ledger.Runs {
		if run.Last() == nil && !r.all {
			continue
		}
		l, _, err := describeRun(ctx, st, s, run)
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			s.Damaged = append(s.Damaged, damage.Offset) // the run is listed without its result, and the damage is reported below
		} else if err != nil {
			return err
		}
		runs = append(runs, l)
	}
	slices.SortStableFunc(runs, compareRuns)
	if r.app.Format != cli.Text {
		return errors.Join(cli.WriteList(r.app.Out, r.app.Format, runs), r.app.WarnDamaged(s))
	}
	return errors.Join(r.print(s, runs), r.app.WarnDamaged(s))
}

func (r *runLister) print(s *projector.Session, runs []show.Run) error {
	if len(runs) == 0 {
		fmt.Fprintf(r.app.Err, "%s has no runs with a result.\n", plain.Printable(s.Subject.Name()))
		return nil
	}
	style := r.app.Style()
	t := render.Table{Head: []string{"TYPE", "ID", "TIME", "OUTCOME", "VERSIONS", "STALE"}, Right: []int{4}, Cut: []int{3, 1}, Drop: []int{4, 2, 5, 0}}
	for _, l := range runs {
		outcome := cmp.Or(l.Outcome, "pending")
		if l.Withdrawn {
			outcome += ", withdrawn"
		}
		t.Rows = append(t.Rows, []string{l.Type, l.ID, cli.Minute(l.Time), outcome, strconv.Itoa(l.Versions), staleText(l.Stale)})
	}
	t.Paint = func(row, column int, cell string) string {
		switch {
		case column == 3:
			return show.PaintOutcome(style, runs[row].Outcome, cell)
		case column == 5 && runs[row].Stale != nil && *runs[row].Stale:
			return style.Yellow(cell)
		}
		return cell
	}
	return r.app.Table(t)
}

func staleText(stale *bool) string {
	switch {
	case stale == nil:
		return "-"
	case *stale:
		return "yes"
	}
	return "no"
}

// compareRuns orders evaluations before simulations before others, then by time and id.
func compareRuns(a, b show.Run) int {
	return cmp.Or(cmp.Compare(typeRank(a.Type), typeRank(b.Type)), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Time, b.Time), cmp.Compare(a.ID, b.ID))
}

func typeRank(kind string) int {
	switch kind {
	case "tally":
		return 0
	case "trajectory":
		return 1
	}
	return 2
}

// describeRun describes a run, and returns its newest result if there is one.
func describeRun(ctx context.Context, st *tally.Store, s *projector.Session, run *projector.Run) (show.Run, events.Raw, error) {
	l := show.RunOf(run, s.Withdrawn(run.At))
	last := run.Last()
	if last == nil {
		return l, nil, nil
	}
	result, err := resultAt(ctx, st, last.Offset)
	if err != nil {
		return l, nil, err
	}
	l.Stale, l.StaleReason = staleness(s, last, result)
	return l, result, nil
}

// resultAt reads the result in a record.
func resultAt(ctx context.Context, st *tally.Store, at events.Offset) (events.Raw, error) {
	rec, err := st.Log.Record(ctx, at)
	if err == nil {
		rec, err = st.Loader().Whole(ctx, rec)
	}
	if err != nil {
		return nil, err
	}
	p, err := events.DecodeAs[events.RunFinished](rec.Event)
	if err != nil {
		return nil, err
	}
	return p.Result, nil
}

// staleness reports whether the turns that a result judged have changed, and why. It returns nil if that is unknown.
func staleness(s *projector.Session, r *projector.Result, result events.Raw) (*bool, string) {
	stale := false
	if r.Judged != nil {
		for _, name := range slices.Sorted(maps.Keys(r.Judged.Threads)) {
			judged, now := r.Judged.Threads[name], s.Threads[name]
			if now.Hash() != judged.Hash {
				stale = true
				return &stale, fmt.Sprintf("it judged %s of %s as of %v; they are others now (%d)", plain.Count(judged.Length, "turn"), name, r.Judged.Offset, len(s.Threads.Turns(name)))
			}
		}
		return &stale, ""
	}
	report, ok := render.ReportOf(result)
	if n := len(s.Threads.Turns(events.MainThread)); ok && report.Steps >= 0 && report.Steps != n {
		stale = true
		return &stale, fmt.Sprintf("it judged %s; the session has %d now", plain.Count(report.Steps, "turn"), n)
	}
	return nil, ""
}

// asTree prints the runs of a session as a tree. If no run was delegated to, it prints nothing and returns false.
func (r *runLister) asTree(ctx context.Context, handle *tally.Session) (bool, error) {
	o, err := handle.Outline(ctx)
	err = projector.Tolerate(err)
	if err != nil {
		return false, err
	}
	runs, has, err := show.TreeOf(ctx, handle, o, stores)
	if err != nil || !has {
		return false, err
	}
	if r.app.Format != cli.Text {
		return true, cli.WriteList(r.app.Out, r.app.Format, runs)
	}
	return true, r.app.Table(show.TreeTable(r.app.Style(), runs))
}
