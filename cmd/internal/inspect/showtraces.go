package inspect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
)

// tracesThread is the thread of step traces that do not follow from the steps.
const tracesThread = "traces"

// shownTrace is an item in the JSON output of show --traces.
type shownTrace struct {
	Turn      int           `json:"turn"`   // number of the turn, from 1
	Offset    events.Offset `json:"offset"` // offset of the turn's event
	TurnIndex events.Raw    `json:"turnIndex,omitempty"`
	StepID    *string       `json:"stepId"` // null if no step was chosen
	Selection events.Raw    `json:"selection"`
	End       events.Raw    `json:"end,omitempty"`
}

// traced is a turn with its trace.
type traced struct {
	number int
	turn   projector.Turn
	trace  render.Trace
}

func (v *viewer) showTraces(s *projector.Session) error {
	list := tracesOf(s)
	if len(list) == 0 {
		return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("%s has no step traces there", s.Subject.Name())}
	}
	switch {
	case v.Raw:
		for _, t := range list {
			if _, err := v.App.Bytes().Write(append(slices.Clip(t.turn.Raw), '\n')); err != nil {
				return err
			}
		}
		return nil
	case v.App.Format != cli.Text:
		out := cli.NewList(v.App.Out, v.App.Format)
		for _, t := range list {
			if err := out.Add(t.shown()); err != nil {
				return err
			}
		}
		return out.Close()
	}
	p := newPage(v)
	p.Header(s)
	for len(list) > 0 {
		if n := unchosen(list); n > 1 {
			p.Printf("\n")
			p.Parts([]render.Styled{{Text: fmt.Sprintf("#%d to #%d", list[0].number, list[n-1].number), Paint: p.Style.Dim}, {Text: "no step"}, {Text: list[0].trace.Method, Paint: p.Style.Dim}}, "  ")
			list = list[n:]
			continue
		}
		p.trace(list[0])
		list = list[1:]
	}
	return p.Err
}

// unchosen counts the traces at the beginning of a list that say only that no step was chosen.
func unchosen(list []traced) int {
	n := 0
	for n < len(list) && list[n].trace.StepID == "" && len(list[n].trace.Candidates) == 0 && list[n].trace.End == nil &&
		list[n].trace.Method == list[0].trace.Method && list[n].number == list[0].number+n {
		n++
	}
	return n
}

// tracesOf returns the stored step traces, else those in the metadata of the steps.
func tracesOf(s *projector.Session) []traced {
	name := events.MainThread
	if s.Threads[tracesThread] != nil {
		name = tracesThread
	}
	var list []traced
	for i, turn := range s.Threads.Turns(name) {
		if trace, ok := render.TraceOf(turn.Raw); ok {
			list = append(list, traced{i + 1, turn, trace})
		}
	}
	return list
}

func (t traced) shown() shownTrace {
	s := shownTrace{Turn: t.number, Offset: t.turn.Offset, Selection: t.trace.Selection, End: t.trace.RawEnd}
	if rawjson.Check([]byte(t.trace.TurnIndex)) == nil {
		s.TurnIndex = events.Raw(t.trace.TurnIndex)
	}
	if t.trace.StepID != "" {
		s.StepID = &t.trace.StepID
	}
	return s
}

func (p threadsPage) trace(t traced) {
	step := t.trace.StepID
	if step == "" {
		step = "no step"
	}
	label := fmt.Sprintf("#%d", t.number)
	if index := t.trace.TurnIndex; index != "" && index != strconv.Itoa(t.number-1) {
		label += " (turn index " + render.Cut(index, 20) + ")"
	}
	p.Printf("\n")
	p.Parts([]render.Styled{{Text: label, Paint: p.Style.Dim}, {Text: step, Paint: p.Style.Bold}, {Text: t.trace.Method, Paint: p.Style.Dim}}, "  ")
	for _, c := range t.trace.Candidates {
		mark := " "
		if c.StepID == t.trace.StepID {
			mark = p.Style.Green(">")
		}
		p.Printf("  %s %s", mark, render.Cut(fmt.Sprintf("%-5s %s", shortNumber(c.Score), c.StepID), p.Width-4))
		p.reasons(c.Reasons)
	}
	if end := t.trace.End; end != nil {
		outcome := render.Styled{Text: "not completed", Paint: p.Style.Yellow}
		if end.Completed {
			outcome = render.Styled{Text: "completed", Paint: p.Style.Green}
		}
		p.Parts([]render.Styled{{Text: "  end: " + end.Reason}, outcome}, ", ")
		if end.Summary != "" {
			p.wrapped(end.Summary, 7)
		}
	}
}

// reasons prints the reasons of a candidate below it.
func (p threadsPage) reasons(list []string) {
	p.Printf("\n")
	for _, r := range list {
		p.wrapped(r, 10)
	}
}

func (p threadsPage) wrapped(text string, indent int) {
	for _, line := range render.Wrap(text, render.Beyond(indent, p.Width)) {
		p.Printf("%s\n", p.Style.Dim(strings.Repeat(" ", indent)+line))
	}
}

// shortNumber returns a score with at most two decimals.
func shortNumber(s string) string {
	if dot := strings.IndexByte(s, '.'); dot >= 0 && len(s) > dot+3 && !strings.ContainsAny(s, "eE") {
		return s[:dot+3]
	}
	return s
}
