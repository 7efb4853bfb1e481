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

// agentChange is what shall become of an agent.
type agentChange struct {
	set    events.Fields
	reason string
	file   []byte // the node file; nil: as it is
}

// SetState has the agent be in another state. What may not follow the one it is in is a
// *TransitionError, and so is an end, AgentDone, as long as commitments have not passed, and
// a way back to work from done or error without a reason. In the state that it is in
// already, nothing is written.
func (a *Agent) SetState(ctx context.Context, to, reason string) error {
	return a.move(ctx, to, reason, false)
}

// ForceDone is SetState to AgentDone whatever its commitments are, for a reason that is
// said.
func (a *Agent) ForceDone(ctx context.Context, reason string) error {
	return a.move(ctx, AgentDone, reason, true)
}

// Dismiss stops an agent that is not needed any more.
func (a *Agent) Dismiss(ctx context.Context, reason string) error {
	return a.move(ctx, AgentDismissed, reason, false)
}

// Reap stops an agent that waits for what will not come.
func (a *Agent) Reap(ctx context.Context, reason string) error {
	return a.move(ctx, AgentReaped, reason, false)
}

// Archive hides an agent that has come to an end. It can be looked at until it is purged.
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
	logTime    time.Time // the log's, by which a lease is over
	leaseStart time.Time // from which on anything lasts that begins with it: see tally.Store.LeaseTime
	fileTime   time.Time // that the node file shows
}

func (a *Agent) times(ctx context.Context) (now agentTimes, err error) {
	var err1, err2 error
	now.logTime, err1 = a.st.LogTime(ctx)
	now.leaseStart, err2 = a.st.LeaseTime(ctx)
	now.fileTime = a.st.Now()
	return now, errors.Join(err1, err2)
}

// moved is the change to another state. A lease that is over goes: it says nothing of who does
// what comes now.
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

// edited is the file with what a node says now, and when.
func (i *AgentInfo) edited(n nodefile.Node, now time.Time) ([]byte, error) {
	if n.UpdatedAt != "" {
		n.UpdatedAt = nodeTime(now)
	}
	return nodefile.Edit(i.Node, n)
}

// Save has the agent's file be what somebody typed: base is the revision that they had
// before them, AgentInfo.Revision. A file that has moved on is a
// *tally.DocumentConflictError, one that is not the agent's a *NodeError. A state that is
// another one there is a change of state, and refused like any other, and so are other
// commitments of an agent that has come to an end.
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

// saved is the change that a file makes which somebody typed.
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

// conflict says what the file is in place of what a change was based on.
func (i *AgentInfo) conflict(base events.Offset) error {
	e := &tally.DocumentConflictError{Subject: i.document, Base: base, Have: i.Revision}
	if i.Node != nil {
		sum := sha256.Sum256(i.Node)
		e.SHA256 = hex.EncodeToString(sum[:])
	}
	return e
}

// change lets a function say what becomes of the agent as it is now, and appends that to
// both subjects. If somebody else wrote to one of them meanwhile, it decides anew, a number
// of times; then the error matches log.ErrConflict.
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

// appendAgent appends what becomes of an agent. The commit point: before it neither subject
// says so, and behind it both do.
func appendAgent(ctx context.Context, st *tally.Store, parts []log.Part) error {
	_, err := st.AppendAll(ctx, parts...)
	return err
}

// lost says which document others were faster with, if that is why a change was not made.
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

// parts is the append of a change, on the condition that state and file are what they were.
// With a name the events have ids that follow from it and from what the agent was, so that
// two who decide the same write it once.
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

// importedAs are the attributes by which an import knows a file again. A file that was
// changed here is not that one.
var importedAs = []string{"sha256", "marker"}

// revision is the event of a new file. What else was said of the document is said again.
func (i *AgentInfo) revision(source string, text []byte) events.Event {
	meta := i.meta
	meta.Base, meta.Attributes = i.Revision, maps.Clone(meta.Attributes)
	for _, name := range importedAs {
		delete(meta.Attributes, name)
	}
	e := events.Event{Source: source, Type: events.TypeDocumentWritten, Subject: i.document, ContentType: i.contentType, Data: text}
	return e.WithExtension(events.ExtDoc, meta.String())
}

// countsField says how many commitments an agent has of each status, for those who list
// agents and do not read their files.
func countsField(list []nodefile.Commitment) events.Field {
	counts := map[string]int{}
	for _, c := range list {
		counts[c.Status]++
	}
	value := fmt.Appendf(nil, `{"pending":%d,"verifying":%d,"passed":%d,"failed":%d}`,
		counts[nodefile.Pending], counts[nodefile.Verifying], counts[nodefile.Passed], counts[nodefile.Failed])
	return events.Field{Name: "commitments", Value: value}
}

// Lease takes the lease on the agent for a while, or longer if the holder has it already: it
// says who works for the agent. If somebody else has it, the error is *tally.LeaseError. An
// agent that is at work and whose lease is over is lost: see DecideAgent. Time is the log's.
func (a *Agent) Lease(ctx context.Context, holder string, while time.Duration) (*tally.Claim, error) {
	if err := a.session.Subject().Validate(); err != nil {
		return nil, err
	}
	return a.session.Lease(ctx, holder, while, a.isThere)
}

// Release ends the lease on the agent. If somebody else has it, the error is
// *tally.LeaseError; if nobody has, nothing is written.
func (a *Agent) Release(ctx context.Context, holder string) error {
	if err := a.session.Subject().Validate(); err != nil {
		return err
	}
	return a.session.Release(ctx, holder, a.isThere)
}

// isThere refuses a session that is not that of an agent, or of one that was purged.
func (a *Agent) isThere(o *projector.Outline) error {
	if err := tally.CheckKind(o.Subject(), o.Ledger(), events.KindAgent); err != nil {
		return err
	}
	return infoOf(a.id, o, &projector.Document{}).there()
}
