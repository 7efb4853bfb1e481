package team

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

func newAgentLs(a *cmdutil.App) *cobra.Command {
	var f tavern.AgentFilter
	cmd := &cobra.Command{
		Use: "ls", Short: "List the agents with their states and commitments", Args: cobra.NoArgs,
		Long: `List the agents with their states and commitments, sorted by id. Archived agents are
listed with --archived.

LEASE is the worker that acts for an agent, and the end of its lease by the log's time. KEPT
is the number of commitments that have passed.`,
		Example: cmdutil.Examples("tally agent ls", "tally agent ls --state working,waiting --owner ann", "tally agent ls --archived -o jsonl"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range f.States {
				if !slices.Contains(agentStates, s) && !strings.HasPrefix(s, "stopped:") {
					return cli.Usagef("--state %q: want %s, or stopped:REASON", s, cmdutil.Or(agentStates))
				}
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error { return listAgents(cmd.Context(), a, st, f) })
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.States, "state", nil, "only agents in one of these states")
	fl.StringVar(&f.Parent, "parent", "", "only agents that this session started")
	fl.StringVar(&f.Owner, "owner", "", "only agents of this owner")
	fl.BoolVar(&f.Archived, "archived", false, "also archived agents")
	return cmd
}

func newAgentShow(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show an agent with its commitments and its history of states", Args: cobra.ExactArgs(1),
		Long: `Show an agent with its commitments and its history of states. tally doc cat agent/ID prints
its file byte for byte.

` + agentNames,
		Example: cmdutil.Examples("tally agent show kettle", "tally agent show 8f14e45f -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error { return showAgent(cmd.Context(), a, st, args[0]) })
		},
	}
}

// agentRow is an agent in JSON.
type agentRow struct {
	Agent       string               `json:"agent"`
	Name        string               `json:"name"`
	State       string               `json:"state"`
	Reason      string               `json:"reason,omitempty"`
	Assignment  string               `json:"assignment,omitempty"`
	Commitments []commitmentRow      `json:"commitments"`
	Parent      *events.Lineage      `json:"parent,omitempty"`
	Owner       string               `json:"owner,omitempty"`
	Layer       string               `json:"layer,omitempty"`
	Lease       *leaseRow            `json:"lease,omitempty"`
	Binding     *events.Binding      `json:"binding,omitempty"`
	Log         []projector.LogEntry `json:"log,omitempty"`
	CreatedAt   events.Timestamp     `json:"createdAt,omitempty"`
	FinishedAt  events.Timestamp     `json:"finishedAt,omitempty"`
	ArchivedAt  events.Timestamp     `json:"archivedAt,omitempty"`
	Revision    events.Offset        `json:"revision,omitempty"` // of its file: the base of an edit
	Problem     string               `json:"problem,omitempty"`  // error in its file
}

// commitmentRow is a commitment in JSON.
type commitmentRow struct {
	ID          string `json:"id"`
	Description string `json:"description"`
	Assertion   string `json:"assertion,omitempty"`
	Status      string `json:"status"`
	Failure     string `json:"failure,omitempty"`
}

// leaseRow is the worker of an agent, and the end of its lease by the log's time.
type leaseRow struct {
	Holder string           `json:"holder"`
	Until  events.Timestamp `json:"until"`
}

func agentRowOf(i *tavern.AgentInfo) agentRow {
	row := agentRow{Agent: i.ID, Name: i.Name, State: i.State, Reason: i.StateReason, Assignment: i.Assignment, Commitments: []commitmentRow{}, Parent: i.Parent,
		Owner: i.Owner, Layer: i.Layer, Binding: i.Binding, Log: i.Log, CreatedAt: i.CreatedAt, FinishedAt: stamp(i.FinishedAt), ArchivedAt: stamp(i.ArchivedAt), Revision: i.Revision}
	for _, c := range i.Commitments {
		row.Commitments = append(row.Commitments, commitmentRow(c))
	}
	if i.Lease.Holder != "" {
		row.Lease = &leaseRow{i.Lease.Holder, stamp(i.Lease.Until)}
	}
	if i.NodeErr != nil {
		row.Problem = i.NodeErr.Error()
	}
	return row
}

