package job

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/show"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/stores/perstack"
)

// shownStep is the document of show --run --step -o json.
type shownStep struct {
	Job         string            `json:"job"`
	Run         string            `json:"run"`
	Step        int64             `json:"step"`
	Checkpoints []shownCheckpoint `json:"checkpoints"`           // several if the run continued twice from the checkpoint before
	ToolCalls   []events.Raw      `json:"toolCalls,omitempty"`   // from its events
	ToolResults []events.Raw      `json:"toolResults,omitempty"` // from its events
	Events      []shownEvent      `json:"events"`
}

// shownCheckpoint is a checkpoint with its new messages.
type shownCheckpoint struct {
	checkpointInfo
	Messages    int          `json:"messages"`    // number of messages
	NewMessages []events.Raw `json:"newMessages"` // messages that the checkpoint before does not have
	Before      string       `json:"before,omitempty"`
	Pending     []events.Raw `json:"pendingToolCalls,omitempty"`
	Partial     []events.Raw `json:"partialToolResults,omitempty"`
	DelegateTo  []delegated  `json:"delegateTo,omitempty"`
	Error       *stepError   `json:"error,omitempty"`
	Problem     string       `json:"problem,omitempty"` // why the checkpoint cannot be read
}

// delegated is a query to another expert.
type delegated struct {
	Expert   string `json:"expert"`
	ToolCall string `json:"toolCall"`
	Query    string `json:"query"`
}

// stepError is the error that stopped a run.
type stepError struct {
	Name    string `json:"name"`
	Message string `json:"message"`
}

// shownEvent is an event of a step. tally log prints whole events.
type shownEvent struct {
	Offset events.Offset    `json:"offset"`
	Time   events.Timestamp `json:"time,omitempty"`
	Type   string           `json:"type"`

	note string // summary for text
}

// showStep prints a step of a run.
func showStep(ctx context.Context, v *show.View, h *perstack.Handle, run show.TreeRun) error {
	s := shownStep{Job: cli.ID(h.ID()), Run: cli.ID(run.ID), Step: *v.Step, Checkpoints: []shownCheckpoint{}, Events: []shownEvent{}}
	if err := s.readCheckpoints(ctx, h, run.ID); err != nil {
		return err
	}
	if err := s.readEvents(ctx, h, run.ID); err != nil {
		return err
	}
	if len(s.Checkpoints)+len(s.Events) == 0 {
		return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("run %s has no step %d", s.Run, s.Step),
			Hint: fmt.Sprintf("tally show job/%s --run %s lists its steps.", s.Job, s.Run)}
	}
	if v.App.Format != cli.Text {
		return cli.WriteJSON(v.App.Out, v.App.Format, s)
	}
	p := page{show.NewPage(v)}
	p.step(s)
	return p.Err
}

// readCheckpoints reads the checkpoints of the step, each with its new messages.
func (s *shownStep) readCheckpoints(ctx context.Context, h *perstack.Handle, run string) error {
	list, err := h.CheckpointList(ctx)
	if err != nil {
		return err
	}
	for _, info := range list {
		if info.RunID != run || info.StepNumber != s.Step {
			continue
		}
		c := shownCheckpoint{checkpointInfo: infoOf(info), NewMessages: []events.Raw{}}
		if err := c.read(ctx, h, list, info); err != nil {
			return err
		}
		s.Checkpoints = append(s.Checkpoints, c)
	}
	return nil
}

