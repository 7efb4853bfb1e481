package tavern

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern/internal/flow"
)

// KindWorkflow is the kind of documents that are templates of workflows.
const KindWorkflow = "workflow"

// Rules of recovery: how a flow continues when a step is lost.
const (
	RecoverRestart = flow.RuleRestart // the step is tried again, a limited number of times; then the flow fails
	RecoverFail    = flow.RuleFail    // the flow fails
	RecoverState   = flow.RuleState   // the flow continues in another state
)

// Workflows is a handle on the templates of a store: documents workflow/<id>, in the layer of the project. It is cheap,
// does no I/O until a method is called, and is safe for concurrent use.
//
// A template is a JSON document that names the states of a flow and the states that may follow each:
//
//	{
//	  "initial": "build",
//	  "recovery": "restart",
//	  "states": {
//	    "build":  {"to": ["test"]},
//	    "test":   {"to": ["build", "ship"], "flow": "test-suite", "recovery": {"state": "triage"}},
//	    "triage": {"to": ["build", "given up"], "recovery": "fail"},
//	    "ship":   {"to": ["shipped"], "recovery": {"restart": 5}},
//	    "shipped": {"end": true},
//	    "given up": {"end": true}
//	  }
//	}
//
// A state with "flow" starts a flow of that template when it is entered, and cannot be left before that flow ends.
// "recovery" is the rule for a lost step, lost with its worker or with the flow that it started. "restart" enters the
// state again, 3 attempts in total or n with {"restart": n}, and then the flow fails. "fail" fails the flow at once.
// {"state": name} continues in that state. A state without a rule has the template's, whose default is "fail". Template
// and states may have a "title" and a "description"; other members are refused.
//
// A template that cannot work is refused: a name that no state has, a state that cannot be reached or cannot reach an
// end, a template without an end, rules of recovery in a circle.
type Workflows struct{ st *tally.Store }

// WorkflowsOf returns a handle on the templates of a store.
func WorkflowsOf(st *tally.Store) *Workflows { return &Workflows{st} }

// CheckWorkflow is the check of documents of the kind workflow, for tally.Kind. An error is an *events.InvalidError
// with the JSON pointer and the line of the fault.
func CheckWorkflow(data []byte, _ string) error {
	_, err := flow.Parse(data)
	return err
}

// Workflow is a revision of a template.
type Workflow struct {
	ID       string
	Revision events.Offset
	Data     []byte // as it was written

	Title, Description string
	Initial            string
	States             []WorkflowState // in the order of the document

	template *flow.Template
}

// WorkflowState is a state of a template.
type WorkflowState struct {
	Name        string
	Title       string
	Description string
	End         bool     // the flow may end here, and leads nowhere else
	To          []string // states that may follow
	Flow        string   // template of the flow that it starts, or ""
	Recovery    string   // RecoverRestart, RecoverFail or RecoverState; "" for an end
	RecoverTo   string   // with RecoverState
	Attempts    int      // with RecoverRestart: attempts in total
}

func workflowOf(id string, at events.Offset, data []byte) (*Workflow, error) {
	t, err := flow.Parse(data)
	if err != nil {
		return nil, err
	}
	w := &Workflow{ID: id, Revision: at, Data: data, Title: t.Title, Description: t.Description, Initial: t.Initial, template: t}
	w.States = make([]WorkflowState, len(t.States))
	for i, s := range t.States {
		w.States[i] = WorkflowState(s)
	}
	return w, nil
}

// Create writes a new template. If it exists, the error is tally.ErrExists. A template that cannot work is refused: see
// CheckWorkflow.
func (w *Workflows) Create(ctx context.Context, id string, data []byte) (projector.Revision, error) {
	return w.write(data, func(write tally.Write) (projector.Revision, error) {
		return w.st.Documents().Create(ctx, KindWorkflow, id, write)
	})
}

// Update writes a template's next revision. base is the revision that it replaces, from Create or Read. Running flows
// keep theirs. If the template has changed since, the error is *tally.DocumentConflictError; if it does not exist,
// tally.ErrNotFound.
func (w *Workflows) Update(ctx context.Context, id string, base events.Offset, data []byte) (projector.Revision, error) {
	return w.write(data, func(write tally.Write) (projector.Revision, error) {
		return w.st.Documents().Update(ctx, KindWorkflow, id, base, write)
	})
}

func (w *Workflows) write(data []byte, put func(tally.Write) (projector.Revision, error)) (projector.Revision, error) {
	t, err := flow.Parse(data)
	if err != nil {
		return projector.Revision{}, err
	}
	return put(tally.Write{Data: data, ContentType: "application/json", Title: t.Title, Layer: "project"})
}

// Read returns a template as it is now. If it does not exist, the error is tally.ErrNotFound. A template that was
// written as a document, without checks, may be an *events.InvalidError.
func (w *Workflows) Read(ctx context.Context, id string) (*Workflow, error) {
	doc, err := w.st.Documents().Read(ctx, KindWorkflow, id)
	if err != nil {
		return nil, err
	}
	return w.parsed(id, doc.Offset, doc.Data)
}

// ReadAt returns a revision of a template, even if the template was updated or deleted since. If it was purged, the
// error is tally.ErrNotFound.
func (w *Workflows) ReadAt(ctx context.Context, id string, at events.Offset) (*Workflow, error) {
	sub := events.Document(w.st.Namespace(), KindWorkflow, id)
	doc, err := w.st.Loader().Document(ctx, sub, at)
	if err == nil && (!doc.Exists() || doc.Last().Offset != at) {
		err = fmt.Errorf("%s%v: %w", sub, at, tally.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return w.parsed(id, at, doc.Data)
}

func (w *Workflows) parsed(id string, at events.Offset, data []byte) (*Workflow, error) {
	t, err := workflowOf(id, at, data)
	if err != nil {
		return nil, fmt.Errorf("workflow %q: %w", id, err)
	}
	return t, nil
}

// List returns the templates whose ids begin with a prefix, sorted by id, and the after of the next page, or "". If
// limit is not 0, a page has at most limit templates.
func (w *Workflows) List(ctx context.Context, prefix, after string, limit int) (list []projector.DocumentListed, next string, err error) {
	return w.st.Documents().List(ctx, projector.DocumentQuery{Kind: KindWorkflow, Prefix: prefix, After: after, Limit: limit})
}

// Delete deletes a template. base is its revision, or 0 for any. No new flow can start with it; running flows continue.
func (w *Workflows) Delete(ctx context.Context, id string, base events.Offset, reason string) error {
	_, err := w.st.Documents().Delete(ctx, KindWorkflow, id, base, reason)
	return err
}

// Start starts a flow of a template's present revision. The flow keeps this revision. If the flow exists, the error is
// tally.ErrExists, unless the same call created it before.
func (w *Workflows) Start(ctx context.Context, template string, o FlowOptions) (*Flow, error) {
	if o.ID == "" {
		o.ID = w.st.Log.NewID()
	}
	f := FlowOf(w.st, o.ID)
	if err := f.startable(); err != nil {
		return nil, err
	}
	parts, err := f.starting(ctx, template, o)
	if err != nil {
		return nil, err
	}
	if _, err = w.st.AppendAll(ctx, parts...); events.IsStored(err) {
		return f, err
	}
	return f.startedAlready(ctx, template, o, err)
}

// isNotThere reports whether an error is tally.ErrNotFound.
func isNotThere(err error) bool { return errors.Is(err, tally.ErrNotFound) }
