package errata

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata/internal/panel"
)

// Checkpoint is an unfinished run that can be resumed. encoding/json writes it in the form of the original's
// checkpoint.json.
type Checkpoint struct {
	Prompt     string             `json:"prompt"`
	Timestamp  time.Time          `json:"timestamp"`
	AdapterIDs []string           `json:"adapter_ids"`
	Responses  []ResponseSnapshot `json:"responses"` // in the order of AdapterIDs
	Verbose    bool               `json:"verbose"`

	Run string        `json:"-"` // id of the run, which a resume continues
	At  events.Offset `json:"-"` // offset of its newest part
}

// ResponseSnapshot is the state of one model's response.
type ResponseSnapshot struct {
	ModelID         string         `json:"model_id"`
	Text            string         `json:"text,omitempty"`
	LatencyMS       int64          `json:"latency_ms"`
	InputTokens     int64          `json:"input_tokens"`
	OutputTokens    int64          `json:"output_tokens"`
	ReasoningTokens int64          `json:"reasoning_tokens,omitempty"`
	CostUSD         float64        `json:"cost_usd"`
	ProposedWrites  []FileWrite    `json:"proposed_writes,omitempty"`
	ToolCalls       map[string]int `json:"tool_calls,omitempty"`
	Error           string         `json:"error,omitempty"`
	Interrupted     bool           `json:"interrupted"`
	Completed       bool           `json:"completed"`

	StopReason string `json:"-"` // stored in the log, but not in the original's file
	Steps      int    `json:"-"`
}

// storedSnapshot is a ResponseSnapshot in the form of the event.
type storedSnapshot struct {
	ResponseSnapshot
	StopReason string `json:"stop_reason,omitempty"`
	Steps      int    `json:"steps,omitempty"`
}

// Snapshot returns the response in the form of a checkpoint. It is completed if the model finished by itself: without
// an error, an interruption or a time limit.
func (r Response) Snapshot() ResponseSnapshot {
	return ResponseSnapshot{ModelID: r.ModelID, Text: r.Text, LatencyMS: r.LatencyMS, InputTokens: r.InputTokens, OutputTokens: r.OutputTokens,
		ReasoningTokens: r.ReasoningTokens, CostUSD: r.CostUSD, ProposedWrites: r.ProposedWrites, ToolCalls: r.ToolCalls, Error: r.Error,
		Interrupted: r.Interrupted, Completed: r.Completed(), StopReason: r.StopReason, Steps: r.Steps}
}

// Response returns the response of a snapshot.
func (r ResponseSnapshot) Response() Response {
	return Response{ModelID: r.ModelID, Text: r.Text, LatencyMS: r.LatencyMS, InputTokens: r.InputTokens, OutputTokens: r.OutputTokens,
		ReasoningTokens: r.ReasoningTokens, CostUSD: r.CostUSD, ProposedWrites: r.ProposedWrites, ToolCalls: r.ToolCalls, Steps: r.Steps,
		Error: r.Error, Interrupted: r.Interrupted, StopReason: r.StopReason}
}

