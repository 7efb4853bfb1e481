package errata

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/internal/panel"
)

// Run is a finished run of a panel: a prompt and the models' responses.
type Run struct {
	ID         string // default: a new one; a repeated id makes a newer version of the run
	Prompt     string
	Responses  []Response
	Events     map[string][]Event // by model
	Tools      []string           // names of the active tools
	ConfigHash string             // of the current recipe
	At         time.Time          // end of the run; default: now
}

// PersistRunState records a run as one event. The views Metadata and Content, the number of prompts and the first and
// last of them follow from it.
func (s *Session) PersistRunState(ctx context.Context, run Run) (events.RunRef, error) {
	ref, p, err := s.runFinished(run)
	if err != nil {
		return ref, err
	}
	if err := s.ensure(ctx); err != nil {
		return ref, err
	}
	_, err = s.Append(ctx, log.Any, p)
	return ref, err
}

func (s *Session) runFinished(run Run) (events.RunRef, *events.RunFinished, error) {
	if run.ID == "" {
		run.ID = NewID(RunIDPrefix)
	}
	ref := events.RunRef{Kind: panel.Kind, ID: run.ID}
	for i, r := range run.Responses {
		if err := r.check(i); err != nil {
			return ref, nil, err
		}
	}
	if run.At.IsZero() {
		run.At = s.Store().Now().Local()
	}
	result := Result{Summary: panel.JSON(run.summary()), Content: panel.JSON(run.content())}
	p := &events.RunFinished{Run: ref, Outcome: run.outcome(), Result: panel.JSON(result), FinishedAt: events.Timestamp(run.At.Format(time.RFC3339Nano)), Schema: Schema}
	if run.Tools != nil {
		p.Tools = panel.JSON(run.Tools)
	}
	return ref, p, nil
}

// Schema names the form of a panel run's result, which is Result.
const Schema = panel.Schema

func (run *Run) outcome() string {
	answered := false
	for _, r := range run.Responses {
		if r.Interrupted {
			return "interrupted"
		}
		answered = answered || r.OK()
	}
	if !answered && len(run.Responses) > 0 {
		return "failed"
	}
	return "completed"
}

// summary returns the run in the form of session_metadata.json. The maps have one entry for each model, so the last
// of two responses of one model counts.
func (run *Run) summary() RunSummary {
	n := len(run.Responses)
	sum := RunSummary{Timestamp: run.At, PromptHash: panel.PromptHash(run.Prompt), PromptPreview: panel.Preview(run.Prompt), Models: make([]string, n), ConfigHash: run.ConfigHash,
		LatenciesMS: make(map[string]int64, n), CostsUSD: make(map[string]float64, n), InputTokens: make(map[string]int64, n), OutputTokens: make(map[string]int64, n),
		ToolCalls: make(map[string]map[string]int, n), ProposedWritesCount: make(map[string]int, n)}
	for i, r := range run.Responses {
		sum.Models[i] = r.ModelID
		sum.LatenciesMS[r.ModelID] = r.LatencyMS
		sum.CostsUSD[r.ModelID] = r.CostUSD
		sum.InputTokens[r.ModelID] = r.InputTokens
		sum.OutputTokens[r.ModelID] = r.OutputTokens
		sum.ToolCalls[r.ModelID] = r.ToolCalls
		sum.ProposedWritesCount[r.ModelID] = len(r.ProposedWrites)
	}
	return sum
}

// content returns the run in the form of session_content.json.
func (run *Run) content() RunContent {
	c := RunContent{Prompt: run.Prompt, PromptHash: panel.PromptHash(run.Prompt)}
	for _, r := range run.Responses {
		collected := []Event{}
		for _, e := range run.Events[r.ModelID] {
			if e.Type != "snapshot" && e.Type != "request" { // they belong to the display
				collected = append(collected, e)
			}
		}
		c.Models = append(c.Models, ModelContent{ModelID: r.ModelID, Text: r.Text, ProposedWrites: r.ProposedWrites, Events: collected,
			StopReason: r.StopReason, Steps: r.Steps, ReasoningTokens: r.ReasoningTokens})
	}
	return c
}

// SelectionParams is a user's selection among the answers of the last run, or a rating of one.
type SelectionParams struct {
	Prompt          string // of the run; default: unknown
	SelectedModelID string
	Responses       []Response // the answers of the selection; nil: unknown
	AppliedFiles    []string   // nil for votes and ratings
	Rating          string     // "", good or bad
}

// OtherRunError reports a selection for another run than the last one.
type OtherRunError struct {
	Run  events.RunRef // the last run
	Want string        // subject of the selection: a prompt, or a model's answer
}

func (e *OtherRunError) Error() string {
	return fmt.Sprintf("the selection is for another run: the last run, %s, does not have the %s", e.Run, e.Want)
}

// UnknownModelError reports that a model did not take part in a run.
type UnknownModelError struct {
	Run    events.RunRef
	Model  string
	Models []string // models of the run
}

func (e *UnknownModelError) Error() string {
	return fmt.Sprintf("run %s has no model %q, it has %q", e.Run, e.Model, e.Models)
}

