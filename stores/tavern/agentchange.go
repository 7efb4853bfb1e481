package tavern

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern/internal/nodefile"
)

// agentChange is a change of an agent.
type agentChange struct {
	set    events.Fields
	reason string
	file   []byte // the new node file; nil: unchanged
}

// SetState sets the agent's state. The error is *TransitionError if the table does not allow the transition, if the new
// state is AgentDone and commitments have not passed, or if the agent goes back to work from done or error without a
// reason. If the agent is in the state already, nothing is written.
func (a *Agent) SetState(ctx context.Context, to, reason string) error {
	return a.move(ctx, to, reason, false)
}

// ForceDone sets the state AgentDone whatever the commitments are. It requires a reason.
func (a *Agent) ForceDone(ctx context.Context, reason string) error {
	return a.move(ctx, AgentDone, reason, true)
}

// Dismiss stops an agent that is no longer needed.
func (a *Agent) Dismiss(ctx context.Context, reason string) error {
	return a.move(ctx, AgentDismissed, reason, false)
}

// Reap stops an agent that waits in vain.
func (a *Agent) Reap(ctx context.Context, reason string) error {
	return a.move(ctx, AgentReaped, reason, false)
}

// Archive hides an agent that has ended. Info returns it until it is purged.
func (a *Agent) Archive(ctx context.Context, reason string) error {
	return a.move(ctx, AgentArchived, reason, false)
}

func (a *Agent) move(ctx context.Context, to, reason string, force bool) error {
	now, err := a.times(ctx)
	if err != nil {
		return err
	}
	return a.change(ctx, func(i *AgentInfo) (agentChange, error) {
		if i.State == to {
			return agentChange{}, nil
		}
		if err := i.checkTransition(to, reason, force); err != nil {
			return agentChange{}, err
		}
		return i.moved(to, reason, now)
	})
}

// agentTimes are the times of a change.
type agentTimes struct {
	logTime    time.Time // the log's time, which decides whether a lease has ended
	leaseStart time.Time // start of periods that begin with the change: see tally.Store.LeaseTime
	fileTime   time.Time // the time to write into the node file
}

func (a *Agent) times(ctx context.Context) (now agentTimes, err error) {
	var err1, err2 error
	now.logTime, err1 = a.st.LogTime(ctx)
	now.leaseStart, err2 = a.st.LeaseTime(ctx)
	now.fileTime = a.st.Now()
	return now, errors.Join(err1, err2)
}

// moved returns the change to another state. It removes a lease that has ended, which says nothing about the new state.
func (i *AgentInfo) moved(to, reason string, now agentTimes) (c agentChange, err error) {
	c.set, c.reason = events.Fields{textField("status", to), textField("statusReason", reason)}, reason
	stamp := string(events.TimestampOf(now.leaseStart))
	switch {
	case to == AgentArchived:
		c.set = append(c.set, textField("archivedAt", stamp))
	case i.FinishedAt.IsZero() && strings.HasPrefix(to, stopped):
		c.set = append(c.set, textField("finishedAt", stamp))
	}
	if i.Lease.Holder != "" && !i.Lease.Until.After(now.logTime) {
		c.set = append(c.set, events.Field{Name: "lease", Value: events.Raw("null")})
	}
	if i.Node != nil && i.NodeErr == nil {
		n := i.node
		n.State = to
		c.file, err = i.edited(n, now.fileTime)
	}
	return c, err
}

// edited returns the file for a changed node, with the time of the change.
func (i *AgentInfo) edited(n nodefile.Node, now time.Time) ([]byte, error) {
	if n.UpdatedAt != "" {
		n.UpdatedAt = nodeTime(now)
	}
	return nodefile.Edit(i.Node, n)
}

// Save replaces the agent's file. base is the revision that the author edited, AgentInfo.Revision. If the file has
// changed since, the error is *tally.DocumentConflictError; if it is not this agent's file, *NodeError. Another state
// in the file is a change of state, with the same rules. The commitments of an agent that has ended cannot change.
func (a *Agent) Save(ctx context.Context, base events.Offset, text []byte) error {
	n, err := checkNode(text, a.id)
	if err != nil {
		return err
	}
	now, err := a.times(ctx)
	if err != nil {
		return err
	}
	return a.change(ctx, func(i *AgentInfo) (agentChange, error) {
		if i.Revision != base {
			return agentChange{}, i.conflict(base)
		}
		return i.saved(n, text, now)
	})
}

// saved returns the change that a new file makes.
func (i *AgentInfo) saved(n nodefile.Node, text []byte, now agentTimes) (c agentChange, err error) {
	if i.NodeErr == nil && n.State != AgentWorking && !slices.Equal(n.Commitments, i.node.Commitments) {
		if err := i.checkOpen(); err != nil {
			return c, err
		}
	}
	if n.State != i.State {
		edited := *i
		edited.Node, edited.NodeErr, edited.Commitments = nil, nil, commitmentsOf(n)
		if err := edited.checkTransition(n.State, "edited", false); err != nil {
			return c, err
		}
		if c, err = edited.moved(n.State, "edited", now); err != nil {
			return c, err
		}
	}
	if bytes.Equal(i.Node, text) {
		return c, nil
	}
	c.file = text
	c.set = append(c.set, countsField(n.Commitments))
	if n.Name != i.Name {
		c.set = append(c.set, textField("title", n.Name))
	}
	return c, nil
}

