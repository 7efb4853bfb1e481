package show

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// ToolMode is how much of tool calls and their results show prints.
type ToolMode string

// The modes.
const (
	ToolsNone  ToolMode = "none"
	ToolsBrief ToolMode = "brief" // one line per call or result
	ToolsFull  ToolMode = "full"
)

// Gone prints turns that are not in effect.
func (p *Page) Gone(list []projector.TurnAt) {
	if len(list) == 0 {
		return
	}
	p.Printf("\n%s\n", p.Style.Bold("not in effect, "+plain.Count(len(list), "turn")))
	for _, t := range list {
		p.Turn(t.Thread, t.Thread, t.Turn)
	}
}

// A Page prints a session as text. Lines fit its width. After the first error it prints nothing more.
type Page struct {
	Width int
	Style cli.Style
	Tools ToolMode
	Folds bool  // thoughts, and instructions from the program to the model, take one line each
	Err   error // the first error of a write

	out   io.Writer
	calls map[string]*render.Calls // by thread: a result has only the id of its call, not the name of the tool
}

// NewPage returns an empty page for the output of a command.
func NewPage(v *View) *Page {
	return &Page{out: v.App.Out, Width: cli.Width(v.App.Out), Style: v.App.Style(), Tools: v.Tools, calls: make(map[string]*render.Calls)}
}

// Printf prints text as fmt.Printf does.
func (p *Page) Printf(format string, args ...any) {
	if p.Err == nil {
		_, p.Err = fmt.Fprintf(p.out, format, args...)
	}
}

// Parts prints texts one after the other, with a separator between them. Lines are wrapped between texts.
func (p *Page) Parts(list []render.Styled, between string) {
	p.Printf("%s\n", strings.Join(render.Flow(list, between, p.Width), "\n"))
}

// Header prints the id, kind, title and status of a session, its origin if it is a fork, and the goal of a simulation.
func (p *Page) Header(s *projector.Session) {
	head := []render.Styled{{Text: cli.ID(s.Subject.ID), Paint: p.Style.Bold}}
	about := []string{s.Ledger.Kind, s.Ledger.Text("title"), s.Ledger.Text("status")}
	if s.Ledger.Kind == events.KindTranscript {
		about = agentHead(s)
	}
	for _, part := range about {
		if part != "" {
			head = append(head, render.Styled{Text: part})
		}
	}
	p.Parts(head, " · ")
	if f := s.Ledger.Fork; f != nil {
		p.Parts([]render.Styled{{Text: fmt.Sprintf("fork of %s at %v", f.Session, f.Offset)}}, "")
	}
	if raw, ok := s.Ledger.Fields.Get("trajectory"); ok {
		goal, persona := render.Goal(raw)
		p.Field("goal", goal)
		p.Field("persona", persona)
	}
}

// Field prints a label and a text. If the text is empty, Field prints nothing.
func (p *Page) Field(label, text string) {
	if text == "" {
		return
	}
	p.Printf("%s\n", strings.Join(render.Field(label, text, p.Width, p.Style.Dim), "\n"))
}

// Turn prints the next turn of a thread under a label. Turns of one thread must come in order.
func (p *Page) Turn(label, thread string, t projector.Turn) {
	marks := ""
	if t.Pinned {
		marks = "  pinned"
	}
	if t.Timestamp != "" {
		marks += "  " + string(t.Timestamp)
	}
	p.Printf("\n%s\n", p.Style.Dim(render.Cut(fmt.Sprintf("%s  %v%s", label, t.Offset, marks), p.Width)))
	if p.calls[thread] == nil {
		p.calls[thread] = new(render.Calls)
	}
	for _, line := range p.calls[thread].Turn(t) {
		p.line(line)
	}
}

