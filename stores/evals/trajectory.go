package evals

import (
	"context"
	"fmt"
	"slices"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// TrajectoryMeta is the definition of a simulation, version 1. Unknown members are kept in the fields called Unknown.
// Times keep their spelling; Time parses them.
type TrajectoryMeta struct {
	Version       int              `json:"version"` // 1
	TrajectoryID  string           `json:"trajectoryId"`
	CreatedAt     events.Timestamp `json:"createdAt"`
	Goal          string           `json:"goal"`
	Persona       Persona          `json:"persona"`
	MaxTurns      *int             `json:"maxTurns,omitempty" rawjson:"kept"`
	LoopDetection *LoopDetection   `json:"loopDetection,omitempty" rawjson:"kept"`
	Metadata      *events.Fields   `json:"metadata,omitempty" rawjson:"kept"`
	StepGraph     *StepGraph       `json:"stepGraph,omitempty" rawjson:"kept"`
	Unknown       events.Fields    `json:",unknown"`
}

// Persona is the role that the simulation plays.
type Persona struct {
	Name        string        `json:"name,omitempty" rawjson:"kept"`
	Description string        `json:"description"`
	Guardrails  []string      `json:"guardrails,omitempty" rawjson:"kept"`
	Unknown     events.Fields `json:",unknown"`
}

// LoopDetection limits the loops of a simulation.
type LoopDetection struct {
	MaxConsecutiveSameStep *int          `json:"maxConsecutiveSameStep,omitempty" rawjson:"kept"`
	MaxCycleLength         *int          `json:"maxCycleLength,omitempty" rawjson:"kept"`
	MaxCycleRepetitions    *int          `json:"maxCycleRepetitions,omitempty" rawjson:"kept"`
	Unknown                events.Fields `json:",unknown"`
}

// StepGraph is the plan of a simulation. Its steps are open objects.
type StepGraph struct {
	Start     string        `json:"start"`
	Terminals []string      `json:"terminals,omitempty" rawjson:"kept"`
	Steps     []events.Raw  `json:"steps"`
	Unknown   events.Fields `json:",unknown"`
}

// TrajectoryRunMeta is the result of a simulation.
type TrajectoryRunMeta struct {
	RunID          string           `json:"runId"`
	ConversationID string           `json:"conversationId"`
	Timestamp      events.Timestamp `json:"timestamp"`
	Goal           string           `json:"goal"`
	Persona        Persona          `json:"persona"`
	Completed      bool             `json:"completed"`
	Reason         string           `json:"reason"` // goal-reached, max-turns, policy-violation, agent-loop, no-step-match or error
	TotalTurns     int              `json:"totalTurns"`
	StepCount      *int             `json:"stepCount,omitempty" rawjson:"kept"`
	StepsCompleted *int             `json:"stepsCompleted,omitempty" rawjson:"kept"`
	Metadata       *events.Fields   `json:"metadata,omitempty" rawjson:"kept"`
	Unknown        events.Fields    `json:",unknown"`
}

// ParseTrajectoryMeta parses a TrajectoryMeta. An error is *events.InvalidError with the path.
func ParseTrajectoryMeta(raw events.Raw) (*TrajectoryMeta, error) {
	return parseChecked(raw, func(c *checker, m *TrajectoryMeta) {
		c.version("version", m.Version)
		c.present(raw, "trajectoryId", "createdAt", "goal", "persona")
		c.time("createdAt", m.CreatedAt)
	})
}

// ParseTrajectoryRun parses a TrajectoryRunMeta.
func ParseTrajectoryRun(raw events.Raw) (*TrajectoryRunMeta, error) {
	return parseChecked(raw, func(c *checker, m *TrajectoryRunMeta) {
		c.present(raw, "runId", "conversationId", "timestamp")
		c.time("timestamp", m.Timestamp)
	})
}

func (c *checker) time(path string, at events.Timestamp) {
	if _, ok := parseDate(string(at)); !ok {
		c.fail(path, "%q: want a time such as 2026-01-02T03:04:05.678Z", string(at))
	}
}

// fieldTrajectory is the session's field with the definition.
const fieldTrajectory = "trajectory"

// LoadTrajectoryMeta returns the definition of the simulation, nil if none was recorded.
func (c *Conversation) LoadTrajectoryMeta(ctx context.Context) (*TrajectoryMeta, error) {
	raw, err := c.TrajectoryMetaRaw(ctx)
	if err != nil || raw == nil {
		return nil, err
	}
	m, err := ParseTrajectoryMeta(raw)
	if err != nil {
		return nil, fmt.Errorf("trajectory of %s: %w", c.s.Subject().Name(), err)
	}
	return m, nil
}

// TrajectoryMetaRaw is LoadTrajectoryMeta without the typed view: it returns the stored bytes without a check.
func (c *Conversation) TrajectoryMetaRaw(ctx context.Context) (events.Raw, error) {
	s, err := c.head(ctx)
	if err != nil {
		return nil, err
	}
	raw, _ := s.Ledger().Fields.Get(fieldTrajectory)
	return raw, nil
}

// SaveTrajectoryMeta records the definition of the simulation.
func (c *Conversation) SaveTrajectoryMeta(ctx context.Context, m *TrajectoryMeta) (Change, error) {
	raw, err := rawjson.Marshal(m)
	if err != nil {
		return NoChange, rawError("", err)
	}
	return c.SaveTrajectoryMetaRaw(ctx, raw)
}

// SaveTrajectoryMetaRaw is SaveTrajectoryMeta for bytes. If raw is not a TrajectoryMeta, the error is
// *events.InvalidError, and nothing is written.
func (c *Conversation) SaveTrajectoryMetaRaw(ctx context.Context, raw events.Raw) (Change, error) {
	if _, err := ParseTrajectoryMeta(raw); err != nil {
		return NoChange, err
	}
	change := NoChange
	_, err := c.update(ctx, []string{events.TypeSessionUpdated}, func(o *projector.Outline) (events.Payload, error) {
		have, ok := o.Ledger().Fields.Get(fieldTrajectory)
		if change = NoChange; ok && rawjson.Equal(have, raw) {
			return nil, nil
		}
		if change = Extension; ok {
			change = Replacement
		}
		return &events.SessionUpdated{Set: events.Fields{{Name: fieldTrajectory, Value: raw}}}, nil
	})
	if err != nil {
		return NoChange, err
	}
	return change, nil
}

// Trajectory is a simulation for viewers: its definition and its steps, each nil if it was not recorded.
type Trajectory struct {
	Meta  *TrajectoryMeta
	Steps []StepTrace
}

// Trajectory returns the definition and the step traces.
func (c *Conversation) Trajectory(ctx context.Context) (Trajectory, error) {
	meta, err := c.LoadTrajectoryMeta(ctx)
	if err != nil {
		return Trajectory{}, err
	}
	steps, err := c.LoadTrajectoryStepTraces(ctx)
	return Trajectory{meta, steps}, err
}

// Summary is a line of a list of conversations.
type Summary struct {
	ID       string
	RunCount int // runs with a result
}

// Summaries lists the conversations with the number of their runs.
func Summaries(ctx context.Context, st *tally.Store) ([]Summary, error) {
	list, err := st.Sessions(ctx, events.KindConversation)
	if projector.Tolerate(err) != nil {
		return nil, err
	}
	sums := make([]Summary, len(list))
	for i, s := range list {
		sums[i].ID = s.ID
		for _, t := range runTypes {
			sums[i].RunCount += s.Results[string(t)]
		}
	}
	return sums, err
}

// NewestFirst sorts runs for viewers: by the time in the id, newest first. Ids without a time come last.
func NewestFirst(runs []*Run) []*Run {
	sorted := slices.Clone(runs)
	slices.SortStableFunc(sorted, func(a, b *Run) int { return compareTimes(a, b, -1) })
	return sorted
}