// RecordSelection records a selection or rating of the last run that is not withdrawn. Without a run it does nothing.
// If the model did not take part in the run, the error is an *UnknownModelError. If the prompt or the responses are
// of another run, such as the previous one, it is an *OtherRunError. On an error nothing is written. A model that is
// rated bad is not selected.
func (s *Session) RecordSelection(ctx context.Context, p SelectionParams) error {
	if p.Rating != "" && p.Rating != "good" && p.Rating != "bad" {
		return &events.InvalidError{Field: "rating", Reason: fmt.Sprintf("%q: want good, bad or nothing", p.Rating)}
	}
	return s.annotateLast(ctx, func(run *projector.Run) (*events.RunAnnotated, error) {
		if err := s.checkSelection(ctx, run, p); err != nil {
			return nil, err
		}
		a := &events.RunAnnotated{Run: run.Ref(), Selected: &p.SelectedModelID, Rating: &p.Rating}
		if p.Rating == "bad" {
			a.Selected = new(string)
			a.Tags = withRated(run.Tags, p.SelectedModelID)
		}
		if len(p.AppliedFiles) > 0 {
			a.AppliedFiles = p.AppliedFiles
		}
		return a, nil
	})
}

// withRated returns the tags of a run with the tag of the model that was rated bad.
func withRated(tags []string, model string) []string {
	kept := slices.DeleteFunc(slices.Clone(tags), func(t string) bool { return strings.HasPrefix(t, panel.RatedTag) })
	return append(kept, panel.RatedTag+model)
}

// checkSelection refuses a selection that does not match the answers of a run.
func (s *Session) checkSelection(ctx context.Context, run *projector.Run, p SelectionParams) error {
	if run.Last() == nil {
		return nil
	}
	rec, err := s.record(ctx, run.Last().Offset)
	if err != nil {
		return err
	}
	raw, ok := panel.RowOf(projector.Decode(rec))
	if !ok {
		return nil
	}
	row, err := rowOf(&raw)
	if err != nil {
		return err
	}
	if p.Prompt != "" && !row.noSummary && panel.PromptHash(p.Prompt) != row.Summary.PromptHash {
		return &OtherRunError{run.Ref(), fmt.Sprintf("prompt %q", panel.Cut(p.Prompt))}
	}
	for _, r := range p.Responses {
		answered := slices.ContainsFunc(row.Content.Models, func(m ModelContent) bool { return m.ModelID == r.ModelID && m.Text == r.Text })
		if !answered && !row.noContent {
			return &OtherRunError{run.Ref(), fmt.Sprintf("answer of %q", r.ModelID)}
		}
	}
	if p.SelectedModelID != "" && !slices.Contains(row.Summary.Models, p.SelectedModelID) {
		return &UnknownModelError{run.Ref(), p.SelectedModelID, row.Summary.Models}
	}
	return nil
}

// UpdateLastRunNote replaces the note of the last run that is not withdrawn. Without a run it does nothing.
func (s *Session) UpdateLastRunNote(ctx context.Context, note string) error {
	return s.annotateLast(ctx, func(run *projector.Run) (*events.RunAnnotated, error) {
		return &events.RunAnnotated{Run: run.Ref(), Note: &note}, nil
	})
}

// annotateLast appends a user's annotation of the last run. If another run becomes the last one meanwhile, it decides
// again.
func (s *Session) annotateLast(ctx context.Context, decide func(*projector.Run) (*events.RunAnnotated, error)) error {
	types := []string{events.TypeRunFinished, events.TypeRunAnnotated, events.TypeSessionRewound}
	return s.change(ctx, types, func(now *projector.Outline) ([]events.Payload, error) {
		run := lastRun(now)
		if run == nil {
			return nil, nil
		}
		a, err := decide(run)
		return []events.Payload{a}, err
	})
}

// lastRun returns the newest run of a panel that is not withdrawn, or nil.
func lastRun(now *projector.Outline) *projector.Run {
	for _, r := range slices.Backward(now.Ledger().Runs) {
		if r.Kind == panel.Kind && now.IsLive(r.At) {
			return r
		}
	}
	return nil
}

// SaveInitialMeta creates the session with its metadata before any run. It does not change a session that has
// metadata.
func (s *Session) SaveInitialMeta(ctx context.Context, meta Metadata) error {
	if meta.CreatedAt.IsZero() {
		meta.CreatedAt = s.Store().Now().Local()
	}
	if meta.LastActiveAt.IsZero() {
		meta.LastActiveAt = meta.CreatedAt
	}
	raw, err := json.Marshal(meta)
	if err != nil {
		return &events.InvalidError{Field: "metadata", Reason: err.Error()}
	}
	p := &events.SessionCreated{Kind: events.KindPanel, CreatedAt: events.Timestamp(meta.CreatedAt.Format(time.RFC3339Nano)), Models: meta.Models, Raw: raw}
	return s.change(ctx, []string{events.TypeSessionCreated}, func(now *projector.Outline) ([]events.Payload, error) {
		if now.Ledger().Created != 0 {
			return nil, nil
		}
		return []events.Payload{p}, nil
	})
}

// SetModels sets the models of the session's panel.
func (s *Session) SetModels(ctx context.Context, models []string) error {
	return s.set(ctx, "models", panel.JSON(models), false)
}

// set sets a field of the session. If the field has the value already, set appends nothing unless again is true, for
// a value that is no longer the effective one.
func (s *Session) set(ctx context.Context, name string, value json.RawMessage, again bool) error {
	if err := s.ensure(ctx); err != nil { // otherwise the session would have another kind for ever
		return err
	}
	return s.change(ctx, []string{events.TypeSessionCreated, events.TypeSessionUpdated}, func(now *projector.Outline) ([]events.Payload, error) {
		have, ok := now.Ledger().Fields.Get(name)
		if !again && (string(have) == string(value) || !ok && string(value) == "null") {
			return nil, nil
		}
		return []events.Payload{&events.SessionUpdated{Set: events.Fields{{Name: name, Value: value}}}}, nil
	})
}
