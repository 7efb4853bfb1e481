package edit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// writeAgent writes the file of an agent. The session of the agent gets the same state in the same append, so that the
// two agree. Other metadata of the document becomes a revision of its own.
func (p *putter) writeAgent(ctx context.Context, st *tally.Store, doc events.Subject) (rev projector.Revision, err error) {
	agent := tavern.AgentOf(st, doc.ID)
	if agent.ID() != doc.ID {
		return rev, cli.Usagef("%s: the id of an agent is a UUID in small letters", cmdutil.NameOf(doc))
	}
	i, err := agent.Info(ctx)
	switch {
	case errors.Is(err, tally.ErrNotFound) && p.base == "":
		_, err = tavern.NewAgent(ctx, st, tavern.NewAgentOptions{ID: doc.ID, Owner: p.Owner, Layer: p.Layer, File: p.Data})
	case err == nil && p.create:
		err = fmt.Errorf("%s: %w", cmdutil.NameOf(doc), tally.ErrExists)
	case err == nil && p.base == "":
		err = agent.Save(ctx, i.Revision, p.Data)
	case err == nil:
		err = agent.Save(ctx, p.Base, p.Data)
	}
	if err != nil {
		return rev, agentRefusal(err, doc)
	}
	now, err := st.Documents().Read(ctx, doc.Kind, doc.ID)
	if err != nil {
		return rev, err
	}
	if !slices.ContainsFunc([]string{"type", "title", "owner", "layer", "link", "attr", "expires"}, p.says) {
		return now.Revision, nil
	}
	p.keepOf(now.Revision)
	p.Base = now.Offset
	return st.Documents().Save(ctx, doc.Kind, doc.ID, p.Write)
}

// agentRefusal adds the exit code and a hint to an error about an agent.
func agentRefusal(err error, doc events.Subject) error {
	switch {
	case errors.Is(err, tally.ErrNotFound):
		return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no agent %q in namespace %s", doc.ID, doc.Namespace), Hint: cmdutil.Program() + " agent ls lists the agents."}
	case cli.Is[*tavern.TransitionError](err):
		return &cli.CodeError{Code: cli.Conflict, Err: err, Hint: "Nothing was written."}
	case cli.Is[*tavern.NodeError](err):
		return &cli.CodeError{Code: cli.BadUsage, Err: err, Hint: cmdutil.Program() + " agent new NAME makes an agent with a file."}
	}
	return err
}
