package edit

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata"
)

func newRewind(a *cmdutil.App) *cobra.Command {
	m := &mover{app: a, done: "rewound"}
	var to, reason string
	var steps int
	cmd := &cobra.Command{
		Use: "rewind SESSION", Short: "Go back to an earlier position; nothing is deleted", Args: cobra.ExactArgs(1),
		Long: `Go back to an earlier position of a session. Later turns are no longer in effect; costs,
runs and the rest of the ledger stay. Nothing is deleted: tally undo takes the rewind back.
The command shows the turns that leave or return and asks for confirmation. If the session
is at that position already, nothing is written.

Without --to the command offers the last ten prompts, to go back to the point before one of
them. If a session has a rewind stack, with an entry for each run that can be reverted, it
offers that; --steps N reverts the N latest runs. The files that the runs wrote are restored
in the folder of --tree.`,
		Example: cmdutil.Examples("tally rewind last --to ~2", "tally rewind travel --to '#5' --dry-run", "tally rewind travel --to @120 -y",
			"tally rewind ses_0198c2", "tally rewind ses_0198c2 --steps 2 --tree ."),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if to != "" && (cmd.Flags().Changed("steps") || m.tree != "") {
				return cli.Usagef("--steps and --tree cannot be used with --to")
			}
			return m.run(ctx, args[0], func(s *errata.Session) (*plannedMove, error) {
				if to != "" {
					return headMove(s.Session)(s.PlanRewind(ctx, to, reason))
				}
				if !cmd.Flags().Changed("steps") {
					n, err := s.RewindStackLen(ctx)
					if err != nil {
						return nil, err
					}
					if n == 0 && m.tree == "" {
						before, err := m.choosePrompt(ctx, s)
						if err != nil {
							return nil, err
						}
						return headMove(s.Session)(s.PlanRewind(ctx, before, reason))
					}
					if steps, err = m.chooseSteps(ctx, s); err != nil {
						return nil, err
					}
				}
				return m.stackMove(s)(s.PlanRewindSteps(ctx, m.workTree(), steps))
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "position to go back to; default: choose from the last prompts, or from the rewind stack")
	cmd.Flags().IntVar(&steps, "steps", 0, "revert this many runs of the rewind stack")
	cmd.Flags().StringVar(&reason, "reason", "", "with --to, a reason to store in the log")
	m.flags(cmd)
	return cmd
}

func newUndo(a *cmdutil.App) *cobra.Command {
	m := &mover{app: a, done: "undone"}
	cmd := &cobra.Command{
		Use: "undo SESSION", Short: "Take back the latest rewind of a session", Args: cobra.ExactArgs(1),
		Long: `Take back the latest rewind of a session: its turns are in effect again. The command shows
the turns that leave or return and asks for confirmation. tally redo takes the undo back.`,
		Example: cmdutil.Examples("tally undo last", "tally undo travel --dry-run", "tally undo travel -y"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.run(cmd.Context(), args[0], func(s *errata.Session) (*plannedMove, error) {
				return m.stackMove(s)(s.PlanUndoRewind(cmd.Context(), m.workTree()))
			})
		},
	}
	m.flags(cmd)
	return cmd
}

func newRedo(a *cmdutil.App) *cobra.Command {
	m := &mover{app: a, done: "redone"}
	cmd := &cobra.Command{
		Use: "redo SESSION", Short: "Take back the latest undo of a session", Args: cobra.ExactArgs(1),
		Long: `Take back the latest undo of a session: the rewind is in effect again. The command shows the
turns that leave or return and asks for confirmation.`,
		Example: cmdutil.Examples("tally redo last", "tally redo travel --dry-run", "tally redo travel -y"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.run(cmd.Context(), args[0], func(s *errata.Session) (*plannedMove, error) {
				return m.stackMove(s)(s.PlanRedoRewind(cmd.Context(), m.workTree()))
			})
		},
	}
	m.flags(cmd)
	return cmd
}

// mover prints a planned move, asks for confirmation, and makes it.
type mover struct {
	app         *cmdutil.App
	done        string
	tree        string
	yes, dryRun bool
}

func (m *mover) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.tree, "tree", "", "folder in which files are restored (default: no files are restored)")
	cmd.Flags().BoolVarP(&m.yes, "yes", "y", false, "do not ask for confirmation")
	cmd.Flags().BoolVarP(&m.dryRun, "dry-run", "n", false, "show the effect, and write nothing")
}

