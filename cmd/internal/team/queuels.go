package team

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

func newQueueLs(a *cmdutil.App) *cobra.Command {
	v := &queueView{app: a}
	cmd := &cobra.Command{
		Use: "ls [QUEUE]", Short: "List the work queues, or the items of one", Args: cobra.MaximumNArgs(1),
		Long: `List the work queues with the number of items in each, or the items of one queue in the
order in which workers get them. Completed items are listed only with --state done; the
order is then that of the log.`,
		Example: cmdutil.Examples("tally queue ls", "tally queue ls build --dead", "tally queue ls build --state done --limit 100 -o jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := v.check(args); err != nil {
				return err
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error {
				if len(args) == 0 {
					return v.queues(cmd.Context(), st)
				}
				q, err := existingQueue(cmd.Context(), st, args[0])
				if err != nil {
					return err
				}
				return v.items(cmd.Context(), q)
			})
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&v.states, "state", nil, "only items in these states: ready, claimed, waiting, done, dead (default all but done)")
	f.BoolVar(&v.dead, "dead", false, "only dead items, each with its attempts")
	f.IntVar(&v.query.Limit, "limit", 0, "list at most this many items; 0 is all")
	f.StringVar(&v.query.After, "after", "", "the next page: continue after this item, which is \"next\" in the last row of a page")
	return cmd
}

// queueView lists queues, or the items of one.
type queueView struct {
	app    *cmdutil.App
	states []string
	dead   bool
	query  tavern.ListQuery
}

// check validates the flags.
func (v *queueView) check(args []string) error {
	if v.query.Limit < 0 {
		return cli.Usagef("--limit %d: want a number from 0", v.query.Limit)
	}
	if len(args) != 1 && (v.dead || len(v.states) > 0 || v.query.After != "" || v.query.Limit > 0) {
		return cli.Usagef("--state, --dead, --limit and --after select items: name a QUEUE")
	}
	if v.dead && len(v.states) > 0 {
		return cli.Usagef("want one of --state and --dead")
	}
	if v.dead {
		v.states = []string{string(tavern.ItemDead)}
	}
	for _, s := range v.states {
		switch state := tavern.ItemState(s); state {
		case tavern.ItemReady, tavern.ItemClaimed, tavern.ItemWaiting, tavern.ItemDone, tavern.ItemDead:
			v.query.States = append(v.query.States, state)
		default:
			return cli.Usagef("--state %q: want ready, claimed, waiting, done or dead", s)
		}
	}
	return nil
}

// existingQueue returns the queue of a name. If it does not exist, the error has code NotFound.
func existingQueue(ctx context.Context, st *tally.Store, name string) (*tavern.Queue, error) {
	q := tavern.QueueOf(st, name)
	_, err := q.Settings(ctx)
	if errors.Is(err, events.ErrNotFound) {
		return nil, &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("there is no queue %q in namespace %s", cli.ID(name), st.Namespace()),
			Hint: cmdutil.Program() + " queue ls lists the queues."}
	}
	return q, err
}

// queueRow is a row of queue ls, with -o json.
type queueRow struct {
	settingsRow
	Ready   int `json:"ready"`
	Claimed int `json:"claimed"`
	Waiting int `json:"waiting"`
	DeadNow int `json:"deadItems"`
}