// line prints a message of a turn.
func (p *Page) line(line render.Line) {
	const indent = 13
	width := render.Beyond(indent, p.Width)
	texts := []string{""}
	switch tool := line.Role == "call" || line.Role == "result"; {
	case tool && p.Tools == ToolsNone:
		return
	case tool && p.Tools == ToolsBrief:
		texts[0] = render.Cut(unwrapped(line.Text), render.Excerpt(width))
	case p.Folds && folds(line):
		texts[0] = render.Cut(line.Text, render.Excerpt(width))
	case tool:
		texts = fullTool(line.Text, width)
	default:
		texts = render.Wrap(line.Text, width)
	}
	role := fmt.Sprintf("%-*s", indent-2, render.Cut(line.Role, indent-3))
	for i, text := range texts {
		if i > 0 {
			role = strings.Repeat(" ", indent-2)
		}
		p.Printf("%s\n", strings.TrimRight("  "+p.role(line.Role, role)+text, " "))
	}
}

func (p *Page) role(role, padded string) string {
	switch {
	case strings.TrimSpace(padded) == "":
		return padded
	case role == "user":
		return p.Style.Cyan(padded)
	case role == "assistant":
		return p.Style.Green(padded)
	}
	return p.Style.Dim(padded)
}

// fullTool returns the lines of a tool call or a result, with its JSON indented.
func fullTool(text string, width int) []string {
	name, rest, ok := strings.Cut(text, " ")
	if rawjson.Check([]byte(text)) == nil {
		name, rest, ok = "", text, true
	}
	if !ok || rawjson.Check([]byte(rest)) != nil {
		return render.Wrap(text, width)
	}
	lines := render.Wrap(string(rawjson.AppendIndent(nil, []byte(rest), "  ")), width)
	if name == "" {
		return lines
	}
	if len(lines) == 1 {
		return render.Wrap(name+" "+lines[0], width)
	}
	return append(render.Wrap(name, width), lines...)
}

// Table prints an empty line and a table.
func (p *Page) Table(t render.Table) {
	paint := t.Paint
	t.Paint = func(row, column int, cell string) string {
		if row < 0 {
			return p.Style.Bold(cell)
		}
		return paint(row, column, cell)
	}
	p.Printf("\n%s\n", strings.Join(t.Lines(p.Width), "\n"))
}

// Said prints a message, a tool call or a result in the form of the session's producer.
func (p *Page) Said(raw events.Raw) {
	if p.calls[""] == nil {
		p.calls[""] = new(render.Calls)
	}
	for _, line := range p.calls[""].Turn(projector.Turn{Raw: raw}) {
		p.line(line)
	}
}

// agentHead returns the parts of the header of an agent's session after its id.
func agentHead(s *projector.Session) (list []string) {
	settings, _ := s.Ledger.Fields.Get("settings")
	m, _ := rawjson.Object(settings) // settings in another form name no agent
	models := ""
	if raw, ok := s.Ledger.Fields.Get("models"); ok {
		names, _ := rawjson.Array(raw)
		for i, name := range names {
			text, _ := rawjson.String(name)
			models += map[bool]string{true: ", "}[i > 0] + text
		}
	}
	agent := m.Text("agent")
	if version := m.Text("version"); agent != "" && version != "" {
		agent += " " + version
	}
	return []string{cmp.Or(agent, s.Ledger.Kind), s.Ledger.Text("project"), models, s.Ledger.Text("title"), s.Ledger.Text("status")}
}

// folds reports whether a message of an agent's session takes one line, as on the agent's own screen. Thoughts of the
// model do, and instructions from the program to the model.
func folds(line render.Line) bool {
	return line.Thought || slices.Contains([]string{"meta", "system", "developer", "summary"}, line.Role)
}

// envelope matches the lines that Codex writes before the output of a command.
var envelope = regexp.MustCompile(`(?:Chunk ID: \S+\n)?Wall time: [0-9.]+ seconds\n(?:Process exited with code (\d+)\n)?(?:Original token count: \d+\n)?Output:\n`)

// unwrapped returns a result without its envelope. An exit code other than 0 stays.
func unwrapped(text string) string {
	at := envelope.FindStringSubmatchIndex(text)
	if at == nil {
		return text
	}
	code := ""
	if at[2] >= 0 && text[at[2]:at[3]] != "0" {
		code = "exit code " + text[at[2]:at[3]] + ": "
	}
	return text[:at[0]] + code + text[at[1]:]
}
