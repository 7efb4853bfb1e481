package edit

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render/plain"
)

// forked is what fork prints with -o json.
type forked struct {
	Session string        `json:"session"`
	Fork    events.Fork   `json:"fork"`
	Offset  events.Offset `json:"offset"`
}

func newFork(a *cmdutil.App) *cobra.Command {
	var at, as, into string
	cmd := &cobra.Command{
		Use: "fork SESSION", Short: "Begin a new session with the threads of this one at a position", Args: cobra.ExactArgs(1),
		Long: `Begin a new session with the threads that this one has at a position. Nothing is
copied, and what either does later does not matter to the other. Runs, costs and
the rewind stack do not come along.

--as codex, and --as claude-code, of a session that came from there, write the file
with which the agent itself goes on from that position, into the folder of its
sessions or --into DIR, and say how. No file is ever replaced. For Codex it is a
reference to the file that it has, as Codex forks, or a copy of the lines in
effect, if the file is gone or what is in effect there is not what it begins with,
as after a rewind. What is copied costs nothing once more. That Claude Code goes on
with what is written was not tried.`,
		Example: cmdutil.Examples("tally fork last --at ~1", "tally fork travel --at '#5' --as by-train", "tally fork travel --at @120 -o json", "tally fork codex/01a2 --at '#5' --as codex"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if into != "" && !isAgent(as) {
				return cli.Usagef("--into is the folder of an agent's sessions: it goes with --as codex and --as claude-code")
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error {
				s, err := a.Session(cmd.Context(), st, args[0])
				if err != nil {
					return err
				}
				if isAgent(as) {
					return forkAs(cmd.Context(), a, st, s, at, as, into)
				}
				fork, ack, err := s.Fork(cmd.Context(), at, as)
				if err != nil {
					return err
				}
				begun, err := fork.Load(cmd.Context(), "")
				if err != nil {
					return err
				}
				if a.Format != cli.Text {
					return cli.WriteJSON(a.Out, a.Format, forked{cli.ID(fork.ID()), *begun.Ledger.Fork, ack.Last})
				}
				return a.Say("%s begins as %s was at %v, with %s.", cli.ID(fork.ID()), cli.ID(s.ID()), begun.Ledger.Fork.Offset, plain.Count(begun.History.Turns(), "turn"))
			})
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "position; default head")
	cmd.Flags().StringVar(&as, "as", "", "id of the new session (default fork-<offset>-of-<id>), or codex or claude-code")
	cmd.Flags().StringVar(&into, "into", "", "with --as of an agent, the folder of its sessions: CODEX_HOME, or Claude Code's projects (default its own)")
	return cmd
}