func (v *queueView) queues(ctx context.Context, st *tally.Store) error {
	rows := []queueRow{}
	err := v.app.WithWork(ctx, st, func(r catalog.WorkReader) error {
		listed, err := r.Queues(ctx, catalog.WorkPage{Namespace: st.Namespace()})
		if err != nil {
			return err
		}
		for _, l := range listed {
			is, err := isQueue(ctx, st, l)
			if err != nil {
				return err
			}
			if is {
				rows = append(rows, queueRowOf(l))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return printRows(v.app, rows, "There are no queues. Try: "+cmdutil.Program()+" queue add QUEUE FILE", func() (render.Table, error) { return queueTable(rows), nil })
}

func queueTable(rows []queueRow) render.Table {
	t := render.Table{Head: []string{"QUEUE", "READY", "CLAIMED", "WAITING", "DEAD", "TITLE", "WHEN EMPTY"},
		Right: []int{1, 2, 3, 4}, Cut: []int{6, 5}, Drop: []int{6, 5}}
	for _, r := range rows {
		t.Rows = append(t.Rows, []string{r.Queue, strconv.Itoa(r.Ready), strconv.Itoa(r.Claimed), strconv.Itoa(r.Waiting), strconv.Itoa(r.DeadNow), r.Title, r.OnEmpty})
	}
	return t
}

// isQueue reports whether the queue exists. A queue that nobody created exists if its session is not of another kind.
func isQueue(ctx context.Context, st *tally.Store, l catalog.QueueListed) (bool, error) {
	if l.Created != 0 {
		return true, nil
	}
	_, err := tavern.QueueOf(st, l.ID).Settings(ctx)
	if cli.Is[*tally.KindError](err) {
		return false, nil
	}
	return err == nil, err
}

func queueRowOf(l catalog.QueueListed) queueRow {
	s := tavern.QueueSettings{Title: l.Title, Owner: l.Owner, OnEmpty: l.OnEmpty, Lease: l.Lease, MaxAttempts: l.Attempts, Serial: l.Serial, Dead: "hold"}
	if l.Pass {
		s.Dead = projector.PassDead
	}
	return queueRow{settingsRow: settingsOf(l.ID, s), Ready: l.Ready, Claimed: l.Claimed, Waiting: l.Waiting, DeadNow: l.Dead}
}

// itemRow is an item in queue ls and queue show, with -o json.
type itemRow struct {
	ID        string           `json:"id"`
	Offset    events.Offset    `json:"offset"`
	State     string           `json:"state"`
	Owner     string           `json:"owner,omitempty"`
	DueAt     events.Timestamp `json:"dueAt,omitempty"`
	ExpiresAt events.Timestamp `json:"expiresAt,omitempty"`
	After     []string         `json:"after,omitempty"`
	Priority  int              `json:"priority,omitempty"`
	Attempts  int              `json:"attempts"`
	Worker    string           `json:"worker,omitempty"` // worker with a claim
	Fence     events.Offset    `json:"fence,omitempty"`
	Until     events.Timestamp `json:"until,omitempty"`
	Waits     []string         `json:"waits,omitempty"` // items of After that are not done
	Outcome   string           `json:"outcome,omitempty"`
	Error     string           `json:"error,omitempty"`
	Body      events.Raw       `json:"body,omitempty"`
	Text      string           `json:"text,omitempty"`    // if the item is not JSON
	Bytes     []byte           `json:"bytes,omitempty"`   // if the item is not text
	History   []attemptRow     `json:"history,omitempty"` // each attempt, oldest first
	Next      string           `json:"next,omitempty"`    // in the last row of a page: the value of --after for the next page
}

// attemptRow is an attempt at an item.
type attemptRow struct {
	Attempt int64            `json:"attempt"`
	Worker  string           `json:"worker"`
	Fence   events.Offset    `json:"fence"`
	Time    events.Timestamp `json:"time"`
	Outcome string           `json:"outcome,omitempty"`
	Error   string           `json:"error,omitempty"`
	Result  events.Raw       `json:"result,omitempty"`
	Stale   []staleRow       `json:"stale,omitempty"`
}

// staleRow is a report that came after another worker had claimed the item.
type staleRow struct {
	Offset  events.Offset `json:"offset"`
	Outcome string        `json:"outcome"`
	Result  events.Raw    `json:"result,omitempty"`
}

func itemOf(s tavern.ItemStatus) itemRow {
	row := itemRow{ID: cli.ID(s.ID), Offset: s.Offset, State: string(s.State), Owner: cli.ID(s.Owner), DueAt: stamp(s.DueAt), ExpiresAt: stamp(s.ExpiresAt), After: spelled(s.After), Priority: s.Priority, Attempts: s.Attempts,
		Worker: s.Worker, Fence: s.Fence, Waits: spelled(s.Waits), Outcome: s.Outcome, Error: s.Error}
	if s.State == tavern.ItemClaimed {
		row.Until = events.TimestampOf(s.Until)
	}
	switch {
	case rawjson.Check(s.Body) == nil:
		row.Body = s.Body
	case utf8.Valid(s.Body):
		row.Text = string(s.Body)
	default:
		row.Bytes = s.Body
	}
	for _, t := range s.History {
		attempt := attemptRow{Attempt: t.Number, Worker: t.Worker, Fence: t.Fence, Time: events.TimestampOf(t.At), Outcome: t.Outcome, Error: t.Error, Result: t.Result}
		for _, l := range t.Stale {
			attempt.Stale = append(attempt.Stale, staleRow{l.At, l.Outcome, l.Result})
		}
		row.History = append(row.History, attempt)
	}
	return row
}

// spelled formats ids for output.
func spelled(ids []string) (list []string) {
	for _, id := range ids {
		list = append(list, cli.ID(id))
	}
	return list
}

// none returns the message for an empty list of items.
func (v *queueView) none() string {
	if len(v.query.States) == 0 && v.query.After == "" {
		return "No items are open. --state done lists the completed ones."
	}
	return "No item matches."
}

func (v *queueView) items(ctx context.Context, q *tavern.Queue) error {
	found, next, err := q.List(ctx, v.query)
	err = projector.Tolerate(err)
	if err != nil {
		return err
	}
	rows := make([]itemRow, len(found))
	for i, s := range found {
		rows[i] = itemOf(s)
	}
	if len(rows) > 0 {
		rows[len(rows)-1].Next = next
	}
	if v.dead && v.app.Format == cli.Text && len(rows) > 0 {
		return v.deadItems(rows)
	}
	err = printRows(v.app, rows, v.none(), func() (render.Table, error) { return itemTable(rows, v.app.Style()), nil })
	if err == nil && next != "" && v.app.Format == cli.Text {
		fmt.Fprintf(v.app.Err, "--after %s shows more\n", plain.Printable(next))
	}
	return err
}
