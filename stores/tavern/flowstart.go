package tavern

import (
	"context"
	"fmt"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern/internal/flow"
)

// FlowOptions configure a new flow. The zero value works.
type FlowOptions struct {
	ID     string          // default: a new one; set it to repeat a call safely
	Owner  string          // session that owns the flow, such as agent/<uuid>; the flow is an orphan when it is gone
	Parent *events.Lineage // the session that starts the flow
	Input  events.Raw      // any JSON

	cause string // id of the event by which another flow starts this one
}

// childMark separates a flow's id from the step number, in the id of a flow that a state started.
const childMark = "#"

// MaxFlowDepth bounds how deep flows start flows.
const MaxFlowDepth = 16

// FlowDepthError reports that flows would start flows deeper than MaxFlowDepth, as if a template starts itself. Nothing
// was written.
type FlowDepthError struct {
	Flow     string // the flow that would be too deep
	Template string
}

func (e *FlowDepthError) Error() string {
	return fmt.Sprintf("flow %q of workflow %q: flows nest deeper than %d", e.Flow, e.Template, MaxFlowDepth)
}

func childID(id string, step int64) string { return fmt.Sprint(id, childMark, step) }

// starting returns the parts that start the flow and the flows that its first state starts.
func (f *Flow) starting(ctx context.Context, template string, o FlowOptions) ([]log.Part, error) {
	if strings.Count(f.id, childMark) > MaxFlowDepth {
		return nil, &FlowDepthError{Flow: f.id, Template: template}
	}
	w, err := WorkflowsOf(f.st).Read(ctx, template)
	if err != nil {
		return nil, err
	}
	doc := events.Document(f.st.Namespace(), KindWorkflow, template)
	part, created := log.Part{Subject: f.sub, Expect: log.At(0)}, f.createdID(template, o)
	for _, what := range []struct {
		payload events.Payload
		id      string
	}{
		{&events.RunCreated{Run: f.run(), Input: o.Input, Template: events.RefOf(doc, w.Revision), Parent: o.Parent, Owner: o.Owner}, created},
		{&events.RunStarted{Run: f.run(), Attempt: 1}, f.eventID("attempt", created)},
		{&events.RunProgressed{Run: f.run(), Kind: flow.ProgressMoved, Step: 1, State: &events.StateChange{To: w.Initial}}, f.eventID("began", created)},
	} {
		e, err := events.New(f.st.Source(), f.sub, what.payload)
		if err != nil {
			return nil, err
		}
		e.ID = what.id
		part.Events = append(part.Events, e)
	}
	return f.entering(ctx, w, w.Initial, 1, part)
}

// createdID returns the id of the event that creates the flow. Different options have different ids.
func (f *Flow) createdID(template string, o FlowOptions) string {
	parent := ""
	if o.Parent != nil {
		parent = fmt.Sprint(*o.Parent)
	}
	return f.eventID("created", template, o.Owner, parent, string(o.Input), o.cause)
}

// entering adds the start of the state's own flow to a part by which the flow enters the state.
func (f *Flow) entering(ctx context.Context, w *Workflow, to string, step int64, part log.Part) ([]log.Part, error) {
	st := w.template.State(to)
	if st.Flow == "" {
		return []log.Part{part}, nil
	}
	child := FlowOf(f.st, childID(f.id, step))
	if err := child.sub.Validate(); err != nil {
		return nil, err
	}
	by := FlowOptions{Owner: f.sub.ID, Parent: &events.Lineage{Session: f.sub.ID, Run: f.id}, cause: part.Events[len(part.Events)-1].ID}
	parts, err := child.starting(ctx, st.Flow, by)
	if err != nil {
		return nil, err
	}
	return append([]log.Part{part}, parts...), nil
}

// startedAlready returns the flow if the same start created it earlier, and else the refusal.
func (f *Flow) startedAlready(ctx context.Context, template string, o FlowOptions, refusal error) (*Flow, error) {
	if !movedOn(refusal) {
		return nil, refusal
	}
	i, err := f.instance(ctx)
	switch {
	case isNotThere(err):
		return nil, refusal
	case err != nil:
		return nil, err
	case i.Made == f.createdID(template, o):
		return f, nil
	}
	return nil, fmt.Errorf("%s: %w", f.sub.Name(), tally.ErrExists)
}
