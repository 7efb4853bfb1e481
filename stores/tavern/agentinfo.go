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

// AgentInfo is an agent as it was when it was read.
type AgentInfo struct {
	ID          string
	Name        string
	State       string // of its session
	StateReason string // why it is in this state; "": nobody said
	Assignment  string
	Commitments []Commitment
	CreatedAt   events.Timestamp
	Parent      *events.Lineage // who started it; nil: not said
	Owner       string
	Layer       string

	Lease      tally.Lease     // who works for it, and until when; it may be over
	Binding    *events.Binding // the vendor's session; nil: none
	Log        []projector.LogEntry
	FinishedAt time.Time // when it was stopped, by the log's time; zero: it was not
	ArchivedAt time.Time
	PurgedAt   time.Time

	Node     []byte        // its file, as it is stored; nil: it has none
	Revision events.Offset // of the file: what an edit is based on
	NodeErr  error         // why the file says nothing: *NodeError, or nil

	// What a change of it rests on.
	subject, document events.Subject
	session, head     events.Offset // last records
	meta              events.DocMeta
	contentType       string
	node              nodefile.Node
	erased            bool      // the file was purged
	from              time.Time // from which on anything lasts that begins with a decision on it; zero: that decision's time
}

// markdown is the type of node files.
const markdown = "text/markdown; charset=utf-8"

// infoOf reads an agent from what both of its subjects say.
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
		i.State = AgentIdle // nobody said, or open
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
		err = &NodeError{Field: "id", Reason: fmt.Sprintf("it is that of the agent %s", n.ID)}
	}
	if err != nil {
		i.NodeErr = err
		return
	}
	i.node, i.Name, i.Assignment, i.Commitments = n, n.Name, n.Assignment, commitmentsOf(n)
}

// commitmentsOf are those that a node file lists.
func commitmentsOf(n nodefile.Node) (list []Commitment) {
	for _, c := range n.Commitments {
		list = append(list, Commitment(c))
	}
	return list
}

// there reports an agent that is not there.
func (i *AgentInfo) there() error {
	switch {
	case !i.PurgedAt.IsZero():
		return fmt.Errorf("%s was purged at %s: %w", i.subject.Name(), i.PurgedAt.UTC().Format(time.RFC3339), tally.ErrNotFound)
	case i.session == 0:
		return fmt.Errorf("%s: %w", i.subject.Name(), tally.ErrNotFound)
	}
	return nil
}

// Dead reports whether the agent will do nothing any more.
func (i *AgentInfo) Dead() bool {
	return i.State == AgentArchived || strings.HasPrefix(i.State, stopped)
}

// AllPassed reports whether there is no commitment that has not passed.
func (i *AgentInfo) AllPassed() bool { return i.count(CommitmentPassed) == len(i.Commitments) }

// HasPending reports whether a commitment waits for being verified.
func (i *AgentInfo) HasPending() bool { return i.count(CommitmentPending) > 0 }

// HasVerifying reports whether a commitment is being verified.
func (i *AgentInfo) HasVerifying() bool { return i.count(CommitmentVerifying) > 0 }

// HasFailed reports whether a commitment was found not to be kept.
func (i *AgentInfo) HasFailed() bool { return i.count(CommitmentFailed) > 0 }

func (i *AgentInfo) count(status string) (n int) {
	for _, c := range i.Commitments {
		if c.Status == status {
			n++
		}
	}
	return n
}
