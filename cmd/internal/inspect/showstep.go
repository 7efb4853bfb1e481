package inspect

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
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack"
)

// shownStep is show --run --step -o json.
type shownStep struct {
	Job         string            `json:"job"`
	Run         string            `json:"run"`
	Step        int64             `json:"step"`
	Checkpoints []shownCheckpoint `json:"checkpoints"`           // several where the run went on twice from the one before
	ToolCalls   []events.Raw      `json:"toolCalls,omitempty"`   // that its events tell of
	ToolResults []events.Raw      `json:"toolResults,omitempty"` // that they were answered with
	Events      []shownEvent      `json:"events"`
}

// shownCheckpoint is a checkpoint with what is new in it.
type shownCheckpoint struct {
	checkpointInfo
	Messages    int          `json:"messages"`    // how many it has
	NewMessages []events.Raw `json:"newMessages"` // those that the one before has not
	Before      string       `json:"before,omitempty"`
	Pending     []events.Raw `json:"pendingToolCalls,omitempty"`
	Partial     []events.Raw `json:"partialToolResults,omitempty"`
	DelegateTo  []delegated  `json:"delegateTo,omitempty"`
	Error       *stepError   `json:"error,omitempty"`
	Problem     string       `json:"problem,omitempty"` // why it cannot be read
}

// delegated is what another expert was asked.
type delegated struct {
	Expert   string `json:"expert"`
	ToolCall string `json:"toolCall"`
	Query    string `json:"query"`
}

// stepError is what a run stopped with.
type stepError struct {
	Name    string `json:"name"`
	Message string `json:"message"`
}

// shownEvent is an event of a step. tally log has the whole of it.
type shownEvent struct {
	Offset events.Offset    `json:"offset"`
	Time   events.Timestamp `json:"time,omitempty"`
	Type   string           `json:"type"`

	note string // in a few words what it brings, in text
}

// showStep shows a step of a run.
func (v *viewer) showStep(ctx context.Context, h *perstack.Handle, run treeRun) error {
	s := shownStep{Job: cli.ID(h.ID()), Run: cli.ID(run.ID), Step: *v.step, Checkpoints: []shownCheckpoint{}, Events: []shownEvent{}}
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
	if v.app.Format != cli.Text {
		return cli.WriteJSON(v.app.Out, v.app.Format, s)
	}
	v.print.step(s)
	return v.print.err
}

// readCheckpoints reads those of the step, each with what the one before it has not.
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

// read reads a checkpoint. One that is not what it should be says why.
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

// knownBefore counts the messages that the checkpoint before has too: of the last one of the
// run and that which it says it goes on from, or if there is neither, of the newest of each
// other run, the one that shares most.
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

// candidatesBefore are the checkpoints that one may go on from. Those of a run that was
// delegated to name as their parent the one that it was delegated from, all of them, so
// that the run's own count, too.
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

// lastStep are those of the largest step: several where the run went on twice.
func lastStep(list []perstack.CheckpointInfo) []perstack.CheckpointInfo {
	i := len(list)
	for i > 0 && list[i-1].StepNumber == list[len(list)-1].StepNumber {
		i--
	}
	return list[i:]
}

// maxOthers bounds how many runs are looked at for what a first step went on from.
const maxOthers = 16

// shared is how many messages two lists begin with alike.
func shared(a, b []events.Raw) int {
	n := 0
	for n < len(a) && n < len(b) && bytes.Equal(a[n], b[n]) {
		n++
	}
	return n
}

// maxAlike is how many events of one type may follow each other and be read: more are
// pieces of a text.
const maxAlike = 8

// readEvents lists the events of the step by their time, with what they bring.
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

// alike is how many events at the beginning of a list are of one type.
func alike(list []shownEvent) int {
	n := 1
	for n < len(list) && list[n].Type == list[0].Type {
		n++
	}
	return n
}

// take notes what an event brings: calls of tools and what they answered, and in a few
// words which, or why something went wrong, or a text.
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

