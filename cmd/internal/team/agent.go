package team

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/stores/tavern"
)

// agentNames explains how agents are named, for help texts.
const agentNames = `An agent is named by its id, a beginning of the id, or its name in upper or lower case.`

func newAgent(a *cmdutil.App) *cobra.Command {
	return cmdutil.Noun(&cobra.Command{
		Use: "agent", Short: "Create agents, change their states, and check their commitments",
		Long: `Create agents, change their states, and check their commitments.

An agent is a session agent/ID, which holds its state, and a document agent/ID, which is
its file: tally doc cat prints it. A change that concerns both is one append. The file is
edited in place, and all its other bytes stay.

` + agentNames,
		Example: cmdutil.Examples("tally agent new Kettle --assignment 'Boil water.'", "tally agent commit kettle 'The tests pass' --assertion 'go test ./...'",
			"tally agent state kettle working", "tally agent verify kettle --run 'The tests pass' -y", "tally agent show kettle"),
	}, append(cmdutil.Paged(newAgentLs(a), newAgentShow(a), newAgentOrphans(a)), newAgentNew(a), newAgentSave(a), newAgentState(a), newAgentCommit(a), newAgentVerify(a),
		newAgentEnd(a, "reap", "Stop an agent that waits for an event that will not come", (*tavern.Agent).Reap),
		newAgentEnd(a, "dismiss", "Stop an agent that is no longer needed", (*tavern.Agent).Dismiss))...)
}

// agentNamed returns the agent that an argument names.
func agentNamed(ctx context.Context, a *cmdutil.App, st *tally.Store, arg string) (*tavern.Agent, error) {
	name := strings.TrimSuffix(strings.TrimPrefix(arg, events.KindAgent+"/"), "…") // a list on a terminal cuts ids so
	if id, err := uuid.Parse(name); err == nil && len(name) == len(id.String()) {
		return tavern.AgentOf(st, name), nil
	}
	listed, err := agentsOf(ctx, a, st)
	if err != nil {
		return nil, err
	}
	var called, begin []catalog.Agent
	for _, i := range listed {
		switch {
		case strings.EqualFold(i.Name, name):
			called = append(called, i)
		case name != "" && strings.HasPrefix(i.ID, strings.ToLower(name)):
			begin = append(begin, i)
		}
	}
	if len(called) == 0 {
		called = begin
	}
	switch len(called) {
	case 0:
		return nil, noAgent(arg, st.Namespace())
	case 1:
		return tavern.AgentOf(st, called[0].ID), nil
	}
	var ids []string
	for _, i := range called {
		ids = append(ids, i.ID+"  "+cmp.Or(i.Status, tavern.AgentIdle))
	}
	return nil, &cli.CodeError{Code: cli.BadUsage, Err: fmt.Errorf("%q names %d agents", arg, len(called)), Hint: strings.Join(ids, "\n  ")}
}

func noAgent(name, namespace string) error {
	return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no agent %q in namespace %s", name, namespace), Hint: cmdutil.Program() + " agent ls lists the agents."}
}

// member is an agent of a store that may be reopened.
type member struct {
	store *store
	id    string
}

// do calls f with the agent. The call must be idempotent: it is repeated after an unknown outcome.
func (m *member) do(ctx context.Context, f func(*tavern.Agent) error) error {
	return m.once(ctx, f, nil)
}

// once calls f with the agent: see store.once.
func (m *member) once(ctx context.Context, f func(*tavern.Agent) error, own func(*tavern.Agent, error) bool) error {
	of := func(st *tally.Store) *tavern.Agent { return tavern.AgentOf(st, m.id) }
	return m.store.once(ctx, func(st *tally.Store) error { return f(of(st)) }, func(st *tally.Store, err error) bool { return own != nil && own(of(st), err) })
}

// info reads the agent.
func (m *member) info(ctx context.Context) (i *tavern.AgentInfo, err error) {
	err = m.do(ctx, func(agent *tavern.Agent) error {
		i, err = agent.Info(ctx)
		return err
	})
	return i, err
}

// changed changes an agent with do, and prints its new state.
func changed(ctx context.Context, a *cmdutil.App, name string, do func(*member) error) error {
	return riding(ctx, a, a.OpenExisting, func(s *store) error {
		m := &member{store: s}
		err := s.do(ctx, func(st *tally.Store) error {
			agent, err := agentNamed(ctx, a, st, name)
			if err == nil {
				m.id = agent.ID()
			}
			return err
		})
		if err == nil {
			err = refused(do(m))
		}
		st := s.Store()
		if cli.Is[*tally.DocumentConflictError](err) {
			return a.DocumentError(ctx, st, events.Document(st.Namespace(), events.KindAgent, m.id), err)
		}
		if err != nil {
			return agentError(err, name, st.Namespace())
		}
		return m.say(ctx, a)
	})
}

// agentError replaces a not-found error with one that names the agent. The error for a missing commitment names it
// already.
func agentError(err error, name, namespace string) error {
	if errors.Is(err, events.ErrNotFound) && !cli.Is[*cli.CodeError](err) && !strings.Contains(err.Error(), "commitment") {
		return noAgent(name, namespace)
	}
	return err
}

// say prints the agent after a change.
func (m *member) say(ctx context.Context, a *cmdutil.App) error {
	i, err := m.info(ctx)
	if err != nil {
		return err
	}
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, a.Format, agentRowOf(i))
	}
	return a.Say("%s %s is %s%s.", i.ID, plain.Printable(i.Name), i.State, promises(i))
}

// promises returns how many commitments the agent has kept, as the end of a sentence.
func promises(i *tavern.AgentInfo) string {
	if len(i.Commitments) == 0 {
		return ""
	}
	return fmt.Sprintf(", %s of %s kept", kept(i), plain.Count(len(i.Commitments), "commitment"))
}
