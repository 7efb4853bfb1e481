package team

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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

// agentNames says how agents are named, for help texts.
const agentNames = `An agent is named by its id, by a beginning of that, or by its name, in whichever case.`

func newAgent(a *cmdutil.App) *cobra.Command {
	return family(&cobra.Command{
		Use: "agent", Short: "Make agents, change their states, and keep what they promise",
		Long: `Make agents, change their states, and keep what they promise. agents lists them.

An agent is a session agent/ID, which has its state, and a document agent/ID, its file as
somebody typed it: cat prints that. What concerns both is changed at once. The file is
edited in place, and keeps every byte that says something else.

` + agentNames,
		Example: cmdutil.Examples("tally agent new Kettle --assignment 'Boil water.'", "tally agent commit kettle 'The tests pass' --assertion 'go test ./...'",
			"tally agent state kettle working", "tally agent verify kettle --run 'The tests pass' -y", "tally agent dismiss kettle --reason 'not needed'"),
	}, newAgentNew(a), newAgentSave(a), newAgentState(a), newAgentCommit(a), newAgentVerify(a), newAgentEnd(a, "reap", "Stop an agent that waits for what will not come", (*tavern.Agent).Reap),
		newAgentEnd(a, "dismiss", "Stop an agent that is not needed any more", (*tavern.Agent).Dismiss))
}

// agentNamed finds the agent that an argument names.
func agentNamed(ctx context.Context, a *cmdutil.App, st *tally.Store, arg string) (*tavern.Agent, error) {
	name := strings.TrimSuffix(strings.TrimPrefix(arg, events.KindAgent+"/"), "…") // as a list on a terminal has cut it
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
	return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no agent %q in namespace %s", name, namespace), Hint: cmdutil.Program() + " agents lists the agents."}
}

// member is an agent, also when the store is opened anew.
type member struct {
	store *store
	id    string
}

// do does something with the agent that is one if it is done again.
func (m *member) do(ctx context.Context, f func(*tavern.Agent) error) error {
	return m.once(ctx, f, nil)
}

// once does something with the agent: see store.once.
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

// changed does something with an agent and says what the agent is then.
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
		st := s.now()
		if cli.Is[*tally.DocumentConflictError](err) {
			return a.DocumentError(ctx, st, events.Document(st.Namespace(), events.KindAgent, m.id), err)
		}
		if err != nil {
			return agentError(err, name, st.Namespace())
		}
		return m.say(ctx, a)
	})
}

// agentError names the agent that is not there. A commitment that is not there is named by
// the error already.
func agentError(err error, name, namespace string) error {
	if errors.Is(err, events.ErrNotFound) && !cli.Is[*cli.CodeError](err) && !strings.Contains(err.Error(), "commitment") {
		return noAgent(name, namespace)
	}
	return err
}

// say prints the agent as it is now, after a change.
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

// promises says how many commitments an agent has kept.
func promises(i *tavern.AgentInfo) string {
	if len(i.Commitments) == 0 {
		return ""
	}
	return fmt.Sprintf(", %s of %s kept", kept(i), plain.Count(len(i.Commitments), "commitment"))
}

