package edit

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
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
		Use: "rewind SESSION", Short: "Move the head back; nothing is deleted", Args: cobra.ExactArgs(1),
		Long: `Move the head of a session back to a position. The turns after it go out of
effect; cost, runs and everything else in the ledger stay. Nothing is deleted:
undo takes the rewind back. It says what leaves and what returns, and asks. Where
nothing would leave or return, the head is there already, and nothing is written.

Without --to it offers the last ten prompts, to go back to right before one of
them; or the rewind stack of a session that has one, on which programs put a point
for each run that can be taken back; --steps N takes back the N newest.
The files that the runs wrote are restored in the folder that --tree names.`,
		Example: cmdutil.Examples("tally rewind last --to ~2", "tally rewind travel --to '#5' --dry-run", "tally rewind travel --to @120 -y",
			"tally rewind ses_0198c2", "tally rewind ses_0198c2 --steps 2 --tree ."),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if to != "" && (cmd.Flags().Changed("steps") || m.tree != "") {
				return cli.Usagef("--to moves the head alone: --steps and --tree go without it")
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
	cmd.Flags().IntVar(&steps, "steps", 0, "take back this many runs of the rewind stack")
	cmd.Flags().StringVar(&reason, "reason", "", "why, kept in the log; goes with --to")
	m.flags(cmd)
	return cmd
}

func newUndo(a *cmdutil.App) *cobra.Command {
	m := &mover{app: a, done: "undone"}
	cmd := &cobra.Command{
		Use: "undo SESSION", Short: "Take back the newest rewind", Args: cobra.ExactArgs(1),
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
		Use: "redo SESSION", Short: "Take back the newest undo", Args: cobra.ExactArgs(1),
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

// mover shows a planned move, asks, and makes it.
type mover struct {
	app         *cmdutil.App
	done        string
	tree        string
	yes, dryRun bool
}

func (m *mover) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.tree, "tree", "", "folder in which files are restored; default: none are")
	cmd.Flags().BoolVarP(&m.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVarP(&m.dryRun, "dry-run", "n", false, "say what would happen, and write nothing")
}

// plannedMove is a move that was looked at, and how it is made.
type plannedMove struct {
	*tally.Move
	files []errata.FileChange
	make  func(context.Context) (log.Ack, []errata.FileChange, error)
}

// headMove is a move of the head alone.
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

// moved is what a move prints with -o json.
type moved struct {
	Session string             `json:"session"`
	Written bool               `json:"written"`          // not with --dry-run, nor if the head is there already
	Offset  events.Offset      `json:"offset,omitempty"` // of the rewind, if it was written
	To      events.Offset      `json:"to"`
	Undoes  events.Offset      `json:"undoes,omitempty"`
	Leaves  []projector.TurnAt `json:"leaves"`
	Returns []projector.TurnAt `json:"returns"`
	Files   []movedFile        `json:"files,omitempty"`
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
		out := moved{Session: cli.ID(s.ID()), To: move.Event.To, Undoes: move.Event.Undoes, Leaves: cli.NonNil(move.Leaves), Returns: cli.NonNil(move.Returns), Files: movedFiles(move.files)}
		if m.app.Format == cli.Text && !move.There {
			describe(m.app, s, move)
		}
		if len(move.Leaves) > 0 {
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

// make asks, makes a move, and notes what it did. To stay where one is nobody is asked.
func (m *mover) make(ctx context.Context, move *plannedMove, out *moved) error {
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

// conclude says what became of a move.
func (m *mover) conclude(out moved, there bool) error {
	switch {
	case there:
		return m.app.Say("%s is there already: its turns are what they were at %v. Nothing was written.", out.Session, out.To)
	case m.dryRun:
		return m.app.Say("Nothing was written (--dry-run).")
	}
	return m.app.Say("%s %s at %v.", out.Session, m.done, out.Offset)
}

// describe says what leaves and what returns.
func describe(a *cmdutil.App, s *tally.Session, move *plannedMove) {
	_ = a.Say("%s goes to %v.", cli.ID(s.ID()), move.Event.To) // the same happens to what follows
	a.ListTurns("leaves", "-", move.Leaves)
	a.ListTurns("returns", "+", move.Returns)
	if n := sharing(move.Leaves); n > 0 {
		_ = a.Say("  (%s of one event each; the entries of an event stay together)", plain.Count(n, "group"))
	}
	listFiles(a.Out, move.files)
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