// conflict returns the error for a change that is not based on the present file.
func (i *AgentInfo) conflict(base events.Offset) error {
	e := &tally.DocumentConflictError{Subject: i.document, Base: base, Have: i.Revision}
	if i.Node != nil {
		sum := sha256.Sum256(i.Node)
		e.SHA256 = hex.EncodeToString(sum[:])
	}
	return e
}

// change calls decide with the present agent, and appends the change to both subjects. If another writer was faster, it
// decides again, at most maxDecisions times. Then the error matches log.ErrConflict.
func (a *Agent) change(ctx context.Context, decide func(*AgentInfo) (agentChange, error)) error {
	for try := 1; ; try++ {
		i, err := a.load(ctx)
		if err == nil {
			err = i.there()
		}
		var c agentChange
		if err == nil {
			c, err = decide(i)
		}
		var parts []log.Part
		if err == nil {
			parts, err = i.parts(a.st.Source(), "", c)
		}
		if err != nil || len(parts) == 0 {
			return err
		}
		if err = appendAgent(ctx, a.st, parts); !errors.Is(err, log.ErrConflict) {
			return err
		}
		if try == maxDecisions || pause(ctx, try) != nil {
			return a.lost(ctx, i, err)
		}
	}
}

// appendAgent appends a change of an agent. This is the commit point: before it neither subject has the change, and
// after it both have.
func appendAgent(ctx context.Context, st *tally.Store, parts []log.Part) error {
	_, err := st.AppendAll(ctx, parts...)
	return err
}

// lost returns a *tally.DocumentConflictError if a change failed because the document has changed.
func (a *Agent) lost(ctx context.Context, i *AgentInfo, err error) error {
	c, ok := errors.AsType[*log.ConflictError](err)
	if !ok || c.Subject != i.document {
		return err
	}
	now, other := a.load(ctx)
	if other != nil {
		return err
	}
	return now.conflict(i.Revision)
}

// parts makes the append of a change, on the condition that state and file have not changed. If name is set, the
// events' ids follow from it and from the agent's last record, so that equal decisions write one event.
func (i *AgentInfo) parts(source, name string, c agentChange) ([]log.Part, error) {
	if len(c.set) == 0 && c.file == nil {
		return nil, nil
	}
	updated, err := events.New(source, i.subject, &events.SessionUpdated{Set: c.set, Reason: c.reason})
	if err != nil {
		return nil, err
	}
	if name != "" {
		updated.ID = events.DerivedID("tavern/agent", i.ID, name, i.session.String(), "session")
	}
	parts := []log.Part{{Subject: i.subject, Expect: log.Since(i.session, events.TypeSessionUpdated), Events: []events.Event{updated}}}
	if c.file == nil || bytes.Equal(c.file, i.Node) {
		return parts, nil
	}
	e := i.revision(source, c.file)
	if name != "" {
		e.ID = events.DerivedID("tavern/agent", i.ID, name, i.session.String(), "document")
	}
	return append(parts, log.Part{Subject: i.document, Expect: log.At(i.head), Events: []events.Event{e}}), nil
}

// importedAs are the attributes by which an import recognizes a file. A file that changed here loses them.
var importedAs = []string{"sha256", "marker"}

// revision returns the event of a new file. It keeps the document's other attributes.
func (i *AgentInfo) revision(source string, text []byte) events.Event {
	meta := i.meta
	meta.Base, meta.Attributes = i.Revision, maps.Clone(meta.Attributes)
	for _, name := range importedAs {
		delete(meta.Attributes, name)
	}
	e := events.Event{Source: source, Type: events.TypeDocumentWritten, Subject: i.document, ContentType: i.contentType, Data: text}
	return e.WithExtension(events.ExtDoc, meta.String())
}

// countsField returns the number of commitments of each status, for lists of agents that do not read their files.
func countsField(list []nodefile.Commitment) events.Field {
	counts := map[string]int{}
	for _, c := range list {
		counts[c.Status]++
	}
	value := fmt.Appendf(nil, `{"pending":%d,"verifying":%d,"passed":%d,"failed":%d}`,
		counts[nodefile.Pending], counts[nodefile.Verifying], counts[nodefile.Passed], counts[nodefile.Failed])
	return events.Field{Name: "commitments", Value: value}
}

// Lease takes the lease on the agent for a while, or extends it for its holder. If another holder has it, the error is
// *tally.LeaseError. If the lease of a working agent ends, the agent is lost: see DecideAgent. Time is the log's.
func (a *Agent) Lease(ctx context.Context, holder string, while time.Duration) (*tally.Claim, error) {
	if err := a.session.Subject().Validate(); err != nil {
		return nil, err
	}
	return a.session.Lease(ctx, holder, while, a.isThere)
}

// Release ends the lease on the agent. If another holder has it, the error is *tally.LeaseError. If the agent has no
// lease, nothing is written.
func (a *Agent) Release(ctx context.Context, holder string) error {
	if err := a.session.Subject().Validate(); err != nil {
		return err
	}
	return a.session.Release(ctx, holder, a.isThere)
}

// isThere refuses sessions of other kinds and purged agents.
func (a *Agent) isThere(o *projector.Outline) error {
	if err := tally.CheckKind(o.Subject(), o.Ledger(), events.KindAgent); err != nil {
		return err
	}
	return infoOf(a.id, o, &projector.Document{}).there()
}
