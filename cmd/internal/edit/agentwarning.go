package edit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/ingest"
	"github.com/tallylog/tally/internal/render/plain"
)

// warnAgent prints that the agent of a session does not see the move: it may continue with its own file, which is also
// the context of its model.
func (m *mover) warnAgent(ctx context.Context, st *tally.Store, s *tally.Session, move *plannedMove) error {
	name, _, _ := strings.Cut(s.ID(), "/")
	agent, ok := cmdutil.AgentNamed(name)
	if !ok {
		return nil
	}
	file, err := m.fileOf(ctx, st, agent, s.ID())
	if file == "" || err != nil {
		return err
	}
	fmt.Fprintf(m.app.Err, "%s does not see this: its next lines in %s follow %v.\n", agent.Name(), plain.Printable(file), move.Event.To)
	if isResumed(agent) {
		fmt.Fprintf(m.app.Err, "To continue from there: %s fork %s --at %v --as %s%s\n",
			cmdutil.Program(), cli.ID(s.ID()), move.Event.To, agent.Format(), m.app.StoreFlags())
	}
	return nil
}

// fileOf returns the file in which the agent has a session, or "".
func (m *mover) fileOf(ctx context.Context, st *tally.Store, agent agents.Agent, id string) (string, error) {
	c, err := m.app.Config()
	if err != nil {
		return "", err
	}
	roots := agent.Roots(os.Getenv)
	for _, w := range c.Watch {
		roots = append(roots, w.Root)
	}
	files, err := ingest.Files(ctx, st.Log, agent, events.Session(st.Namespace(), id))
	if err != nil {
		return "", err
	}
	for i := len(files) - 1; i >= 0; i-- { // the newest file gets the next lines
		for _, root := range roots {
			path := filepath.Join(root, filepath.FromSlash(files[i].Name))
			if _, err := os.Stat(path); err == nil {
				return path, nil
			}
		}
	}
	return "", nil
}