// kept returns the number of commitments that have passed.
func kept(i *tavern.AgentInfo) string {
	n := 0
	for _, c := range i.Commitments {
		if c.Status == tavern.CommitmentPassed {
			n++
		}
	}
	return strconv.Itoa(n)
}

// agentsOf lists from the view the agents that were not purged, sorted by id and without the contents of their files.
func agentsOf(ctx context.Context, a *cmdutil.App, st *tally.Store) (list []catalog.Agent, err error) {
	err = a.WithWork(ctx, st, func(r catalog.WorkReader) error {
		list, err = r.Agents(ctx, catalog.WorkPage{Namespace: st.Namespace()}, "")
		return err
	})
	return slices.DeleteFunc(list, func(r catalog.Agent) bool { return r.ID != strings.ToLower(r.ID) }), err // tavern.AgentOf would name another agent
}

func listAgents(ctx context.Context, a *cmdutil.App, st *tally.Store, f tavern.AgentFilter) error {
	listed, err := agentsOf(ctx, a, st)
	if err != nil {
		return err
	}
	var found []*tavern.AgentInfo
	unread := 0
	for _, r := range listed {
		if !f.Archived && r.Status == tavern.AgentArchived || f.Owner != "" && f.Owner != r.Owner || f.Parent != "" && f.Parent != r.Parent {
			continue // the filter applies to the agent that is read next, which may have changed
		}
		i, err := tavern.AgentOf(st, r.ID).Info(ctx)
		switch {
		case err == nil && f.Includes(i):
			found = append(found, i)
		case err == nil, errors.Is(err, tally.ErrNotFound):
		case cli.Is[*events.DamageError](err):
			fmt.Fprintln(a.Err, plain.Printable(err.Error()))
			unread++
		default:
			return err
		}
	}
	if err := writeAgents(ctx, a, st, found); err != nil {
		return err
	}
	if unread > 0 {
		return cli.Silent(cli.Integrity)
	}
	return nil
}

func writeAgents(ctx context.Context, a *cmdutil.App, st *tally.Store, found []*tavern.AgentInfo) error {
	rows := make([]agentRow, len(found))
	for n, i := range found {
		rows[n] = agentRowOf(i)
	}
	return printRows(a, rows, "No agents match. Try: "+cmdutil.Program()+" agent new NAME", func() (render.Table, error) {
		now, err := st.LogTime(ctx)
		return agentTable(found, now, a.Style()), err
	})
}

func agentTable(list []*tavern.AgentInfo, now time.Time, style cli.Style) render.Table {
	const agent, name, state, keptOf, lease, parent, owner, assignment = 0, 1, 2, 3, 4, 5, 6, 7
	t := render.Table{Head: []string{"AGENT", "NAME", "STATE", "KEPT", "LEASE", "PARENT", "OWNER", "ASSIGNMENT"},
		Cut: []int{assignment, agent, parent, lease, name}, Drop: []int{owner, parent, assignment, lease}}
	for _, i := range list {
		started := ""
		if i.Parent != nil {
			started = i.Parent.Session
		}
		t.Rows = append(t.Rows, []string{i.ID, i.Name, i.State, keptText(i), leaseText(i.Lease, now), started, i.Owner, i.Assignment})
	}
	t.Paint = func(row, column int, cell string) string {
		switch {
		case column == state:
			return paintState(style, list[row].State, cell)
		case column == name || column == assignment || column == keptOf:
			return cell
		}
		return style.Dim(cell)
	}
	return t
}

func paintState(style cli.Style, state, cell string) string {
	switch state {
	case tavern.AgentDone:
		return style.Green(cell)
	case tavern.AgentError:
		return style.Red(cell)
	case tavern.AgentWorking, tavern.AgentVerifying, tavern.AgentWaiting:
		return style.Yellow(cell)
	}
	return cell
}

func keptText(i *tavern.AgentInfo) string {
	if len(i.Commitments) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s/%d", kept(i), len(i.Commitments))
}

