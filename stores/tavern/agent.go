package tavern

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern/internal/nodefile"
)

// agentSessions is the prefix of the ids of agents' sessions.
const agentSessions = events.KindAgent + "/"

// NodeError reports what an agent's file lacks (id, title or state), or what cannot be written into it.
type NodeError = nodefile.Error

// Agent is a handle on one agent. It does no I/O until a method is called, keeps no state, and is safe for concurrent
// use.
//
// An agent is two subjects. The session agent/<id> has its state, lease, binding and log. The document agent/<id> is
// its node file, as an author wrote it, with the assignment and the commitments. A change that concerns both is one
// append, so that they never disagree. The file is edited in place: a change of state touches the keys and lines of the
// state, and every other byte stays.
type Agent struct {
	st      *tally.Store
	session *tally.Session
	id      string
}

// AgentOf returns a handle on an agent, whether it exists or not. Its id is a UUID; case does not matter.
func AgentOf(st *tally.Store, id string) *Agent {
	id = strings.ToLower(id)
	return &Agent{st: st, session: st.Session(agentSessions + id), id: id}
}

// ID returns the agent's id.
func (a *Agent) ID() string { return a.id }

// Session returns the agent's session, with its history, costs and log.
func (a *Agent) Session() *tally.Session { return a.session }

// document returns the subject of the agent's node file.
func (a *Agent) document() events.Subject {
	return events.Document(a.st.Namespace(), events.KindAgent, a.id)
}

// NewAgentOptions describe a new agent.
type NewAgentOptions struct {
	ID          string // a UUID; default: a new one
	Name        string
	Assignment  string
	Commitments []Commitment    // only descriptions and assertions count
	Parent      *events.Lineage // the session that started the agent
	Owner       string
	Layer       string // project or personal; default: none recorded

	// File is the node file. Its name, state, assignment and commitments replace the fields above. Its id must equal ID
	// if ID is set. Default: NewAgent makes the file from the fields.
	File []byte
}

// NewAgent creates an agent, in one append to both subjects. If the agent exists, NewAgent returns it with
// tally.ErrExists. If File is not an agent's file, the error is *NodeError.
func NewAgent(ctx context.Context, st *tally.Store, o NewAgentOptions) (*Agent, error) {
	text, n, err := o.file(st.Now())
	if err != nil {
		return nil, err
	}
	a := AgentOf(st, n.ID)
	i, err := a.load(ctx)
	if err != nil {
		return nil, err
	}
	if i.session != 0 || i.Node != nil {
		return a, fmt.Errorf("%s: %w", a.session.Subject().Name(), tally.ErrExists)
	}
	parts, err := i.birth(st, o, text, n)
	if err == nil {
		err = appendAgent(ctx, st, parts)
	}
	if errors.Is(err, log.ErrConflict) {
		return a, fmt.Errorf("%s: %w", a.session.Subject().Name(), tally.ErrExists)
	}
	if !events.IsStored(err) {
		return nil, err
	}
	return a, err
}

// CheckNode is the check of documents of the kind agent, for tally.Kind. An error is a *NodeError. It checks neither
// the agent's id nor whether the state may follow the present one; Agent.Save does.
func CheckNode(data []byte, _ string) error {
	_, err := readNode(data)
	return err
}

// readNode parses a file that an author wrote.
func readNode(text []byte) (nodefile.Node, error) {
	n, err := nodefile.Parse(text)
	if err == nil && !isAgentState(n.State) {
		err = &NodeError{Field: "state", Reason: fmt.Sprintf("%q is not a state of agents", n.State)}
	}
	return n, err
}

// checkNode parses a file that must belong to the agent.
func checkNode(text []byte, agent string) (nodefile.Node, error) {
	n, err := readNode(text)
	if err == nil && !strings.EqualFold(n.ID, agent) {
		err = &NodeError{Field: "id", Reason: fmt.Sprintf("it belongs to agent %s", n.ID)}
	}
	return n, err
}

// file returns the file of a new agent, and its node.
func (o NewAgentOptions) file(now time.Time) ([]byte, nodefile.Node, error) {
	if o.File != nil {
		n, err := readNode(o.File)
		if err == nil && o.ID != "" {
			n, err = checkNode(o.File, o.ID)
		}
		return o.File, n, err
	}
	id := o.ID
	if id == "" {
		id = uuid.NewString()
	}
	n := nodefile.Node{ID: id, Name: o.Name, State: AgentIdle, CreatedAt: nodeTime(now), UpdatedAt: nodeTime(now), Assignment: o.Assignment}
	for _, c := range o.Commitments {
		n.Commitments = append(n.Commitments, nodefile.Commitment{ID: uuid.NewString(), Description: c.Description, Assertion: c.Assertion, Status: CommitmentPending})
	}
	text, err := nodefile.New(n)
	if err == nil {
		n, err = nodefile.Parse(text)
	}
	return text, n, err
}