// read reads a checkpoint. If it is invalid, read sets Problem.
func (c *shownCheckpoint) read(ctx context.Context, h *perstack.Handle, list []perstack.CheckpointInfo, info perstack.CheckpointInfo) error {
	whole, err := h.Checkpoint(ctx, info.ID)
	if _, invalid := errors.AsType[*events.InvalidError](err); invalid {
		c.Problem = err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	known, err := c.knownBefore(ctx, h, list, info, whole)
	if err != nil {
		return err
	}
	c.Messages, c.NewMessages = len(whole.Messages), append(c.NewMessages, whole.Messages[known:]...)
	c.Pending, c.Partial = whole.PendingToolCalls, whole.PartialToolResults
	for _, d := range whole.DelegateTo {
		c.DelegateTo = append(c.DelegateTo, delegated{d.Expert.Key, d.ToolCallID, d.Query})
	}
	if e := whole.Error; e != nil {
		c.Error = &stepError{e.Name, e.Message}
	}
	return nil
}

// knownBefore returns how many messages the checkpoint shares with the one before it, and sets Before. Of the possible
// predecessors it takes the one that shares most messages.
func (c *shownCheckpoint) knownBefore(ctx context.Context, h *perstack.Handle, list []perstack.CheckpointInfo, info perstack.CheckpointInfo, whole perstack.Checkpoint) (int, error) {
	most := 0
	for _, before := range candidatesBefore(list, info) {
		b, err := h.Checkpoint(ctx, before.ID)
		if _, invalid := errors.AsType[*events.InvalidError](err); invalid {
			continue
		}
		if err != nil {
			return 0, err
		}
		if n := shared(b.Messages, whole.Messages); n > most {
			most, c.Before = n, before.ID
		}
	}
	return most, nil
}

// candidatesBefore returns the possible predecessors of a checkpoint: its parent and the last checkpoints of its own run.
// In a run that was delegated to, every checkpoint names the delegating checkpoint as its parent, so the parent alone is
// not enough. Without either, the newest checkpoints of other runs are returned.
func candidatesBefore(list []perstack.CheckpointInfo, info perstack.CheckpointInfo) []perstack.CheckpointInfo {
	var own, parents []perstack.CheckpointInfo
	newest := make(map[string]perstack.CheckpointInfo)
	for _, c := range list { // by step
		switch {
		case c.ID == info.ID:
		case c.ID == info.Parent:
			parents = append(parents, c)
		case c.RunID == info.RunID && c.StepNumber < info.StepNumber:
			own = append(own, c)
		case c.RunID != info.RunID && c.StepNumber <= info.StepNumber && c.Offset < info.Offset:
			newest[c.RunID] = c
		}
	}
	if len(own)+len(parents) > 0 {
		return append(parents, lastStep(own)...)
	}
	others := slices.SortedFunc(maps.Values(newest), func(a, b perstack.CheckpointInfo) int { return cmp.Compare(b.Offset, a.Offset) })
	return others[:min(len(others), maxOthers)]
}

// lastStep returns the checkpoints of the highest step. If the run continued twice from one checkpoint, there are several.
func lastStep(list []perstack.CheckpointInfo) []perstack.CheckpointInfo {
	i := len(list)
	for i > 0 && list[i-1].StepNumber == list[len(list)-1].StepNumber {
		i--
	}
	return list[i:]
}

// maxOthers bounds the other runs among which the predecessor of a first step is searched.
const maxOthers = 16

// shared returns the length of the common prefix of two lists of messages.
func shared(a, b []events.Raw) int {
	n := 0
	for n < len(a) && n < len(b) && bytes.Equal(a[n], b[n]) {
		n++
	}
	return n
}

// maxAlike bounds the events of one type in a row that are read. Longer rows are pieces of a streamed text.
const maxAlike = 8

// readEvents reads the events of the step in the order of their times, with the tool calls and results in them.
func (s *shownStep) readEvents(ctx context.Context, h *perstack.Handle, run string) error {
	rows, err := h.EventRows(ctx, run)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.StepNumber == s.Step {
			s.Events = append(s.Events, shownEvent{Offset: row.Offset, Time: msTime(row.Timestamp), Type: row.Type})
		}
	}
	for list := s.Events; len(list) > 0; {
		n := alike(list)
		for i := range list[:n] {
			if n > maxAlike {
				break
			}
			raw, err := h.EventBytes(ctx, list[i].Offset)
			if err != nil {
				return err
			}
			s.take(&list[i], raw)
		}
		list = list[n:]
	}
	return nil
}

// alike returns how many events at the beginning of a list have the same type.
func alike(list []shownEvent) int {
	n := 1
	for n < len(list) && list[n].Type == list[0].Type {
		n++
	}
	return n
}

// take adds the tool calls and results of an event to the step. The note of the event becomes their names, else the
// message of an error, a reason or a text.
func (s *shownStep) take(e *shownEvent, raw events.Raw) {
	m, err := rawjson.Object(raw)
	if err != nil {
		return
	}
	calls, results := append(itemsOf(m, "toolCalls"), itemsOf(m, "toolCall")...), append(itemsOf(m, "toolResults"), itemsOf(m, "toolResult")...)
	s.ToolCalls, s.ToolResults = merged(s.ToolCalls, calls), merged(s.ToolResults, results)
	var names []string
	for _, item := range slices.Concat(calls, results) {
		tool, _ := rawjson.Object(item)
		names = append(names, tool.Text("toolName"))
	}
	e.note = cmp.Or(strings.Join(names, ", "), m.Object("error").Text("message"), m.Text("reason"), m.Text("text"))
}

