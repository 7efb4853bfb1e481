package team

import (
	"bytes"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/stores/tavern"
)

func newAgentSave(a *cmdutil.App) *cobra.Command {
	var base string
	cmd := &cobra.Command{
		Use: "save ID [FILE|-]", Short: "Store an edited file of an agent", Args: cobra.RangeArgs(1, 2),
		Long: `Store an edited file of an agent: the bytes of a file or of standard input. If the file
has another state, that is a change of state, with the rules of tally agent state.

--base is the revision that was edited, as agent show and doc cat --mark print it. If the
stored file is newer than the base, nothing is written and the exit code is 6.

` + agentNames,
		Example: cmdutil.Examples("tally doc cat agent/ID --mark > kettle.md", "tally agent save kettle kettle.md --base @12"),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := cmdutil.Base("base", base)
			if err == nil && at == 0 {
				err = cli.Usagef("--base @N is required: the revision that was edited")
			}
			if err != nil {
				return err
			}
			text, err := a.Content(args[1:])
			if err != nil {
				return err
			}
			return changed(cmd.Context(), a, args[0], func(m *member) error {
				return m.once(cmd.Context(), func(agent *tavern.Agent) error { return agent.Save(cmd.Context(), at, text) }, func(agent *tavern.Agent, err error) bool {
					i, lost := agent.Info(cmd.Context())
					return cli.Is[*tally.DocumentConflictError](err) && lost == nil && bytes.Equal(i.Node, text)
				})
			})
		},
	}
	cmd.Flags().StringVar(&base, "base", "", "offset of the revision that was edited, such as @12")
	return cmd
}
