package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
)

func newRewind(a *app.App) *cobra.Command {
	m := &mover{app: a, done: "rewound"}
	var to, reason string
	cmd := &cobra.Command{
		Use: "rewind SESSION --to POSITION", Short: "Move the head back to a position; nothing is deleted", Args: cobra.ExactArgs(1),
		Long: `Move the head of a session back to a position. The turns after it go out of
effect; cost, runs and everything else in the ledger stay. Nothing is deleted:
undo takes the rewind back. It says what leaves and what returns, and asks.`,
		Example: app.Examples("tally-replay rewind last --to ~2", "tally-replay rewind travel --to '#5' --dry-run", "tally-replay rewind travel --to @120 -y"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.run(cmd.Context(), args[0], func(s *tally.Session) (*tally.Move, error) { return s.PlanRewind(cmd.Context(), to, reason) })
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "position to go back to")
	cmd.Flags().StringVar(&reason, "reason", "", "why, kept in the log")
	if err := cmd.MarkFlagRequired("to"); err != nil {
		panic(err) // the flag is two lines above
	}
	m.flags(cmd)
	return cmd
}

func newUndo(a *app.App) *cobra.Command {
	m := &mover{app: a, done: "undone"}
	cmd := &cobra.Command{
		Use: "undo SESSION", Short: "Take back the newest rewind", Args: cobra.ExactArgs(1),
		Example: app.Examples("tally-replay undo last", "tally-replay undo travel --dry-run", "tally-replay undo travel -y"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.run(cmd.Context(), args[0], func(s *tally.Session) (*tally.Move, error) { return s.PlanUndo(cmd.Context()) })
		},
	}
	m.flags(cmd)
	return cmd
}

func newRedo(a *app.App) *cobra.Command {
	m := &mover{app: a, done: "redone"}
	cmd := &cobra.Command{
		Use: "redo SESSION", Short: "Take back the newest undo", Args: cobra.ExactArgs(1),
		Example: app.Examples("tally-replay redo last", "tally-replay redo travel --dry-run", "tally-replay redo travel -y"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.run(cmd.Context(), args[0], func(s *tally.Session) (*tally.Move, error) { return s.PlanRedo(cmd.Context()) })
		},
	}
	m.flags(cmd)
	return cmd
}

// mover shows a planned move, asks, and makes it.
type mover struct {
	app         *app.App
	done        string
	yes, dryRun bool
}

func (m *mover) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&m.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVarP(&m.dryRun, "dry-run", "n", false, "say what would happen, and write nothing")
}

// moved is what a move prints with -o json.
type moved struct {
	Session string             `json:"session"`
	Offset  events.Offset      `json:"offset,omitempty"` // of the rewind; not with --dry-run
	To      events.Offset      `json:"to"`
	Undoes  events.Offset      `json:"undoes,omitempty"`
	Leaves  []projector.TurnAt `json:"leaves"`
	Returns []projector.TurnAt `json:"returns"`
}

func (m *mover) run(ctx context.Context, arg string, plan func(*tally.Session) (*tally.Move, error)) error {
	return m.app.WithStore(ctx, func(st *tally.Store) error {
		s, err := app.Session(ctx, st, arg)
		if err != nil {
			return err
		}
		move, err := plan(s)
		if err != nil {
			return err
		}
		out := moved{Session: cli.ID(s.ID()), To: move.Event.To, Undoes: move.Event.Undoes, Leaves: orEmpty(move.Leaves), Returns: orEmpty(move.Returns)}
		if m.app.Format == cli.Text {
			describe(m.app.Out, s, move)
		}
		if !m.dryRun {
			if err := m.app.Confirm(m.yes, "Go on?"); err != nil {
				return err
			}
			ack, err := s.Move(ctx, move)
			if err != nil {
				return err
			}
			out.Offset = ack.Last
		}
		if m.app.Format != cli.Text {
			return cli.WriteJSON(m.app.Out, m.app.Format, out)
		}
		if m.dryRun {
			_, err = fmt.Fprintln(m.app.Out, "Nothing was written (--dry-run).")
		} else {
			_, err = fmt.Fprintf(m.app.Out, "%s %s at %v.\n", cli.Printable(cli.ID(s.ID())), m.done, out.Offset)
		}
		return err
	})
}

func orEmpty(list []projector.TurnAt) []projector.TurnAt {
	if list == nil {
		return []projector.TurnAt{}
	}
	return list
}

// describe says what leaves and what returns.
func describe(w io.Writer, s *tally.Session, move *tally.Move) {
	fmt.Fprintf(w, "%s goes to %v.\n", cli.Printable(cli.ID(s.ID())), move.Event.To)
	listTurns(w, "leaves", "-", move.Leaves)
	listTurns(w, "returns", "+", move.Returns)
	if n := sharing(move.Leaves); n > 0 {
		fmt.Fprintf(w, "  (%s of one event each; the entries of an event stay together)\n", cli.Count(n, "group"))
	}
}

// sharing counts the events that brought more than one of the turns.
func sharing(turns []projector.TurnAt) int {
	count := make(map[events.Offset]int)
	n := 0
	for _, t := range turns {
		if count[t.Offset]++; count[t.Offset] == 2 {
			n++
		}
	}
	return n
}

func listTurns(w io.Writer, what, sign string, turns []projector.TurnAt) {
	const most = 10
	fmt.Fprintf(w, "%s: %s\n", what, cli.Count(len(turns), "turn"))
	for i, t := range turns {
		if i == most && len(turns) > most+1 {
			fmt.Fprintf(w, "  %s ... and %d more\n", sign, len(turns)-most)
			return
		}
		fmt.Fprintf(w, "  %s %s#%d %v  %s\n", sign, cli.Printable(t.Thread), t.Number, t.Offset, render.Summary(t.Turn, 80))
	}
}
