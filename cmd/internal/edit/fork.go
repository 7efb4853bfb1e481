package edit

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render/plain"
)

// forked is the output of fork, with -o json.
type forked struct {
	Session string        `json:"session"`
	Fork    events.Fork   `json:"fork"`
	Offset  events.Offset `json:"offset"`
}

func newFork(a *cmdutil.App) *cobra.Command {
	var at, as, into string
	cmd := &cobra.Command{
		Use: "fork SESSION", Short: "Begin a new session from a position of another one", Args: cobra.ExactArgs(1),
		Long: `Begin a new session from a position of another one. The new session has the threads of that
position without copying them. Later changes of one session do not affect the other. Runs,
costs and the rewind stack are not inherited.

--as codex or --as claude-code writes a file with which the agent continues from that
position, if the session came from that agent. The file goes into the folder of the agent's
sessions or into --into DIR, and the command prints how to continue. No file is replaced. For
Codex the file refers to the file that Codex has, as Codex' own forks do. If that file is gone
or differs from the turns in effect, as after a rewind, the new file has copies of the lines,
whose costs are not counted again. Whether Claude Code accepts the file was not tried.`,
		Example: cmdutil.Examples("tally fork last --at ~1", "tally fork travel --at '#5' --as by-train", "tally fork travel --at @120 -o json", "tally fork codex/01a2 --at '#5' --as codex"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if into != "" && !isAgent(as) {
				return cli.Usagef("--into can only be used with --as codex and --as claude-code")
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
