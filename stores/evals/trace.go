package evals

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/evals/internal/steps"
)

// StepTrace is a turn as the simulation recorded it. Its raw values are kept byte for byte; unknown members are in
// Unknown.
type StepTrace struct {
	TurnIndex     int              `json:"turnIndex"`
	UserMessage   events.Raw       `json:"userMessage"`
	AgentMessages []events.Raw     `json:"agentMessages"`
	Timestamp     events.Timestamp `json:"timestamp,omitempty" rawjson:"kept"` // with its spelling
	StepID        *string          `json:"stepId"`                             // nil: no step of the graph was chosen
	Selection     events.Raw       `json:"selection"`
	End           events.Raw       `json:"end,omitempty" rawjson:"kept"` // only in the last trace
	Unknown       events.Fields    `json:",unknown"`
}

// Selection is the way in which a step of the graph was chosen.
type Selection struct {
	Method     string        `json:"method"` // start, preconditions-ordered, llm-ranked or none
	Candidates []Candidate   `json:"candidates,omitempty" rawjson:"kept"`
	Unknown    events.Fields `json:",unknown"`
}

// Candidate is a step that could have been chosen.
type Candidate struct {
	StepID  string        `json:"stepId"`
	Score   float64       `json:"score"`
	Reasons []string      `json:"reasons,omitempty" rawjson:"kept"`
	Unknown events.Fields `json:",unknown"`
}

// TraceEnd is the end of a simulation.
type TraceEnd struct {
	IsFinal   bool          `json:"isFinal"`
	Reason    string        `json:"reason"` // goal-reached, max-turns, policy-violation, agent-loop, no-step-match or error
	Completed bool          `json:"completed"`
	Summary   string        `json:"summary,omitempty" rawjson:"kept"`
	Unknown   events.Fields `json:",unknown"`
}

// Chosen returns the typed view of the selection.
func (t StepTrace) Chosen() (Selection, error) {
	var s Selection
	if err := rawjson.Unmarshal(t.Selection, &s); err != nil {
		return s, rawError("selection", err)
	}
	return s, nil
}

// Ended returns the typed view of the end, nil if the simulation went on.
func (t StepTrace) Ended() (*TraceEnd, error) {
	if t.End == nil {
		return nil, nil
	}
	e := &TraceEnd{}
	if err := rawjson.Unmarshal(t.End, e); err != nil {
		return nil, rawError("end", err)
	}
	return e, nil
}

// ParseStepTrace parses a step trace. An error is *events.InvalidError with the path.
func ParseStepTrace(raw events.Raw) (StepTrace, error) {
	t, err := parseChecked(raw, func(c *checker, t *StepTrace) {
		c.present(raw, "turnIndex", "userMessage", "agentMessages", "stepId", "selection")
		if !startsWith(t.Selection, "{") {
			c.fail("selection", "want an object")
		}
		if t.Timestamp != "" {
			c.time(fieldTimestamp, t.Timestamp)
		}
	})
	if t == nil {
		return StepTrace{}, err
	}
	return *t, err
}

// FromStepTraces makes a conversation of step traces. A step's index is its position. The step's metadata have the
// turn's index, the step of the graph, the selection and the end.
func FromStepTraces(traces []StepTrace, id string, metadata events.Raw) (*Data, error) {
	c := &Data{ID: id, Metadata: metadata}
	for i, t := range traces {
		s, err := NewStep(i, t.UserMessage, t.AgentMessages...)
		if err == nil && t.Timestamp != "" {
			err = s.Set(fieldTimestamp, rawjson.AppendString(nil, string(t.Timestamp)))
		}
		if err == nil {
			err = s.SetMetadata(t.metadata())
		}
		if err != nil {
			return nil, inside(fmt.Sprintf("traces[%d]", i), err)
		}
		c.Steps = append(c.Steps, s)
	}
	return c, c.validate()
}

// metadata returns the step's metadata for a trace.
func (t StepTrace) metadata() events.Raw {
	b := strconv.AppendInt([]byte(`{"originalTurnIndex":`), int64(t.TurnIndex), 10)
	b = append(b, `,"stepId":`...)
	if t.StepID == nil {
		b = append(b, "null"...)
	} else {
		b = rawjson.AppendString(b, *t.StepID)
	}
	if t.Selection != nil {
		b = append(append(b, `,"selection":`...), t.Selection...)
	}
	if t.End != nil {
		b = append(append(b, `,"end":`...), t.End...)
	}
	return append(b, '}')
}

// TraceOptions configure ToStepTraces. The zero value is the original's default.
type TraceOptions struct {
	// PreserveTurnIndices takes a trace's index from originalTurnIndex in the step's metadata, if that is a number.
	// Otherwise the index is the step's position.
	PreserveTurnIndices bool
	// Now returns the time for a step without one. nil: the trace has none either.
	Now func() time.Time
}

// ToStepTraces makes step traces of a conversation. It is the inverse of FromStepTraces if turn indices are
// preserved. A step without a selection has the selection method none.
func ToStepTraces(c *Data, o TraceOptions) []StepTrace {
	traces := make([]StepTrace, len(c.Steps))
	for i, s := range c.Steps {
		traces[i] = traceOf(s, i, o)
	}
	return traces
}