// leaseText returns the holder of a lease and its end.
func leaseText(l tally.Lease, now time.Time) string {
	if l.Holder == "" {
		return "-"
	}
	word := " until "
	if !l.Until.After(now) {
		word = ", over since "
	}
	return l.Holder + word + cli.Minute(stamp(l.Until))
}

func showAgent(ctx context.Context, a *cmdutil.App, st *tally.Store, name string) error {
	agent, err := agentNamed(ctx, a, st, name)
	if err != nil {
		return err
	}
	i, err := agent.Info(ctx)
	if err != nil {
		return agentError(err, name, st.Namespace())
	}
	if a.Format != cli.Text {
		return cli.WriteJSON(a.Out, a.Format, agentRowOf(i))
	}
	now, err := st.LogTime(ctx)
	if err != nil {
		return err
	}
	p := &agentPage{app: a, width: cli.Width(a.Out), style: a.Style()}
	p.agent(i, now)
	return p.err
}

// agent prints an agent.
func (p *agentPage) agent(i *tavern.AgentInfo, now time.Time) {
	p.head(i.ID, i.Name, i.State)
	p.field("reason", i.StateReason)
	p.field("task", i.Assignment)
	if i.Parent != nil {
		p.field("parent", cli.ID(i.Parent.Session))
	}
	p.field("owner", i.Owner)
	if i.Lease.Holder != "" {
		p.field("lease", leaseText(i.Lease, now))
	}
	if b := i.Binding; b != nil {
		p.field("session", b.Vendor+" "+b.ID)
	}
	p.field("made", cli.Minute(i.CreatedAt))
	if !i.FinishedAt.IsZero() {
		p.field("stopped", cli.Minute(stamp(i.FinishedAt)))
	}
	if i.Revision > 0 {
		p.field("file", fmt.Sprintf("agent/%s at %v, %s", i.ID, i.Revision, plain.Bytes(int64(len(i.Node)))))
	}
	if i.NodeErr != nil {
		p.field("problem", i.NodeErr.Error())
	}
	p.commitments(i.Commitments)
	p.log(i.Log)
}

func (p *agentPage) commitments(list []tavern.Commitment) {
	if len(list) == 0 {
		return
	}
	p.line("")
	t := render.Table{Head: []string{"COMMITMENT", "STATUS", "WHAT", "ASSERTION", "FAILURE"}, Cut: []int{4, 3, 2, 0}, Drop: []int{3}}
	for _, c := range list {
		t.Rows = append(t.Rows, []string{c.ID, c.Status, c.Description, c.Assertion, c.Failure})
	}
	p.table(t)
}

func (p *agentPage) log(list []projector.LogEntry) {
	if len(list) == 0 {
		return
	}
	p.line("")
	t := render.Table{Head: []string{"LOG", "TIME", "EVENT", "SESSION", "REASON"}, Right: []int{0}, Cut: []int{4, 3}, Drop: []int{3}}
	for _, e := range list {
		t.Rows = append(t.Rows, []string{e.Offset.String(), cli.Minute(e.At), e.Event, e.Session, e.Reason})
	}
	p.table(t)
}

// agentPage prints the parts of one object, and keeps the first error.
type agentPage struct {
	app   *cmdutil.App
	width int
	style cli.Style
	err   error
}

func (p *agentPage) line(text string) {
	if p.err == nil {
		_, p.err = fmt.Fprintln(p.app.Out, text)
	}
}

// head prints the first line.
func (p *agentPage) head(id string, more ...string) {
	parts := []render.Styled{{Text: id, Paint: p.style.Bold}}
	for _, m := range more {
		parts = append(parts, render.Styled{Text: m})
	}
	p.line(strings.Join(render.Flow(parts, " · ", p.width), "\n"))
}

// field prints a label and a text, unless the text is empty.
func (p *agentPage) field(label, text string) {
	if text != "" && text != "-" {
		p.line(strings.Join(render.Field(label, text, p.width, p.style.Dim), "\n"))
	}
}

func (p *agentPage) table(t render.Table) { p.err = errors.Join(p.err, p.app.Table(t)) }