// itemsOf returns the calls or results in a member, which holds a list or a single one.
func itemsOf(m rawjson.Members, name string) (list []events.Raw) {
	value, ok := m.Get(name)
	elems, err := rawjson.Array(value)
	for _, e := range elems {
		list = append(list, events.Raw(e))
	}
	if ok && err != nil {
		list = append(list, events.Raw(value))
	}
	return slices.DeleteFunc(list, func(item events.Raw) bool { tool, _ := rawjson.Object(item); return tool.Text("toolName") == "" })
}

// merged adds items of more that list does not have yet. Several events can have the same call.
func merged(list, more []events.Raw) []events.Raw {
	for _, item := range more {
		if !slices.ContainsFunc(list, func(had events.Raw) bool { return bytes.Equal(had, item) }) {
			list = append(list, item)
		}
	}
	return list
}

// step prints a step.
func (p page) step(s shownStep) {
	p.Parts([]render.Styled{{Text: "step " + strconv.FormatInt(s.Step, 10), Paint: p.Style.Bold}, {Text: "run " + s.Run}, {Text: "job " + s.Job}}, " · ")
	for _, c := range s.Checkpoints {
		p.checkpoint(c)
	}
	if len(s.Checkpoints) == 0 {
		p.Field("status", "no checkpoint was saved after it")
		p.items("calls", s.ToolCalls)
		p.items("results", s.ToolResults)
	}
	if len(s.Events) > 0 {
		p.Printf("\n%s\n", p.Style.Bold(plain.Count(len(s.Events), "event")))
		p.events(s.Events)
	}
}

// checkpoint prints a checkpoint and its new messages.
func (p page) checkpoint(c shownCheckpoint) {
	p.Printf("\n")
	p.Parts([]render.Styled{{Text: "checkpoint " + cli.ID(c.ID), Paint: p.Style.Bold}, {Text: c.Offset.String(), Paint: p.Style.Dim},
		{Text: cmp.Or(string(c.Status), "-"), Paint: func(text string) string { return paintReached(p.Style, c.Status, text) }}}, " · ")
	if c.Problem != "" {
		p.Field("problem", c.Problem)
		return
	}
	for _, d := range c.DelegateTo {
		p.Field("delegates", fmt.Sprintf("to %s by call %s: %s", d.Expert, d.ToolCall, d.Query))
	}
	if c.Error != nil {
		p.Field("error", c.Error.Name+": "+c.Error.Message)
	}
	p.Field("messages", fmt.Sprintf("%d, %d of them new", c.Messages, len(c.NewMessages)))
	for i, raw := range c.NewMessages {
		p.Printf("\n%s\n", p.Style.Dim(fmt.Sprintf("#%d", c.Messages-len(c.NewMessages)+i+1)))
		p.Said(raw)
	}
	p.items("pending calls", c.Pending)
	p.items("results so far", c.Partial)
}

// items prints calls and results that are not part of a message.
func (p page) items(what string, list []events.Raw) {
	if len(list) == 0 || p.Tools == show.ToolsNone {
		return
	}
	p.Printf("\n%s\n", p.Style.Dim(what))
	for _, raw := range list {
		p.Said(raw)
	}
}

// events prints a line for each event. Consecutive events of one type, such as pieces of a text, share a line.
func (p page) events(list []shownEvent) {
	for len(list) > 0 {
		n := alike(list)
		text := list[0].Type
		if n > 1 {
			text += fmt.Sprintf(" ×%d", n)
		} else if list[0].note != "" {
			text += "  " + list[0].note
		}
		line := fmt.Sprintf("  %v  %s  %s", list[0].Offset, clock(list[0].Time), text)
		p.Printf("%s\n", render.Cut(line, render.Excerpt(p.Width)))
		list = list[n:]
	}
}

// msTime converts a time in milliseconds. It returns "" for a time that a timestamp cannot express.
func msTime(ms int64) events.Timestamp {
	at := perstack.Time(ms)
	if at.IsZero() {
		return ""
	}
	return events.TimestampOf(at)
}

// clock formats the time of day of an event, to the millisecond.
func clock(t events.Timestamp) string {
	at, ok := t.Time()
	if !ok {
		return "-"
	}
	return at.UTC().Format("15:04:05.000")
}