func traceOf(s Step, index int, o TraceOptions) StepTrace {
	step, _ := rawjson.Object(s.raw) // it is an object
	trace, _ := rawjson.Object(steps.AppendTrace(nil, step, index, false))
	t := StepTrace{TurnIndex: index, UserMessage: s.Input(), AgentMessages: s.Output(), Timestamp: events.Timestamp(trace.Text(fieldTimestamp))}
	t.Selection, _ = trace.Get("selection")
	t.End, _ = trace.Get("end")
	if t.Timestamp == "" && o.Now != nil {
		t.Timestamp = events.TimestampOf(o.Now())
	}
	if raw, ok := step.Object(fieldMetadata).Get("originalTurnIndex"); ok && o.PreserveTurnIndices {
		if n, err := strconv.Atoi(string(raw)); err == nil {
			t.TurnIndex = n
		}
	}
	if raw, _ := trace.Get("stepId"); startsWith(raw, `"`) {
		id := trace.Text("stepId")
		t.StepID = &id
	}
	return t
}

// tracesFile is the file of the step traces.
const tracesFile = "stepTraces.json"

// LoadTrajectoryStepTraces returns the step traces, nil without any. If no others were stored, they are computed from
// the steps of a simulation.
func (c *Conversation) LoadTrajectoryStepTraces(ctx context.Context) ([]StepTrace, error) {
	s, err := c.full(ctx)
	if err != nil {
		return nil, err
	}
	raws, ok := tracesOf(s)
	if !ok {
		return nil, nil
	}
	traces := make([]StepTrace, len(raws))
	for i, raw := range raws {
		if traces[i], err = ParseStepTrace(raw); err != nil {
			return nil, fmt.Errorf("step traces of %s: %w", c.s.Subject().Name(), inside(fmt.Sprintf("[%d]", i), err))
		}
	}
	return traces, nil
}

// tracesOf returns the step traces of a session, and whether it has any.
func tracesOf(s *projector.Session) ([]events.Raw, bool) {
	f, known := s.Ledger.Formats[tracesFile]
	switch there, derived := steps.HasTraces(s, f, known); {
	case derived:
		return derivedTraces(s), true
	case !there:
		return nil, false
	}
	var raws []events.Raw
	for _, t := range s.Threads.Turns(steps.TracesThread) {
		raws = append(raws, t.Raw)
	}
	return raws, true
}

// derivedTraces returns the step traces that are computed from the steps.
func derivedTraces(s *projector.Session) []events.Raw {
	var raws []events.Raw
	for i, turn := range s.Threads.Turns(events.MainThread) {
		if step, err := rawjson.Object(turn.Raw); err == nil {
			raws = append(raws, steps.AppendTrace(nil, step, i, true))
		}
	}
	return raws
}

// SaveTrajectoryStepTraces records the simulation's traces. Traces that can be computed from the steps are not stored
// again; others are stored until they are replaced. An empty list of traces differs from no recorded list.
func (c *Conversation) SaveTrajectoryStepTraces(ctx context.Context, traces []StepTrace) (Change, error) {
	raws := make([]events.Raw, len(traces))
	for i, t := range traces {
		raw, err := rawjson.Marshal(t)
		if err == nil {
			_, err = ParseStepTrace(raw)
		}
		if err != nil {
			return NoChange, inside(fmt.Sprintf("[%d]", i), rawError("", err))
		}
		raws[i] = raw
	}
	change := NoChange
	types := append(projector.MoveTypes(), events.TypeSessionUpdated)
	_, err := c.update(ctx, types, func(o *projector.Outline) (events.Payload, error) {
		s, err := o.Session(ctx)
		if err != nil {
			return nil, err
		}
		p, made, err := planTraces(s, raws)
		change = made
		return p, err
	})
	if err != nil {
		return NoChange, err
	}
	return change, nil
}

func planTraces(s *projector.Session, raws []events.Raw) (events.Payload, Change, error) {
	have, ok := tracesOf(s)
	change := Extension
	if ok {
		change = Replacement
	}
	if ok && slices.EqualFunc(have, raws, sameTokens) {
		return nil, NoChange, nil
	}
	if s.Threads[events.MainThread] != nil && slices.EqualFunc(derivedTraces(s), raws, sameTokens) {
		formats := map[string]events.FileFormat{tracesFile: {Indent: "  ", Derived: true}}
		return &events.SessionUpdated{Set: events.Fields{}, Formats: formats}, change, nil
	}
	r := events.Replacement{Items: []events.Item{}}
	for _, raw := range raws {
		r.Items = append(r.Items, events.Item{Turn: raw})
	}
	p := &events.ThreadReplaced{Threads: map[string]events.Replacement{steps.TracesThread: r}, Others: "keep", Reason: "save"}
	if f, known := s.Ledger.Formats[tracesFile]; known && (f.Derived || f.Gone) {
		p.Formats = map[string]events.FileFormat{tracesFile: {Indent: "  "}}
	}
	return p, change, nil
}

func sameTokens(a, b events.Raw) bool { return rawjson.Equal(a, b) }