// nodeTime formats a time as the original does.
func nodeTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// birth makes the first append of an agent.
func (i *AgentInfo) birth(st *tally.Store, o NewAgentOptions, text []byte, n nodefile.Node) ([]log.Part, error) {
	created, err := events.New(st.Source(), i.subject, &events.SessionCreated{Kind: events.KindAgent, CreatedAt: events.TimestampOf(st.Now()),
		Title: strings.ToValidUTF8(n.Name, "\ufffd"), Owner: o.Owner, Layer: o.Layer, Parent: o.Parent})
	if err != nil {
		return nil, err
	}
	set := events.Fields{countsField(n.Commitments)}
	if n.State != AgentIdle {
		set = append(set, textField("status", n.State))
	}
	updated, err := events.New(st.Source(), i.subject, &events.SessionUpdated{Set: set})
	if err != nil {
		return nil, err
	}
	i.meta = events.DocMeta{Owner: o.Owner, Layer: o.Layer}
	return []log.Part{
		{Subject: i.subject, Expect: log.At(0), Events: []events.Event{created, updated}},
		{Subject: i.document, Expect: log.At(i.head), Events: []events.Event{i.revision(st.Source(), text)}},
	}, nil
}

// AgentFilter selects agents. The zero value selects all that are not archived.
type AgentFilter struct {
	States   []string // only agents in one of these states
	Parent   string   // only agents that this session started
	Owner    string
	Archived bool // include archived agents
}

// Agents yields the agents of a store, sorted by id. For an agent that cannot be read it yields an error and goes on.
// It skips purged agents.
func Agents(ctx context.Context, st *tally.Store, f AgentFilter) iter.Seq2[*AgentInfo, error] {
	return func(yield func(*AgentInfo, error) bool) {
		for info, err := range st.Subjects(ctx, events.KindSession) {
			if err != nil {
				yield(nil, err)
				return
			}
			id, ok := strings.CutPrefix(info.Subject.ID, agentSessions)
			if !ok || id != strings.ToLower(id) {
				continue
			}
			i, err := AgentOf(st, id).Info(ctx)
			_, other := errors.AsType[*tally.KindError](err)
			if other || errors.Is(err, tally.ErrNotFound) || err == nil && !f.Includes(i) {
				continue
			}
			if !yield(i, err) {
				return
			}
		}
	}
}

// Includes reports whether the filter selects an agent.
func (f AgentFilter) Includes(i *AgentInfo) bool {
	in := len(f.States) == 0
	for _, s := range f.States {
		in = in || s == i.State
	}
	started := f.Parent == "" || i.Parent != nil && i.Parent.Session == f.Parent
	return in && started && (f.Owner == "" || f.Owner == i.Owner) && (f.Archived || i.State != AgentArchived)
}

// Info returns the agent as it is now. If the agent does not exist or was purged, the error is tally.ErrNotFound; if
// the session belongs to another kind, it is *tally.KindError. A dead agent can be read until it is purged.
func (a *Agent) Info(ctx context.Context) (*AgentInfo, error) {
	for try := 1; ; try++ {
		// The document is read after the session. An append to both in between would look like a disagreement. So Info
		// also compares the document's offset with that of before.
		before, err := a.st.Log.Last(ctx, a.document())
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			before.Offset, err = damage.Offset, nil
		}
		if err != nil && !errors.Is(err, tally.ErrNotFound) {
			return nil, err
		}
		i, err := a.load(ctx)
		if err == nil {
			err = i.there()
		}
		if err != nil {
			return nil, err
		}
		if before.Offset == i.head || try == maxDecisions {
			return i, nil
		}
	}
}

// Restore returns the agent in the state that it was in, for a program that resumes it.
func (a *Agent) Restore(ctx context.Context) (*AgentInfo, error) { return a.Info(ctx) }

// RestoreAsOriginal is Restore with the original's rule: an agent that was neither waiting nor done is idle. It writes
// nothing.
func (a *Agent) RestoreAsOriginal(ctx context.Context) (*AgentInfo, error) {
	i, err := a.Info(ctx)
	if err == nil && i.State != AgentWaiting && i.State != AgentDone {
		i.State = AgentIdle
	}
	return i, err
}

// load reads both subjects of the agent. Either may be missing.
func (a *Agent) load(ctx context.Context) (*AgentInfo, error) {
	if err := a.session.Subject().Validate(); err != nil {
		return nil, err
	}
	o, err := a.st.Loader().Peek(ctx, a.session.Subject())
	if err == nil {
		err = tally.CheckKind(a.session.Subject(), o.Ledger(), events.KindAgent)
	}
	if err != nil {
		return nil, err
	}
	doc, err := a.st.Loader().Document(ctx, a.document(), 0)
	if err != nil && !errors.Is(err, tally.ErrNotFound) {
		return nil, err
	}
	return infoOf(a.id, o, doc), nil
}

// textField returns a text field of a session. An empty text removes the field.
func textField(name, text string) events.Field {
	if text == "" {
		return events.Field{Name: name, Value: events.Raw("null")}
	}
	value, err := rawjson.Marshal(strings.ToValidUTF8(text, "\ufffd"))
	if err != nil {
		panic(fmt.Sprintf("tavern: %v", err)) // encoding a valid string cannot fail
	}
	return events.Field{Name: name, Value: value}
}

// field reads a field of a session. It returns the zero value if the field is missing or malformed.
func field[T any](l *projector.Ledger, name string) (v T) {
	raw, ok := l.Fields.Get(name)
	if ok && rawjson.Unmarshal(raw, &v) != nil {
		var none T
		return none
	}
	return v
}

// timeField reads a time from a field of a session. It returns the zero time if the field is missing.
func timeField(l *projector.Ledger, name string) time.Time {
	at, _ := events.Timestamp(l.Text(name)).Time()
	return at
}
