package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata"
)

// leastPane is the narrowest that a column is; below it the models stand one after
// the other.
const leastPane = 28

// writePanel shows a panel's runs, each with its models side by side, and between
// them the turns in effect that no run accounts for.
func (v *viewer) writePanel(ctx context.Context, handle *tally.Session, s *projector.Session, gone []projector.TurnAt) error {
	runs, err := errata.Of(handle.Store(), handle.ID()).RunsAt(ctx, s)
	if err != nil {
		return err
	}
	p := newPrinter(v)
	p.header(s)
	late, number := s.History.Late(), make(map[string]int)
	others := unaccounted(s, runs)
	for _, run := range runs {
		for len(others) > 0 && others[0].offset < run.Offset {
			p.others(others[0])
			others = others[1:]
		}
		if run.IsMarker() {
			p.marker(run, number)
			continue
		}
		number[run.Summary.Run] = len(number) + 1
		p.panelRun(run, number[run.Summary.Run], slices.Contains(late, run.Offset))
	}
	for _, row := range others {
		p.others(row)
	}
	p.gone(gone)
	return p.err
}

// otherTurns are turns of one event that came from no run.
type otherTurns struct {
	offset  events.Offset
	threads []string
	turns   map[string][]projector.Turn
}

// answered is a question and its answer in a model's history.
type answered struct{ model, prompt, text string }

// unaccounted returns the turns in effect that are not what a run says that its
// models answered: compactions, histories that were imported without their runs.
func unaccounted(s *projector.Session, runs []errata.Row) []otherTurns {
	said := make(map[answered]int)
	for _, run := range runs {
		for _, m := range run.Content.Models {
			if !run.Withdrawn {
				said[answered{m.ModelID, run.Content.Prompt, m.Text}]++
			}
		}
	}
	var rows []otherTurns
	add := func(name string, t projector.Turn) {
		i, found := slices.BinarySearchFunc(rows, t.Offset, func(r otherTurns, at events.Offset) int { return cmp.Compare(r.offset, at) })
		if !found {
			rows = slices.Insert(rows, i, otherTurns{offset: t.Offset, turns: make(map[string][]projector.Turn)})
		}
		if rows[i].turns[name] == nil {
			rows[i].threads = append(rows[i].threads, name)
		}
		rows[i].turns[name] = append(rows[i].turns[name], t)
	}
	for _, name := range s.Threads.Names() {
		list := s.Threads.Turns(name)
		for len(list) > 0 {
			if key, ok := exchange(name, list); ok && said[key] > 0 {
				said[key]--
				list = list[2:]
				continue
			}
			add(name, list[0])
			list = list[1:]
		}
	}
	return rows
}

// exchange reads a question and its answer at the beginning of a history.
func exchange(model string, list []projector.Turn) (key answered, ok bool) {
	var question, answer errata.Turn
	if len(list) < 2 || json.Unmarshal(list[0].Raw, &question) != nil || json.Unmarshal(list[1].Raw, &answer) != nil {
		return key, false
	}
	return answered{model, question.Content, answer.Content}, true
}

// others shows turns that came from no run.
func (p *printer) others(row otherTurns) {
	p.printf("\n%s\n", p.style.Dim("turns  "+row.offset.String()))
	var panes []pane
	for _, name := range row.threads {
		next := pane{head: name, paint: p.style.Bold}
		for _, t := range row.turns[name] {
			for _, line := range render.Turn(t) {
				next.add(p.style.Dim, line.Role)
				next.add(nil, line.Text)
			}
		}
		panes = append(panes, next)
	}
	p.panes(panes)
}

// marker shows that the head was moved back.
func (p *printer) marker(row errata.Row, number map[string]int) {
	text := "rewind  " + row.Offset.String() + "  " + panelMinute(row.Summary.Timestamp)
	if n := number[row.Summary.Run]; n > 0 {
		text += fmt.Sprintf("  takes back run %d", n)
	}
	p.printf("\n%s\n", p.style.Yellow(render.Cut(text, p.width)))
}

func panelMinute(t time.Time) string { return minute(events.TimestampOf(t)) }