// itemsOf are the calls or results in a member, which is a list of them or one.
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

// merged adds those of more that list has not: several events tell of one call.
func merged(list, more []events.Raw) []events.Raw {
	for _, item := range more {
		if !slices.ContainsFunc(list, func(had events.Raw) bool { return bytes.Equal(had, item) }) {
			list = append(list, item)
		}
	}
	return list
}

// step prints a step.
func (p *printer) step(s shownStep) {
	p.parts([]render.Styled{{Text: "step " + strconv.FormatInt(s.Step, 10), Paint: p.style.Bold}, {Text: "run " + s.Run}, {Text: "job " + s.Job}}, " · ")
	for _, c := range s.Checkpoints {
		p.checkpoint(c)
	}
	if len(s.Checkpoints) == 0 {
		p.field("status", "no checkpoint was saved after it")
		p.items("calls", s.ToolCalls)
		p.items("results", s.ToolResults)
	}
	if len(s.Events) > 0 {
		p.printf("\n%s\n", p.style.Bold(plain.Count(len(s.Events), "event")))
		p.events(s.Events)
	}
}

// checkpoint prints a checkpoint and what is new in it.
func (p *printer) checkpoint(c shownCheckpoint) {
	p.printf("\n")
	p.parts([]render.Styled{{Text: "checkpoint " + cli.ID(c.ID), Paint: p.style.Bold}, {Text: c.Offset.String(), Paint: p.style.Dim},
		{Text: cmp.Or(string(c.Status), "-"), Paint: func(text string) string { return paintReached(p.style, c.Status, text) }}}, " · ")
	if c.Problem != "" {
		p.field("problem", c.Problem)
		return
	}
	for _, d := range c.DelegateTo {
		p.field("delegates", fmt.Sprintf("to %s by call %s: %s", d.Expert, d.ToolCall, d.Query))
	}
	if c.Error != nil {
		p.field("error", c.Error.Name+": "+c.Error.Message)
	}
	p.field("messages", fmt.Sprintf("%d, %d of them new", c.Messages, len(c.NewMessages)))
	for i, raw := range c.NewMessages {
		p.printf("\n%s\n", p.style.Dim(fmt.Sprintf("#%d", c.Messages-len(c.NewMessages)+i+1)))
		p.said(raw)
	}
	p.items("pending calls", c.Pending)
	p.items("results so far", c.Partial)
}

// items prints calls and results that stand in no message.
func (p *printer) items(what string, list []events.Raw) {
	if len(list) == 0 || p.tools == toolsNone {
		return
	}
	p.printf("\n%s\n", p.style.Dim(what))
	for _, raw := range list {
		p.said(raw)
	}
}

// said prints what a message, a call or a result says.
func (p *printer) said(raw events.Raw) {
	if p.calls[""] == nil {
		p.calls[""] = new(render.Calls)
	}
	for _, line := range p.calls[""].Turn(projector.Turn{Raw: raw}) {
		p.line(line)
	}
}

// events prints events on a line each; those of one type that follow each other, such as
// pieces of a text, on one.
func (p *printer) events(list []shownEvent) {
	for len(list) > 0 {
		n := alike(list)
		text := list[0].Type
		if n > 1 {
			text += fmt.Sprintf(" ×%d", n)
		} else if list[0].note != "" {
			text += "  " + list[0].note
		}
		line := fmt.Sprintf("  %v  %s  %s", list[0].Offset, clock(list[0].Time), text)
		p.printf("%s\n", render.Cut(line, render.Excerpt(p.width)))
		list = list[n:]
	}
}

// msTime is a time of the original's, nothing if it has no spelling.
func msTime(ms int64) events.Timestamp {
	at := perstack.Time(ms)
	if at.IsZero() {
		return ""
	}
	return events.TimestampOf(at)
}

// clock is the time of day of an event, to the millisecond.
func clock(t events.Timestamp) string {
	at, ok := t.Time()
	if !ok {
		return "-"
	}
	return at.UTC().Format("15:04:05.000")
}