// Remaining returns the models that a resume runs again, in order: those without a completed response.
func (c *Checkpoint) Remaining() []string {
	var ids []string
	for _, id := range c.AdapterIDs {
		if !slices.ContainsFunc(c.Responses, func(r ResponseSnapshot) bool { return r.ModelID == id && r.Completed }) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Completed returns the responses that a resume uses again.
func (c *Checkpoint) Completed() []Response {
	var list []Response
	for _, r := range c.Responses {
		if r.Completed {
			list = append(list, r.Response())
		}
	}
	return list
}

// Merge returns the completed responses and the fresh ones of a resume, in the order of the panel.
func (c *Checkpoint) Merge(fresh []Response) []Response {
	var list []Response
	for _, id := range c.AdapterIDs {
		for _, r := range append(slices.Clone(fresh), c.Completed()...) {
			if r.ModelID == id {
				list = append(list, r)
				break
			}
		}
	}
	return list
}

// CheckpointSaver saves the responses of a running panel, each by itself, so that saved responses can be resumed
// after any failure. It is safe for concurrent use.
type CheckpointSaver struct {
	s    *Session
	mu   sync.Mutex // held during a save, so that parts are stored in the order of the calls
	head checkpointHead
}

// checkpointHead has the members of every part of a checkpoint.
type checkpointHead struct {
	Run        string   `json:"run"`
	Prompt     string   `json:"-"`
	AdapterIDs []string `json:"adapterIds"`
	Verbose    bool     `json:"verbose,omitempty"`
}

// SaveCheckpoint begins the checkpoint of a run; the run "" is a new one. Nothing is written before the first Update.
func (s *Session) SaveCheckpoint(run, prompt string, adapterIDs []string, verbose bool) *CheckpointSaver {
	if run == "" {
		run = NewID(RunIDPrefix)
	}
	return &CheckpointSaver{s: s, head: checkpointHead{run, prompt, slices.Clone(adapterIDs), verbose}}
}

// Resume continues a loaded checkpoint.
func (s *Session) Resume(c *Checkpoint) *CheckpointSaver {
	return s.SaveCheckpoint(c.Run, c.Prompt, c.AdapterIDs, c.Verbose)
}

// Run returns the id of the run.
func (c *CheckpointSaver) Run() string { return c.head.Run }

// Update saves the current response of a model as not completed.
func (c *CheckpointSaver) Update(ctx context.Context, r Response) error {
	snap := r.Snapshot()
	snap.Completed = false
	return c.save(ctx, snap)
}

// Finish saves the final response of a model. It is completed only if the model finished by itself.
func (c *CheckpointSaver) Finish(ctx context.Context, r Response) error {
	return c.save(ctx, r.Snapshot())
}

func (c *CheckpointSaver) save(ctx context.Context, snap ResponseSnapshot) error {
	i := slices.Index(c.head.AdapterIDs, snap.ModelID)
	if i < 0 {
		return &UnknownModelError{events.RunRef{Kind: panel.Kind, ID: c.head.Run}, snap.ModelID, c.head.AdapterIDs}
	}
	if err := snap.Response().check(i); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.s.ensure(ctx); err != nil {
		return err
	}
	last, err := c.s.lastOffset(ctx)
	if err != nil {
		return err
	}
	_, err = c.s.Append(ctx, log.Any, &events.CheckpointSaved{ID: c.head.Run, Kind: events.CheckpointResume, At: last,
		Run: &events.RunRef{Kind: panel.Kind, ID: c.head.Run}, Prompt: c.head.Prompt, Raw: panel.JSON(c.head),
		Responses: panel.JSON([]storedSnapshot{{snap, snap.StopReason, snap.Steps}})})
	return err
}

// End ends the run. If no response is interrupted, it clears the checkpoint; else it saves the final response of
// every model.
func (c *CheckpointSaver) End(ctx context.Context, responses []Response) error {
	if !slices.ContainsFunc(responses, func(r Response) bool { return r.Interrupted }) {
		return c.s.ClearCheckpoint(ctx)
	}
	for _, r := range responses {
		if err := c.Finish(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// CheckpointError reports that a checkpoint exists and cannot be read.
type CheckpointError struct {
	Offset events.Offset
	Err    error
}

func (e *CheckpointError) Error() string {
	return fmt.Sprintf("the checkpoint at %v cannot be read: %v", e.Offset, e.Err)
}

func (e *CheckpointError) Unwrap() error { return e.Err }

// LoadCheckpoint returns the newest unfinished run, or nil. If it cannot be read, the error is a *CheckpointError.
func (s *Session) LoadCheckpoint(ctx context.Context) (*Checkpoint, error) {
	now, err := s.peek(ctx)
	if err != nil {
		return nil, err
	}
	c := panel.Unfinished(now.Ledger())
	if c == nil {
		return nil, nil
	}
	return s.assemble(ctx, c)
}

// assemble combines the parts of a checkpoint: the newest part of each model that was saved since the checkpoint was
// cleared last.
func (s *Session) assemble(ctx context.Context, c *projector.Checkpoint) (*Checkpoint, error) {
	cp := &Checkpoint{Run: c.ID, At: panel.Newest(c)}
	parts, lost := make(map[string]ResponseSnapshot), slices.Clone(c.Saved)
	for rec, err := range s.Store().Log.Read(ctx, events.Range{Subject: s.Subject(), After: c.Saved[0] - 1, Upto: panel.Newest(c)}) {
		saved := slices.Contains(c.Saved, rec.Offset)
		lost = slices.DeleteFunc(lost, func(at events.Offset) bool { return at == rec.Offset })
		if err == nil && saved {
			rec, err = projector.Resolve(ctx, s.Store().Log, rec, s.Store().MaxValue())
		}
		damage, damaged := errors.AsType[*events.DamageError](err)
		switch {
		case damaged && slices.Contains(c.Saved, damage.Offset):
			return nil, &CheckpointError{damage.Offset, err}
		case err != nil:
			return nil, err
		}
		if p, ok := projector.Decode(rec).Payload.(*events.CheckpointCleared); ok && p.Kind == events.CheckpointResume && (p.ID == "" || p.ID == c.ID) {
			clear(parts)
		}
		if !saved {
			continue
		}
		if err := cp.add(rec, parts); err != nil {
			return nil, &CheckpointError{rec.Offset, err}
		}
	}
	if len(lost) > 0 { // a read after an offset may not report a lost record
		return nil, &CheckpointError{lost[0], &events.DamageError{Offset: lost[0]}}
	}
	for _, id := range cp.AdapterIDs {
		if part, ok := parts[id]; ok {
			cp.Responses = append(cp.Responses, part)
		}
	}
	return cp, nil
}

// add decodes one part. An imported checkpoint has one part, with the file in raw.
func (c *Checkpoint) add(rec events.Record, parts map[string]ResponseSnapshot) error {
	p, err := events.DecodeAs[events.CheckpointSaved](rec.Event)
	if err != nil {
		return err
	}
	if receipt := rec.Erased(); receipt != "" {
		return &events.ErasedError{Offset: rec.Offset, Receipt: receipt}
	}
	if p.Responses == nil {
		if p.Raw == nil {
			return errors.New("the checkpoint has neither responses nor a file")
		}
		file := Checkpoint{Run: c.Run, At: c.At}
		if err := json.Unmarshal(p.Raw, &file); err != nil {
			return err
		}
		*c = file
		for _, r := range file.Responses {
			parts[r.ModelID] = r
		}
		c.Responses = nil
		return nil
	}
	var responses []storedSnapshot
	if err := json.Unmarshal(p.Responses, &responses); err != nil {
		return err
	}
	var head checkpointHead
	if p.Raw != nil {
		if err := json.Unmarshal(p.Raw, &head); err != nil {
			return err
		}
	}
	c.Prompt, c.Timestamp, c.Verbose, c.AdapterIDs = p.Prompt, cmp.Or(rec.Time, rec.Recorded), head.Verbose, head.AdapterIDs
	for _, r := range responses {
		r.ResponseSnapshot.StopReason, r.ResponseSnapshot.Steps = r.StopReason, r.Steps
		parts[r.ModelID] = r.ResponseSnapshot
		if head.AdapterIDs == nil && !slices.Contains(c.AdapterIDs, r.ModelID) {
			c.AdapterIDs = append(c.AdapterIDs, r.ModelID)
		}
	}
	return nil
}

// ClearCheckpoint records that no run can be resumed. Without a checkpoint it does nothing.
func (s *Session) ClearCheckpoint(ctx context.Context) error {
	types := []string{events.TypeCheckpointSaved, events.TypeCheckpointCleared}
	return s.change(ctx, types, func(now *projector.Outline) ([]events.Payload, error) {
		if panel.Unfinished(now.Ledger()) == nil {
			return nil, nil
		}
		return []events.Payload{&events.CheckpointCleared{Kind: events.CheckpointResume, Reason: "finished"}}, nil
	})
}