func newAgentNew(a *cmdutil.App) *cobra.Command {
	var o tavern.NewAgentOptions
	var parent, file string
	cmd := &cobra.Command{
		Use: "new [NAME]", Short: "Make an agent", Args: cobra.MaximumNArgs(1),
		Long: `Make an agent, idle, with an id of its own. With --file it is what its file says,
state and commitments included, and nothing else need be said. An agent that is there
already is code 6.`,
		Example: cmdutil.Examples("tally agent new Kettle --assignment 'Boil water.' --owner ann", "tally agent new Spout --parent agent/8f14e45f-ceea-467f-a0e6-6c1b1b1f1b1f", "tally agent new --file kettle.md -o json"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			switch {
			case (len(args) == 1) == (file != ""):
				return cli.Usagef("give a NAME, or a --file that has one")
			case file != "" && (o.ID != "" || o.Assignment != ""):
				return cli.Usagef("--id and --assignment go with a NAME: a file says them itself")
			case file != "":
				o.File, err = a.Content([]string{file})
			default:
				o.Name = args[0]
			}
			o.Parent = startedIn(parent)
			if err != nil {
				return err
			}
			return riding(cmd.Context(), a, a.Open, func(s *store) error { return born(cmd.Context(), a, s, o) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Assignment, "assignment", "", "what it is to do")
	f.StringVar(&o.ID, "id", "", "its id, a UUID; default: a new one")
	f.StringVar(&parent, "parent", "", "session that started it, such as agent/ID")
	f.StringVar(&o.Owner, "owner", "", "who it belongs to")
	f.StringVar(&o.Layer, "layer", "", "layer that it is of, project or personal")
	f.StringVar(&file, "file", "", "its file, - for standard input")
	return cmd
}

// born makes an agent, and says what it is. Made again after an outcome that nobody knows, it
// is the one that is there, if that has the file that this one was to have.
func born(ctx context.Context, a *cmdutil.App, s *store, o tavern.NewAgentOptions) error {
	if o.ID == "" && o.File == nil {
		o.ID = uuid.NewString()
	}
	m := &member{store: s}
	err := s.once(ctx, func(st *tally.Store) error {
		agent, err := tavern.NewAgent(ctx, st, o)
		if agent != nil {
			m.id = agent.ID()
		}
		return err
	}, func(st *tally.Store, err error) bool {
		if !errors.Is(err, tally.ErrExists) {
			return false
		}
		i, err := tavern.AgentOf(st, m.id).Info(ctx)
		return err == nil && (o.File == nil || bytes.Equal(i.Node, o.File))
	})
	if err != nil {
		return refused(err)
	}
	return m.say(ctx, a)
}

func newAgentSave(a *cmdutil.App) *cobra.Command {
	var base string
	cmd := &cobra.Command{
		Use: "save ID [FILE|-]", Short: "Have an agent's file be what somebody typed", Args: cobra.RangeArgs(1, 2),
		Long: `Have an agent's file be what somebody typed: the bytes of a file, or of standard input.
A state that is another one there is a change of state, and refused like any other.

--base is the revision that was edited, as agents and cat --mark give it: a file that has
moved on is code 6, and nothing is lost.

` + agentNames,
		Example: cmdutil.Examples("tally cat agent/ID --mark > kettle.md", "tally agent save kettle kettle.md --base @12"),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := cmdutil.Base("base", base)
			if err == nil && at == 0 {
				err = cli.Usagef("--base @N is missing: the revision that was edited")
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

// agentStates are those that an agent can be told to be in.
var agentStates = []string{tavern.AgentIdle, tavern.AgentWorking, tavern.AgentWaiting, tavern.AgentVerifying, tavern.AgentDone, tavern.AgentError, tavern.AgentArchived}

func newAgentState(a *cmdutil.App) *cobra.Command {
	var reason string
	force := false
	cmd := &cobra.Command{
		Use: "state ID " + strings.Join(agentStates, "|"), Short: "Have an agent be in another state", Args: cobra.ExactArgs(2),
		Long: `Have an agent be in another state. What may not follow the state that it is in is
refused with what may, and code 6. An agent is done when each of its commitments has
passed, or with --force, for a --reason; to open it again takes a --reason too. In
the state that it is in already, nothing is written.

` + agentNames,
		Example: cmdutil.Examples("tally agent state kettle working", "tally agent state kettle done --force --reason 'good enough'", "tally agent state kettle archived"),
		RunE: func(cmd *cobra.Command, args []string) error {
			to := strings.ToLower(args[1])
			if !slices.Contains(agentStates, to) {
				return cli.Usagef("state %q: want %s; reap and dismiss stop an agent", args[1], cmdutil.Or(agentStates))
			}
			if force && (to != tavern.AgentDone || reason == "") {
				return cli.Usagef("--force goes with done and a --reason")
			}
			return changed(cmd.Context(), a, args[0], func(m *member) error {
				return m.do(cmd.Context(), func(agent *tavern.Agent) error {
					if force {
						return agent.ForceDone(cmd.Context(), reason)
					}
					return agent.SetState(cmd.Context(), to, reason)
				})
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	cmd.Flags().BoolVar(&force, "force", false, "with done, whatever its commitments are")
	return cmd
}

// newAgentEnd is a verb that stops an agent.
func newAgentEnd(a *cmdutil.App, verb, short string, end func(*tavern.Agent, context.Context, string) error) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: verb + " ID", Short: short, Args: cobra.ExactArgs(1),
		Long: short + `. It can be looked at until it is purged; the state of an
agent from which it cannot be stopped so is code 6.

` + agentNames,
		Example: cmdutil.Examples("tally agent "+verb+" kettle", "tally agent "+verb+" kettle --reason 'nobody answers'", "tally agent "+verb+" 8f14e45f -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changed(cmd.Context(), a, args[0], func(m *member) error {
				return m.do(cmd.Context(), func(agent *tavern.Agent) error { return end(agent, cmd.Context(), reason) })
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why")
	return cmd
}
