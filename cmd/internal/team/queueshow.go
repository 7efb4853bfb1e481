package team

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

func newQueueShow(a *cmdutil.App) *cobra.Command {
	v := &queueView{app: a}
	return &cobra.Command{
		Use: "show QUEUE ITEM", Short: "Show one item of a work queue, with every attempt", Args: cobra.ExactArgs(2),
		Long: `Show one item of a work queue, with every attempt at it: the worker, the result or the
error, and reports that came too late to have an effect.`,
		Example: cmdutil.Examples("tally queue show build v1:2", "tally queue show build v1:2 -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error {
				q, err := existingQueue(cmd.Context(), st, args[0])
				if err != nil {
					return err
				}
				s, err := q.Get(cmd.Context(), args[1])
				if err != nil {
					return err
				}
				return v.item(itemOf(s))
			})
		},
	}
}

// now describes the present situation of an item: its worker, what it waits for, or its last error.
func (r itemRow) now() string {
	switch tavern.ItemState(r.State) {
	case tavern.ItemClaimed:
		at, _ := r.Until.Time()
		return r.Worker + " until " + at.UTC().Format("15:04:05")
	case tavern.ItemWaiting:
		if len(r.Waits) > 0 {
			return "after " + strings.Join(r.Waits, ", ")
		}
		return "due " + cli.Minute(r.DueAt)
	case tavern.ItemDead, tavern.ItemReady:
		if r.ExpiresAt != "" && r.State == string(tavern.ItemDead) && (r.Outcome == "" || r.Outcome == projector.OutcomeExpired) {
			return "expired " + cli.Minute(r.ExpiresAt)
		}
		if n := len(r.History); n > 0 {
			return r.History[n-1].Error
		}
		return r.Error
	}
	return ""
}

func (r itemRow) text() string {
	if r.Text != "" {
		return r.Text
	}
	return bodyText(r.Body, r.Bytes)
}

func itemTable(list []itemRow, style cli.Style) render.Table {
	const id, state, priority, attempts, now, text = 0, 1, 2, 3, 4, 5
	t := render.Table{Head: []string{"ITEM", "STATE", "PRIO", "TRIES", "NOW", "TEXT"}, Right: []int{priority, attempts}, Cut: []int{text, now}, Drop: []int{priority, attempts}}
	for _, r := range list {
		t.Rows = append(t.Rows, []string{r.ID, r.State, strconv.Itoa(r.Priority), strconv.Itoa(r.Attempts), render.Cut(r.now(), 200), render.Cut(r.text(), 200)})
	}
	t.Paint = func(row, column int, cell string) string {
		if row >= 0 && column == state && list[row].State == string(tavern.ItemDead) {
			return style.Red(cell)
		}
		return cell
	}
	return t
}

// deadItems prints dead items, each with its attempts.
func (v *queueView) deadItems(list []itemRow) error {
	for i, r := range list {
		if i > 0 {
			fmt.Fprintln(v.app.Out)
		}
		if err := v.item(r); err != nil {
			return err
		}
	}
	return nil
}

// item prints one item with its attempts.
func (v *queueView) item(r itemRow) error {
	if v.app.Format != cli.Text {
		return cli.WriteJSON(v.app.Out, v.app.Format, r)
	}
	width := cli.Width(v.app.Out)
	head := fmt.Sprintf("%s  %s  %s", r.ID, r.State, r.Offset)
	fmt.Fprintln(v.app.Out, v.app.Style().Bold(render.Cut(head, width)))
	for _, line := range render.Wrap(r.text(), width-2) {
		fmt.Fprintln(v.app.Out, "  "+line)
	}
	for _, t := range r.History {
		for _, line := range t.lines() {
			if _, err := fmt.Fprintln(v.app.Out, strings.Join(render.Wrap(line, width), "\n")); err != nil {
				return err
			}
		}
	}
	return nil
}

// lines describes an attempt for people.
func (t attemptRow) lines() []string {
	text := fmt.Sprintf("  attempt %d  %s  %s, fence %d  %s", t.Attempt, cli.Minute(t.Time), t.Worker, uint64(t.Fence), t.Outcome)
	if t.Outcome == "" {
		text += "under way"
	}
	if t.Error != "" {
		text += ": " + t.Error
	}
	if t.Outcome == "completed" {
		text += ": " + shortJSON(t.Result)
	}
	list := []string{text}
	for _, l := range t.Stale {
		list = append(list, fmt.Sprintf("    stale, at %v: %s %s", l.Offset, l.Outcome, shortJSON(l.Result)))
	}
	return list
}

// shortJSON returns a result on one line.
func shortJSON(raw []byte) string {
	return render.Cut(plain.Printable(string(rawjson.AppendCompact(nil, raw))), 200)
}