// plannedMove is a move with the function that makes it.
type plannedMove struct {
	*tally.Move
	files []errata.FileChange
	make  func(context.Context) (log.Ack, []errata.FileChange, error)
}

// headMove returns a move of the head without files.
func headMove(s *tally.Session) func(*tally.Move, error) (*plannedMove, error) {
	return func(move *tally.Move, err error) (*plannedMove, error) {
		if err != nil {
			return nil, err
		}
		return &plannedMove{Move: move, make: func(ctx context.Context) (log.Ack, []errata.FileChange, error) {
			ack, err := s.Move(ctx, move)
			return ack, nil, err
		}}, nil
	}
}

func (m *mover) run(ctx context.Context, arg string, plan func(*errata.Session) (*plannedMove, error)) error {
	return m.app.WithExisting(ctx, func(st *tally.Store) error {
		s, err := m.app.Session(ctx, st, arg)
		if err != nil {
			return err
		}
		move, err := plan(errata.Of(st, s.ID()))
		if err != nil {
			return err
		}
		out := reads.Moved{Session: cli.ID(s.ID()), To: move.Event.To, Undoes: move.Event.Undoes, Files: movedFiles(move.files)}
		if m.app.Format != cli.Text {
			err = out.Read(ctx, move.Move)
		} else if !move.There {
			err = describe(ctx, m.app, s, move)
		}
		if err != nil {
			return err
		}
		if move.Leaves.Count > 0 {
			if err := m.warnAgent(ctx, st, s, move); err != nil {
				return err
			}
		}
		if !m.dryRun {
			if err := m.make(ctx, move, &out); err != nil {
				return err
			}
		}
		if m.app.Format != cli.Text {
			err = cli.WriteJSON(m.app.Out, m.app.Format, out)
		} else {
			err = m.conclude(out, move.There)
		}
		return errors.Join(err, m.warnFiles(out))
	})
}

// make asks for confirmation, makes a move and records its result. A move to the present position needs no
// confirmation.
func (m *mover) make(ctx context.Context, move *plannedMove, out *reads.Moved) error {
	if !move.There {
		if err := m.app.Confirm(m.yes, "Go on?"); err != nil {
			return err
		}
	}
	ack, files, err := move.make(ctx)
	if err != nil {
		return err
	}
	out.Written, out.Offset, out.Files = !move.There, ack.Last, movedFiles(files)
	return nil
}

// conclude prints the result of a move.
func (m *mover) conclude(out reads.Moved, there bool) error {
	switch {
	case there:
		return m.app.Say("%s is already there: its turns are those at %v. Nothing was written.", out.Session, out.To)
	case m.dryRun:
		return m.app.Say("Nothing was written (--dry-run).")
	}
	return m.app.Say("%s %s at %v.", out.Session, m.done, out.Offset)
}

// describe prints the turns that leave and return.
func describe(ctx context.Context, a *cmdutil.App, s *tally.Session, move *plannedMove) error {
	_ = a.Say("%s goes to %v.", cli.ID(s.ID()), move.Event.To) // the same error follows below
	if err := a.ListTurns(ctx, "leaves", "-", move.Leaves); err != nil {
		return err
	}
	if err := a.ListTurns(ctx, "returns", "+", move.Returns); err != nil {
		return err
	}
	n, err := sharing(ctx, move.Leaves)
	if n > 0 {
		_ = a.Say("  (%s of one event each; the entries of an event stay together)", plain.Count(n, "group"))
	}
	listFiles(a.Out, move.files)
	return err
}

// sharing counts the events with several of the turns.
func sharing(ctx context.Context, turns projector.Turns) (n int, err error) {
	count := make(map[events.Offset]int)
	for t, err := range turns.All(ctx) {
		if err != nil {
			return 0, err
		}
		if count[t.Offset]++; count[t.Offset] == 2 {
			n++
		}
	}
	return n, nil
}
