package inspect

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// revisionRow is a revision in the JSON output of doc log and doc watch.
type revisionRow struct {
	Kind   string        `json:"kind"`
	ID     string        `json:"id"`
	Number int           `json:"number,omitempty"` // number in the history, from 1; absent in doc watch
	Offset events.Offset `json:"offset"`
	Event  string        `json:"event"` // id of the event
	described
	Bytes     int    `json:"bytes"` // 0 if the content is stored by reference and was not read
	Deleted   bool   `json:"deleted,omitempty"`
	Reason    string `json:"reason,omitempty"` // of a deletion
	RenamedTo string `json:"renamedTo,omitempty"`
}

func revisionOf(c tally.Change) revisionRow {
	row := revisionRow{Kind: c.Subject.Kind, ID: cli.ID(c.Subject.ID), Offset: c.Offset, Event: c.ID, described: describedBy(c.Revision), Bytes: c.Size, Deleted: c.Deleted, Reason: c.Reason}
	if to, _, err := c.RenamedTo.Parse(c.Subject.Namespace); c.RenamedTo != "" && err == nil {
		row.RenamedTo = cmdutil.NameOf(to)
	}
	return row
}

// what describes a revision for people.
func (r revisionRow) what() string {
	switch {
	case r.RenamedTo != "":
		return "renamed: " + r.RenamedTo
	case r.Deleted:
		return "deleted: " + r.Reason
	case r.Erased != "":
		return "erased: receipt " + r.Erased
	}
	return r.Title
}

func newDocLog(a *cmdutil.App) *cobra.Command {
	limit, below := 0, ""
	cmd := &cobra.Command{
		Use: "log KIND/ID", Short: "List the revisions of a document, newest first", Args: cobra.ExactArgs(1),
		Long: `List the revisions of a document, newest first, with their numbers and offsets. doc cat
prints a revision by either: KIND/ID#3, KIND/ID@12. The list includes revisions
under earlier names of the document, and before a deletion. Purged revisions are gone.

` + cmdutil.DocumentNames,
		Example: cmdutil.Examples("tally doc log doc/specs/store.md", "tally doc log doc/specs/store.md --limit 20 -o jsonl", "tally doc log doc/specs/store.md --below @120"),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := cmdutil.Base("below", below)
			if err != nil {
				return err
			}
			if limit < 0 {
				return cli.Usagef("--limit %d: want a number from 0", limit)
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error { return docsHistory(cmd.Context(), a, st, args[0], at, limit) })
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "maximal number of revisions; 0 is all")
	cmd.Flags().StringVar(&below, "below", "", "only revisions before this offset, for the next page")
	return cmd
}

func docsHistory(ctx context.Context, a *cmdutil.App, st *tally.Store, name string, below events.Offset, limit int) error {
	doc, err := cmdutil.Document(ctx, st, name)
	if err != nil {
		return err
	}
	changes, err := st.Documents().History(ctx, doc.Kind, doc.ID, 0, 0)
	hole, _ := errors.AsType[*projector.HoleError](err)
	if err != nil && hole == nil {
		return a.DocumentError(ctx, st, doc, err)
	}
	var list []revisionRow
	for i, c := range changes {
		if below > 0 && c.Offset >= below || limit > 0 && len(list) == limit {
			continue
		}
		row := revisionOf(c)
		if hole == nil || c.Offset < hole.Damaged[0] { // revisions after a lost record have no number
			row.Number = len(changes) - i
		}
		list = append(list, row)
	}
	if a.Format != cli.Text {
		return cli.WriteList(a.Out, a.Format, list)
	}
	return a.Table(historyTable(list, a.Style()))
}

func historyTable(list []revisionRow, style cli.Style) render.Table {
	const number, offset, at, size, title, doc = 0, 1, 2, 3, 4, 5
	t := render.Table{Head: []string{"#", "OFFSET", "TIME", "SIZE", "TITLE"}, Right: []int{number, offset, size}, Cut: []int{title}, Drop: []int{size, at}}
	renamed := slices.ContainsFunc(list, func(r revisionRow) bool { return r.ID != list[0].ID })
	if renamed {
		t.Head, t.Cut = append(t.Head, "DOCUMENT"), append(t.Cut, doc)
	}
	for _, r := range list {
		bytes := plain.Bytes(int64(r.Bytes))
		if r.Deleted {
			bytes = "-"
		}
		number := "#" + strconv.Itoa(r.Number)
		if r.Number == 0 {
			number = "#?"
		}
		row := []string{number, r.Offset.String(), cli.Minute(r.Time), bytes, r.what()}
		if renamed {
			row = append(row, r.Kind+"/"+r.ID)
		}
		t.Rows = append(t.Rows, row)
	}
	t.Paint = func(row, column int, cell string) string {
		if row >= 0 && list[row].Deleted {
			return style.Red(cell)
		}
		if column == at || column == size {
			return style.Dim(cell)
		}
		return cell
	}
	return t
}
