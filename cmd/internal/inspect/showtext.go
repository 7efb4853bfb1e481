package inspect

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// toolMode says how much of the calls of tools is shown.
type toolMode string

const (
	toolsNone  toolMode = "none"
	toolsBrief toolMode = "brief" // a line for each
	toolsFull  toolMode = "full"
)

func (v *viewer) writeText(s *projector.Session, gone []projector.TurnAt) error {
	p := newPrinter(v)
	p.header(s)
	p.folds = s.Ledger.Kind == events.KindTranscript && v.tools != toolsFull
	aside := v.aside(s)
	for _, name := range v.names(s) {
		if slices.Contains(aside, name) {
			continue
		}
		turns := s.Threads.Turns(name)
		before := v.before[name]
		p.printf("\n%s\n", p.style.Bold(render.Cut(name+", "+plain.Count(before+len(turns), "turn"), p.width)))
		for i, t := range turns {
			p.turn(fmt.Sprintf("#%d", before+i+1), name, t)
		}
	}
	p.sayAside(v, s, aside)
	p.gone(slices.DeleteFunc(gone, func(t projector.TurnAt) bool { return v.thread != "" && t.Thread != v.thread }))
	return p.err
}

// gone shows turns that are not in effect.
func (p *printer) gone(list []projector.TurnAt) {
	if len(list) == 0 {
		return
	}
	p.printf("\n%s\n", p.style.Bold("not in effect, "+plain.Count(len(list), "turn")))
	for _, t := range list {
		p.turn(t.Thread, t.Thread, t.Turn)
	}
}

// printer writes text that fits its width, and remembers the first error.
type printer struct {
	out   io.Writer
	width int
	style cli.Style
	tools toolMode
	folds bool                     // what the model thought, and what it was told, is a line
	calls map[string]*render.Calls // of each thread, for the names of what answers them
	err   error
}

func newPrinter(v *viewer) *printer {
	return &printer{out: v.app.Out, width: cli.Width(v.app.Out), style: v.app.Style(), tools: v.tools, calls: make(map[string]*render.Calls)}
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format, args...)
	}
}

// parts prints parts one behind the other.
func (p *printer) parts(list []render.Styled, between string) {
	p.printf("%s\n", strings.Join(render.Flow(list, between, p.width), "\n"))
}

// header says which session it is, and what it simulates if it does.
func (p *printer) header(s *projector.Session) {
	head := []render.Styled{{Text: cli.ID(s.Subject.ID), Paint: p.style.Bold}}
	about := []string{s.Ledger.Kind, s.Ledger.Text("title"), s.Ledger.Text("status")}
	if s.Ledger.Kind == events.KindTranscript {
		about = agentHead(s)
	}
	for _, part := range about {
		if part != "" {
			head = append(head, render.Styled{Text: part})
		}
	}
	p.parts(head, " · ")
	if f := s.Ledger.Fork; f != nil {
		p.parts([]render.Styled{{Text: fmt.Sprintf("fork of %s at %v", f.Session, f.Offset)}}, "")
	}
	if raw, ok := s.Ledger.Fields.Get("trajectory"); ok {
		goal, persona := render.Goal(raw)
		p.field("goal", goal)
		p.field("persona", persona)
	}
}

// field prints a label and a text, if there is one.
func (p *printer) field(label, text string) {
	if text == "" {
		return
	}
	p.printf("%s\n", strings.Join(render.Field(label, text, p.width, p.style.Dim), "\n"))
}

// turn prints the next turn of a thread under a label.
func (p *printer) turn(label, thread string, t projector.Turn) {
	marks := ""
	if t.Pinned {
		marks = "  pinned"
	}
	if t.Timestamp != "" {
		marks += "  " + string(t.Timestamp)
	}
	p.printf("\n%s\n", p.style.Dim(render.Cut(fmt.Sprintf("%s  %v%s", label, t.Offset, marks), p.width)))
	if p.calls[thread] == nil {
		p.calls[thread] = new(render.Calls)
	}
	for _, line := range p.calls[thread].Turn(t) {
		p.line(line)
	}
}

// line prints one message of a turn.
func (p *printer) line(line render.Line) {
	const indent = 13
	width := render.Beyond(indent, p.width)
	texts := []string{""}
	switch tool := line.Role == "call" || line.Role == "result"; {
	case tool && p.tools == toolsNone:
		return
	case tool && p.tools == toolsBrief:
		texts[0] = render.Cut(unwrapped(line.Text), render.Excerpt(width))
	case p.folds && folds(line):
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
		p.printf("%s\n", strings.TrimRight("  "+p.role(line.Role, role)+text, " "))
	}
}

func (p *printer) role(role, padded string) string {
	switch {
	case strings.TrimSpace(padded) == "":
		return padded
	case role == "user":
		return p.style.Cyan(padded)
	case role == "assistant":
		return p.style.Green(padded)
	}
	return p.style.Dim(padded)
}

// fullTool returns a call or a result with its JSON spread over lines.
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