// panelRun shows a run.
func (p *printer) panelRun(run errata.Row, number int, late bool) {
	head := []render.Styled{{Text: fmt.Sprintf("run %d", number), Paint: p.style.Bold}, {Text: run.Offset.String()}, {Text: panelMinute(run.Summary.Timestamp)}}
	switch {
	case late:
		head = append(head, render.Styled{Text: "late", Paint: p.style.Yellow})
	case run.Rewound:
		head = append(head, render.Styled{Text: "rewound", Paint: p.style.Yellow})
	}
	if run.Summary.Rating != "" {
		head = append(head, render.Styled{Text: "rated " + run.Summary.Rating})
	}
	p.printf("\n")
	p.parts(head, " · ")
	p.field("note", strings.TrimSpace(strings.TrimPrefix(run.Summary.Note, "[rewound]")))
	p.field("applied", strings.Join(run.Summary.AppliedFiles, " "))
	p.field("user", cmp.Or(run.Content.Prompt, run.Summary.PromptPreview))
	p.printf("\n")
	models := run.Summary.Models
	if len(models) == 0 {
		for _, m := range run.Content.Models {
			models = append(models, m.ModelID)
		}
	}
	var panes []pane
	for _, model := range models {
		panes = append(panes, p.runPane(run, model))
	}
	p.panes(panes)
}

// runPane is what one model did in a run.
func (p *printer) runPane(run errata.Row, model string) pane {
	next := pane{head: model, paint: p.style.Bold}
	if model == run.Summary.Selected {
		next.head, next.paint = model+" (selected)", p.style.Green
	}
	i := slices.IndexFunc(run.Content.Models, func(m errata.ModelContent) bool { return m.ModelID == model })
	if i < 0 {
		next.add(p.style.Dim, "(nothing is known)")
		return next
	}
	did := run.Content.Models[i]
	for _, e := range did.Events {
		if e.Type != "text" { // the answer, piece by piece
			p.tool(&next, e.Type+" "+e.Data)
		}
	}
	for _, w := range did.ProposedWrites {
		if w.Delete {
			p.tool(&next, "deletes "+w.Path)
		} else {
			p.tool(&next, "writes "+w.Path+" ("+plain.Bytes(int64(len(w.Content)))+")")
		}
	}
	if did.Text == "" {
		next.add(p.style.Dim, "(no answer)")
	} else {
		next.add(nil, did.Text)
	}
	next.add(p.style.Dim, figures(run.Summary, did))
	return next
}

// tool adds what a model did beside answering.
func (p *printer) tool(next *pane, text string) {
	switch p.tools {
	case toolsBrief:
		next.lines = append(next.lines, paneLine{text, p.style.Dim, true})
	case toolsFull:
		next.add(p.style.Dim, text)
	}
}

// figures says how a model came to its end, and what that took.
func figures(sum errata.RunSummary, did errata.ModelContent) string {
	var parts []string
	if did.StopReason != "" {
		parts = append(parts, did.StopReason)
	}
	if did.Steps > 0 {
		parts = append(parts, plain.Count(did.Steps, "step"))
	}
	if ms, ok := sum.LatenciesMS[did.ModelID]; ok {
		parts = append(parts, (time.Duration(ms) * time.Millisecond).String())
	}
	if in, out := sum.InputTokens[did.ModelID], sum.OutputTokens[did.ModelID]; in > 0 || out > 0 {
		parts = append(parts, fmt.Sprintf("%d + %d tokens", in, out))
	}
	if usd, ok := sum.CostsUSD[did.ModelID]; ok {
		parts = append(parts, "$"+strconv.FormatFloat(usd, 'f', -1, 64))
	}
	return strings.Join(parts, " · ")
}

// pane is a column: a head and what stands below it.
type pane struct {
	head  string
	paint func(string) string
	lines []paneLine
}

type paneLine struct {
	text  string
	paint func(string) string
	cut   bool // to one line
}

func (p *pane) add(paint func(string) string, text string) {
	if text != "" {
		p.lines = append(p.lines, paneLine{text, paint, false})
	}
}

// fit lays a pane out for a width.
func (p pane) fit(width int) []render.Styled {
	list := []render.Styled{{Text: render.Cut(p.head, width), Paint: p.paint}}
	for _, line := range p.lines {
		if line.cut {
			list = append(list, render.Styled{Text: render.Cut(line.text, render.Excerpt(width)), Paint: line.paint})
			continue
		}
		for _, text := range render.Wrap(line.text, width) {
			list = append(list, render.Styled{Text: text, Paint: line.paint})
		}
	}
	return list
}

// panes puts columns side by side, or if they would be too narrow or have no width, one
// after the other.
func (p *printer) panes(list []pane) {
	if len(list) == 0 {
		return
	}
	if width := render.ColumnWidth(len(list), p.width); width >= leastPane && p.width < cli.NoWidth || len(list) == 1 {
		var columns [][]render.Styled
		for _, next := range list {
			columns = append(columns, next.fit(width))
		}
		p.printf("%s\n", strings.Join(render.Beside(columns, width), "\n"))
		return
	}
	for i, next := range list {
		if i > 0 {
			p.printf("\n")
		}
		p.panes([]pane{next})
	}
}
