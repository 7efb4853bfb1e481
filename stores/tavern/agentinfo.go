package tavern

import (
	"fmt"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern/internal/nodefile"
)

// AgentInfo is an agent as of a read.
type AgentInfo struct {
	ID          string
	Name        string
	State       string // of its session
	StateReason string // why the agent is in this state, or ""
	Assignment  string
	Commitments []Commitment
	CreatedAt   events.Timestamp
	Parent      *events.Lineage // the session that started it; nil: none recorded
	Owner       string
	Layer       string

	Lease      tally.Lease     // the holder and the end of its lease, which may have passed
	Binding    *events.Binding // the vendor's session, or nil
	Log        []projector.LogEntry
	FinishedAt time.Time // when the agent was stopped, by the log's time, or zero
	ArchivedAt time.Time
	PurgedAt   time.Time

	Node     []byte        // the node file as stored; nil: the agent has no file
	Revision events.Offset // revision of the file; edits are based on it
	NodeErr  error         // why the file is invalid: *NodeError, or nil

	// The basis of a change.
	subject, document events.Subject
	session, head     events.Offset // last records
	meta              events.DocMeta
	contentType       string
	node              nodefile.Node
	erased            bool      // the file was purged
	from              time.Time // start of periods that begin with a decision; zero: the decision's time
}

// markdown is the content type of node files.
const markdown = "text/markdown; charset=utf-8"

// infoOf reads an agent from both of its subjects.
func infoOf(id string, o *projector.Outline, doc *projector.Document) *AgentInfo {
	l := o.Ledger()
	i := &AgentInfo{ID: id, Name: l.Text("title"), State: l.Text("status"), StateReason: l.Text("statusReason"), CreatedAt: l.CreatedAt, Parent: l.Parent,
		Owner: l.Text("owner"), Layer: l.Text("layer"), Binding: field[*events.Binding](l, "binding"), Log: l.Log,
		FinishedAt: timeField(l, "finishedAt"), ArchivedAt: timeField(l, "archivedAt"), PurgedAt: timeField(l, "purgedAt"),
		subject: o.Subject(), document: doc.Subject, session: o.Offset(), head: doc.Head, contentType: markdown}
	if lease := field[*events.Lease](l, "lease"); lease != nil {
		until, _ := lease.Until.Time()
		i.Lease = tally.Lease{Holder: lease.Holder, Until: until}
	}
	if !isAgentState(i.State) {
		i.State = AgentIdle // no status, or that of a plain session
	}
	if last := doc.Last(); last != nil {
		i.erased = last.IsPurge()
	}
	if doc.Exists() {
		i.readNode(doc)
	}
	return i
}

func (i *AgentInfo) readNode(doc *projector.Document) {
	last := doc.Last()
	i.Node, i.Revision, i.meta, i.contentType = doc.Data, last.Offset, last.Meta, last.ContentType
	n, err := nodefile.Parse(doc.Data)
	if err == nil && !strings.EqualFold(n.ID, i.ID) {
		err = &NodeError{Field: "id", Reason: fmt.Sprintf("it belongs to agent %s", n.ID)}
	}
	if err != nil {
		i.NodeErr = err
		return
	}
	i.node, i.Name, i.Assignment, i.Commitments = n, n.Name, n.Assignment, commitmentsOf(n)
}

// commitmentsOf returns the commitments of a node file.
func commitmentsOf(n nodefile.Node) (list []Commitment) {
	for _, c := range n.Commitments {
		list = append(list, Commitment(c))
	}
	return list
}

// there returns an error if the agent does not exist or was purged.
func (i *AgentInfo) there() error {
	switch {
	case !i.PurgedAt.IsZero():
		return fmt.Errorf("%s was purged at %s: %w", i.subject.Name(), i.PurgedAt.UTC().Format(time.RFC3339), tally.ErrNotFound)
	case i.session == 0:
		return fmt.Errorf("%s: %w", i.subject.Name(), tally.ErrNotFound)
	}
	return nil
}

// Dead reports whether the agent is stopped or archived.
func (i *AgentInfo) Dead() bool {
	return i.State == AgentArchived || strings.HasPrefix(i.State, stopped)
}

// AllPassed reports whether all commitments have passed.
func (i *AgentInfo) AllPassed() bool { return i.count(CommitmentPassed) == len(i.Commitments) }

// HasPending reports whether a commitment is pending.
func (i *AgentInfo) HasPending() bool { return i.count(CommitmentPending) > 0 }

// HasVerifying reports whether a commitment is being verified.
func (i *AgentInfo) HasVerifying() bool { return i.count(CommitmentVerifying) > 0 }

// HasFailed reports whether a commitment has failed.
func (i *AgentInfo) HasFailed() bool { return i.count(CommitmentFailed) > 0 }

func (i *AgentInfo) count(status string) (n int) {
	for _, c := range i.Commitments {
		if c.Status == status {
			n++
		}
	}
	return n
}
