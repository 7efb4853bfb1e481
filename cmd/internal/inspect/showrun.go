package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/show"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// shownRun is the JSON output of show --run.
type shownRun struct {
	Run    show.Run      `json:"run"`
	Evals  []render.Eval `json:"evals,omitempty"` // only for an evaluation
	Result events.Raw    `json:"result"`
}

func (v *viewer) showRun(ctx context.Context, st *tally.Store, s *projector.Session) error {
	run, err := findRun(s, v.Run)
	if err != nil {
		return err
	}
	l, result, err := describeRun(ctx, st, s, run)
	if err != nil {
		return err
	}
	if result == nil {
		return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("run %s has no result yet", run.Ref())}
	}
	report, isReport := render.ReportOf(result)
	switch {
	case v.Raw:
		_, err := v.App.Bytes().Write(append(slices.Clip(result), '\n'))
		return err
	case v.App.Format != cli.Text:
		return cli.WriteJSON(v.App.Out, v.App.Format, shownRun{l, report.Evals, result})
	}
	p := newPage(v)
	p.run(s, l)
	switch {
	case isReport:
		p.report(report)
	case run.Kind == "trajectory":
		p.outcome(result)
	default:
		p.Printf("\n%s\n", strings.Join(render.Wrap(string(rawjson.AppendIndent(nil, result, "  ")), p.Width), "\n"))
	}
	return p.Err
}

// findRun finds a run by TYPE/ID, or by its id: evaluations before simulations before others.
func findRun(s *projector.Session, name string) (*projector.Run, error) {
	var found *projector.Run
	for _, r := range s.Ledger.Runs {
		exact := r.Kind+"/"+r.ID == name
		if exact || r.ID == name && (found == nil || typeRank(r.Kind) < typeRank(found.Kind)) {
			found = r
		}
		if exact {
			break
		}
	}
	if found == nil {
		return nil, &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("%s has no run %q there", s.Subject, name), Hint: "tally runs " + cli.ID(s.Subject.ID) + " lists them."}
	}
	return found, nil
}

// run prints the header of a run.
func (p threadsPage) run(s *projector.Session, l show.Run) {
	head := []render.Styled{{Text: l.ID, Paint: p.Style.Bold}, {Text: l.Type + " of " + cli.ID(s.Subject.ID)}}
	if l.Time != "" {
		head = append(head, render.Styled{Text: cli.Minute(l.Time)})
	}
	head = append(head, render.Styled{Text: l.Outcome, Paint: func(text string) string { return show.PaintOutcome(p.Style, l.Outcome, text) }})
	if l.Versions > 1 {
		head = append(head, render.Styled{Text: fmt.Sprintf("version %d of %d", l.Versions, l.Versions)})
	}
	p.Parts(head, " · ")
	if l.Stale != nil && *l.Stale {
		p.Field("stale", l.StaleReason)
	}
	if l.Withdrawn {
		p.Field("withdrawn", "what it is about was rewound")
	}
}

// report prints the result of an evaluation.
func (p threadsPage) report(r render.Report) {
	if r.Steps >= 0 {
		p.Field("judged", plain.Count(r.Steps, "step"))
	}
	if len(r.Evals) == 0 {
		p.Printf("\nIt evaluated nothing.\n")
		return
	}
	t := render.Table{Head: []string{"EVAL", "KIND", "PASSES IF", "PASS", "FAIL", "UNKNOWN", "SCORE", "FAILED AT"}, Right: []int{3, 4, 5, 6}, Cut: []int{7, 2, 0}, Drop: []int{1, 2, 6, 5}}
	for _, e := range r.Evals {
		t.Rows = append(t.Rows, []string{e.Name, e.Kind, cmp.Or(e.Passes, "-"), strconv.Itoa(e.Pass), strconv.Itoa(e.Fail), strconv.Itoa(e.Unknown), cmp.Or(e.Score, "-"), strings.Join(e.Failed, " ")})
	}
	t.Paint = func(row, column int, cell string) string {
		switch {
		case row < 0:
			return p.Style.Bold(cell)
		case column == 3 && r.Evals[row].Pass > 0:
			return p.Style.Green(cell)
		case column == 4 && r.Evals[row].Fail > 0:
			return p.Style.Red(cell)
		case column == 5 && r.Evals[row].Unknown > 0:
			return p.Style.Yellow(cell)
		}
		return cell
	}
	p.Printf("\n%s\n", strings.Join(t.Lines(p.Width), "\n"))
}

// outcome prints the result of a simulation.
func (p threadsPage) outcome(result events.Raw) {
	goal, persona := render.Goal(result)
	p.Field("goal", goal)
	p.Field("persona", persona)
	members, err := rawjson.Object(result)
	if err != nil {
		return // a result in another format; --raw prints it
	}
	get := func(name string) string {
		raw, _ := members.Get(name)
		if s, err := rawjson.String(raw); err == nil {
			return s
		}
		return string(rawjson.AppendCompact(nil, raw))
	}
	outcome := "not completed"
	if get("completed") == "true" {
		outcome = "completed"
	}
	if reason := get("reason"); reason != "" {
		outcome += ", " + reason
	}
	p.Field("outcome", outcome)
	p.Field("turns", get("totalTurns"))
	if done := get("stepsCompleted"); done != "" {
		p.Field("steps", done+" of "+cmp.Or(get("stepCount"), "?"))
	} else {
		p.Field("steps", get("stepCount"))
	}
}
