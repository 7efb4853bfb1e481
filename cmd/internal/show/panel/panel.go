// Package panel prints the sessions of errata: a panel of models, run by run.
package panel

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/show"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/errata"
)

// minPane is the minimal width of a column. If the columns would be narrower, the models are printed one after the
// other.
const minPane = 28

// Store shows the sessions of errata.
type Store struct{}

// Runs returns nil: the runs of a panel do not delegate.
func (Store) Runs(context.Context, *tally.Session, *projector.Outline) ([]show.TreeRun, error) {
	return nil, nil
}

// Show prints a panel run by run, if text of the whole session is asked for.
func (Store) Show(ctx context.Context, v *show.View) (bool, error) {
	if v.App.Format != cli.Text || v.Thread != "" || v.Last != 0 || v.Run != "" || v.Traces || v.Raw || v.Follow {
		return false, nil
	}
	s, err := v.Session(ctx)
	if err != nil || s.Ledger.Kind != events.KindPanel {
		return false, err
	}
	gone, hole, err := v.Gone(ctx)
	if err != nil {
		return true, err
	}
	return true, errors.Join(write(ctx, v, s, gone), hole, v.App.WarnDamaged(s))
}

// page prints a panel.
type page struct{ *show.Page }

// write prints the runs of a panel, each with its models side by side. Between the runs it prints the turns in effect
// that came from no run.
func write(ctx context.Context, v *show.View, s *projector.Session, gone []projector.TurnAt) error {
	runs, err := errata.Of(v.Handle.Store(), v.Handle.ID()).RunsAt(ctx, s)
	if err != nil {
		return err
	}
	p := page{show.NewPage(v)}
	p.Header(s)
	stale, number := s.History.Stale(), make(map[string]int)
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
		p.panelRun(run, number[run.Summary.Run], slices.Contains(stale, run.Offset))
	}
	for _, row := range others {
		p.others(row)
	}
	p.Gone(gone)
	return p.Err
}

// otherTurns are turns of one event that no run brought.
type otherTurns struct {
	offset  events.Offset
	threads []string
	turns   map[string][]projector.Turn
}

// answered is a question and its answer in a model's history.
type answered struct{ model, prompt, text string }

// unaccounted returns the turns in effect that are not an answer in one of the runs: compactions, and histories that
// were imported without their runs.
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

// exchange reads the question and the answer at the beginning of a history. It reports whether there is such a pair.
func exchange(model string, list []projector.Turn) (key answered, ok bool) {
	var question, answer errata.Turn
	if len(list) < 2 || json.Unmarshal(list[0].Raw, &question) != nil || json.Unmarshal(list[1].Raw, &answer) != nil {
		return key, false
	}
	return answered{model, question.Content, answer.Content}, true
}

// others prints turns that no run brought.
func (p page) others(row otherTurns) {
	p.Printf("\n%s\n", p.Style.Dim("turns  "+row.offset.String()))
	var panes []pane
	for _, name := range row.threads {
		next := pane{head: name, paint: p.Style.Bold}
		for _, t := range row.turns[name] {
			for _, line := range render.Turn(t) {
				next.add(p.Style.Dim, line.Role)
				next.add(nil, line.Text)
			}
		}
		panes = append(panes, next)
	}
	p.panes(panes)
}

// marker prints a rewind.
func (p page) marker(row errata.Row, number map[string]int) {
	text := "rewind  " + row.Offset.String() + "  " + panelMinute(row.Summary.Timestamp)
	if n := number[row.Summary.Run]; n > 0 {
		text += fmt.Sprintf("  takes back run %d", n)
	}
	p.Printf("\n%s\n", p.Style.Yellow(render.Cut(text, p.Width)))
}

func panelMinute(t time.Time) string { return cli.Minute(events.TimestampOf(t)) }

// panelRun prints a run.
func (p page) panelRun(run errata.Row, number int, stale bool) {
	head := []render.Styled{{Text: fmt.Sprintf("run %d", number), Paint: p.Style.Bold}, {Text: run.Offset.String()}, {Text: panelMinute(run.Summary.Timestamp)}}
	switch {
	case stale:
		head = append(head, render.Styled{Text: "stale", Paint: p.Style.Yellow})
	case run.Rewound:
		head = append(head, render.Styled{Text: "rewound", Paint: p.Style.Yellow})
	}
	if run.Summary.Rating != "" {
		head = append(head, render.Styled{Text: "rated " + run.Summary.Rating})
	}
	p.Printf("\n")
	p.Parts(head, " · ")
	p.Field("note", strings.TrimSpace(strings.TrimPrefix(run.Summary.Note, "[rewound]")))
	p.Field("applied", strings.Join(run.Summary.AppliedFiles, " "))
	p.Field("user", cmp.Or(run.Content.Prompt, run.Summary.PromptPreview))
	p.Printf("\n")
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

// runPane returns the column of one model in a run.
func (p page) runPane(run errata.Row, model string) pane {
	next := pane{head: model, paint: p.Style.Bold}
	if model == run.Summary.Selected {
		next.head, next.paint = model+" (selected)", p.Style.Green
	}
	i := slices.IndexFunc(run.Content.Models, func(m errata.ModelContent) bool { return m.ModelID == model })
	if i < 0 {
		next.add(p.Style.Dim, "(nothing is known)")
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
		next.add(p.Style.Dim, "(no answer)")
	} else {
		next.add(nil, did.Text)
	}
	next.add(p.Style.Dim, figures(run.Summary, did))
	return next
}

// tool adds an act of a model other than its answer to its column.
func (p page) tool(next *pane, text string) {
	switch p.Tools {
	case show.ToolsBrief:
		next.lines = append(next.lines, paneLine{text, p.Style.Dim, true})
	case show.ToolsFull:
		next.add(p.Style.Dim, text)
	}
}

// figures returns a line about a model in a run: why it stopped, its steps, time, tokens and cost.
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

// pane is a column: a head, and lines below it.
type pane struct {
	head  string
	paint func(string) string
	lines []paneLine
}

type paneLine struct {
	text  string
	paint func(string) string
	cut   bool // to one line; else the text is wrapped
}

func (p *pane) add(paint func(string) string, text string) {
	if text != "" {
		p.lines = append(p.lines, paneLine{text, paint, false})
	}
}

// fit returns the lines of a pane at a width.
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

// panes prints columns side by side. If they would be too narrow, or the output has no width, it prints one after the
// other.
func (p page) panes(list []pane) {
	if len(list) == 0 {
		return
	}
	if width := render.ColumnWidth(len(list), p.Width); width >= minPane && p.Width < cli.NoWidth || len(list) == 1 {
		var columns [][]render.Styled
		for _, next := range list {
			columns = append(columns, next.fit(width))
		}
		p.Printf("%s\n", strings.Join(render.Beside(columns, width), "\n"))
		return
	}
	for i, next := range list {
		if i > 0 {
			p.Printf("\n")
		}
		p.panes([]pane{next})
	}
}
