package team

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

func newFlowLs(a *cmdutil.App) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use: "ls", Short: "List the open flows with the number of steps left", Args: cobra.NoArgs,
		Long: `List the open flows, sorted by id; with --all also the flows that are over.

LEFT is the number of steps that are not done. DRIVER is the worker that has claimed a flow,
with the end of its lease by the log's time.`,
		Example: cmdutil.Examples("tally flow ls", "tally flow ls --all -o jsonl"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error { return listFlows(cmd.Context(), a, st, all) })
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also flows that are over")
	return cmd
}

func newFlowShow(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show a flow with its steps and its history", Args: cobra.ExactArgs(1),
		Long: `Show a flow with its steps and the history of its states.

` + flowNames,
		Example: cmdutil.Examples("tally flow show release-7", "tally flow show 01a7 -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error { return showFlow(cmd.Context(), a, st, args[0]) })
		},
	}
}

// flowRow is a flow in JSON.
type flowRow struct {
	Flow       string           `json:"flow"`
	Template   string           `json:"template"`           // id of the document workflow/ID
	Revision   events.Offset    `json:"revision,omitempty"` // of the template
	State      string           `json:"state"`
	Step       int64            `json:"step"`
	Attempt    int              `json:"attempt"`
	Outcome    string           `json:"outcome,omitempty"` // absent if the flow is open
	Left       []string         `json:"left"`              // steps that are not done
	Allowed    []string         `json:"allowed"`           // states that may follow
	Owner      string           `json:"owner,omitempty"`
	Parent     *events.Lineage  `json:"parent,omitempty"`
	Worker     string           `json:"worker,omitempty"` // that has claimed it
	LeaseUntil events.Timestamp `json:"leaseUntil,omitempty"`
	Child      string           `json:"child,omitempty"` // flow that its state started
	EndedAt    events.Timestamp `json:"endedAt,omitempty"`
	Offset     events.Offset    `json:"offset"` // of its last record
	Damaged    events.Offset    `json:"damaged,omitempty"`
}

// shownFlow is a flow alone in JSON, with its history.
type shownFlow struct {
	flowRow
	Steps  []stepRow  `json:"steps"`
	Visits []visitRow `json:"visits"`
	Input  events.Raw `json:"input,omitempty"`
	Result events.Raw `json:"result,omitempty"`
}

// stepRow is a state that is not final.
type stepRow struct {
	State  string `json:"state"`
	Status string `json:"status"`
	Visits int    `json:"visits"`
}

// visitRow is one entry into a state.
type visitRow struct {
	Step   int64            `json:"step"`
	State  string           `json:"state"`
	Offset events.Offset    `json:"offset"`
	Time   events.Timestamp `json:"time"`
	Lost   bool             `json:"lost,omitempty"`
}

func flowRowOf(f *tavern.Flow, s *tavern.FlowState) flowRow {
	row := flowRow{Flow: cli.ID(f.ID()), Template: templateOf(s), State: s.State, Step: s.Step, Attempt: s.Attempt, Outcome: s.Outcome(), Left: openSteps(s), Allowed: cli.NonNil(s.Allowed()),
		Owner: s.Run.Owner, Parent: s.Run.Parent, Child: s.Child, EndedAt: stamp(s.EndedAt), Offset: s.Offset, Damaged: s.Damaged}
	if s.Workflow != nil {
		row.Revision = s.Workflow.Revision
	}
	if s.Held {
		row.Worker, row.LeaseUntil = s.Run.Worker, stamp(time.UnixMilli(s.Run.LeaseUntil))
	}
	return row
}

func shownFlowOf(f *tavern.Flow, s *tavern.FlowState) shownFlow {
	shown := shownFlow{flowRow: flowRowOf(f, s), Steps: []stepRow{}, Visits: []visitRow{}, Input: s.Input, Result: s.Result}
	for _, step := range s.Steps() {
		shown.Steps = append(shown.Steps, stepRow(step))
	}
	for _, v := range s.Visits() {
		shown.Visits = append(shown.Visits, visitRow{v.Step, v.State, v.At, stamp(v.Recorded), v.Lost})
	}
	return shown
}

// templateOf returns the id of a flow's template.
func templateOf(s *tavern.FlowState) string {
	if s.Workflow != nil {
		return cli.ID(s.Workflow.ID)
	}
	if sub, _, err := s.Run.Template.Parse(""); err == nil {
		return cli.ID(sub.ID)
	}
	return string(s.Run.Template)
}

// openSteps returns the steps that are not done. A flow that is over has no steps left.
func openSteps(s *tavern.FlowState) []string {
	list := []string{}
	if s.Over() {
		return list
	}
	for _, step := range s.Incomplete() {
		list = append(list, step.State)
	}
	return list
}

// flowAt is a flow with its state.
type flowAt struct {
	*tavern.Flow
	state *tavern.FlowState
}

// flowsOf reads the open flows of a store, or all. The view lists their ids.
func flowsOf(ctx context.Context, a *cmdutil.App, st *tally.Store, all bool) (list []flowAt, err error) {
	var listed []catalog.FlowListed
	err = a.WithWork(ctx, st, func(r catalog.WorkReader) error {
		listed, err = r.Flows(ctx, catalog.WorkPage{Namespace: st.Namespace()}, !all)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, l := range listed {
		f := tavern.FlowOf(st, l.ID)
		s, err := f.State(ctx)
		err = projector.Tolerate(err)
		switch {
		case errors.Is(err, tally.ErrNotFound): // a session with such an id that is not a flow
		case err != nil:
			return nil, err
		case all || !s.Over():
			list = append(list, flowAt{f, s})
		}
	}
	return list, nil
}

func listFlows(ctx context.Context, a *cmdutil.App, st *tally.Store, all bool) error {
	found, err := flowsOf(ctx, a, st, all)
	if err != nil {
		return err
	}
	rows := make([]flowRow, len(found))
	for i, f := range found {
		rows[i] = flowRowOf(f.Flow, f.state)
	}
	return printRows(a, rows, noneOpen(all), func() (render.Table, error) {
		now, err := st.LogTime(ctx)
		return flowTable(found, now, a.Style()), err
	})
}

// noneOpen returns the message for an empty list of flows.
func noneOpen(all bool) string {
	start := cmdutil.Program() + " flow start TEMPLATE"
	if all {
		return "There are no flows. Try: " + start
	}
	return "No flow is open. Try: " + start + ", or flow ls --all"
}

func flowTable(list []flowAt, now time.Time, style cli.Style) render.Table {
	const flow, state, stepsLeft, driver, template, owner, since = 0, 1, 2, 3, 4, 5, 6
	t := render.Table{Head: []string{"FLOW", "STATE", "LEFT", "DRIVER", "TEMPLATE", "OWNER", "SINCE"}, Right: []int{stepsLeft},
		Cut: []int{owner, template, driver, flow, state}, Drop: []int{owner, since, template}}
	for _, f := range list {
		s := f.state
		what := s.State
		if s.Over() {
			what += ", " + s.Outcome()
		}
		t.Rows = append(t.Rows, []string{cli.ID(f.ID()), what, strconv.Itoa(len(openSteps(s))), driverOf(s, now), templateOf(s), s.Run.Owner, entered(s)})
	}
	t.Paint = func(row, column int, cell string) string {
		switch {
		case column == flow:
			return cell
		case column == state && list[row].state.Over():
			return paintOver(style, list[row].state.Outcome(), cell)
		case column == state:
			return style.Yellow(cell)
		}
		return style.Dim(cell)
	}
	return t
}

func paintOver(style cli.Style, outcome, cell string) string {
	if outcome == "completed" {
		return style.Green(cell)
	}
	return style.Red(cell)
}

// entered is when a flow came into its state.
func entered(s *tavern.FlowState) string {
	visits := s.Visits()
	if len(visits) == 0 {
		return "-"
	}
	return cli.Minute(stamp(visits[len(visits)-1].Recorded))
}

// driverOf returns the worker that has claimed a flow, and the end of its lease.
func driverOf(s *tavern.FlowState, now time.Time) string {
	if !s.Held {
		return "-"
	}
	return leaseText(tally.Lease{Holder: s.Run.Worker, Until: time.UnixMilli(s.Run.LeaseUntil)}, now)
}

func showFlow(ctx context.Context, a *cmdutil.App, st *tally.Store, name string) error {
	f, err := flowNamed(ctx, st, name)
	if err != nil {
		return err
	}
	s, err := f.State(ctx)
	err = projector.Tolerate(err)
	if errors.Is(err, events.ErrNotFound) {
		err = noFlow(name, st.Namespace())
	}
	if err != nil {
		return err
	}
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, a.Format, shownFlowOf(f, s))
	}
	now, err := st.LogTime(ctx)
	if err != nil {
		return err
	}
	p := &agentPage{app: a, width: cli.Width(a.Out), style: a.Style()}
	p.flow(f, s, now)
	return p.err
}

// flow prints a flow.
func (p *agentPage) flow(f *tavern.Flow, s *tavern.FlowState, now time.Time) {
	p.head(cli.ID(f.ID()), s.State, s.Outcome())
	p.field("template", templateOf(s))
	p.field("owner", s.Run.Owner)
	p.field("driver", driverOf(s, now))
	p.field("child", s.Child)
	p.field("leads to", strings.Join(s.Allowed(), ", "))
	p.field("input", string(s.Input))
	p.field("result", string(s.Result))
	p.line("")
	steps := render.Table{Head: []string{"STEP", "STATUS", "VISITS"}, Right: []int{2}, Cut: []int{0}}
	for _, step := range s.Steps() {
		steps.Rows = append(steps.Rows, []string{step.State, step.Status, strconv.Itoa(step.Visits)})
	}
	p.table(steps)
	p.line("")
	history := render.Table{Head: []string{"#", "STATE", "TIME", "OFFSET", "LEFT BY"}, Right: []int{0, 3}, Cut: []int{1}}
	visits := s.Visits()
	for i, v := range slices.All(visits) {
		how := "move"
		switch {
		case v.Lost:
			how = "recovery"
		case i == len(visits)-1:
			how = s.Outcome()
		}
		history.Rows = append(history.Rows, []string{strconv.FormatInt(v.Step, 10), v.State, cli.Minute(stamp(v.Recorded)), v.At.String(), how})
	}
	p.table(history)
}
