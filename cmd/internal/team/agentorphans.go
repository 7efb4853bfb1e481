package team

import (
	"context"
	"fmt"
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

func newAgentOrphans(a *cmdutil.App) *cobra.Command {
	clean := false
	cmd := &cobra.Command{
		Use: "orphans", Short: "List the documents and flows of agents and flows that have ended, or remove them", Args: cobra.NoArgs,
		Long: `List the documents, overlays, flows and changesets of owners that have ended: an agent that
was stopped or archived, or a flow that is over. If an owner is active or unknown, its
property is not an orphan.

THEN is the planned removal, and DUE its time: the janitor of tally serve and tally daemon
deletes documents, and stops flows and changesets, when their owner has been gone for as long
as orphans in [daemons] of your config.toml sets. Without that setting they stay. A changeset
that is being applied is skipped. Times are the log's.

--clean removes them now, and prints each one. A deleted document can still be read: tally doc
log lists its revisions, and tally doc cat KIND/ID#N prints one.`,
		Example: cmdutil.Examples("tally agent orphans", "tally agent orphans -o jsonl", "tally agent orphans --clean"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Config()
			if err != nil {
				return err
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error {
				found, err := orphansOf(cmd.Context(), a, st, c.Daemons.Orphans)
				switch {
				case err != nil:
					return err
				case clean:
					return cleanOrphans(cmd.Context(), a, st, found)
				}
				return listOrphans(a, found, c.Daemons.Orphans)
			})
		},
	}
	cmd.Flags().BoolVar(&clean, "clean", false, "delete the documents, and stop the flows and changesets, now")
	return cmd
}

// orphanRow is an orphan in JSON.
type orphanRow struct {
	Orphan string           `json:"orphan"` // document, overlay, flow or changeset
	ID     string           `json:"id"`     // KIND/ID of a document, id of a flow, QUEUE/ITEM of a changeset
	Owner  string           `json:"owner"`  // session
	Since  events.Timestamp `json:"since"`  // end of the owner
	Then   string           `json:"then"`   // action of the janitor: delete or stop
	Due    events.Timestamp `json:"due,omitempty"`
	Done   bool             `json:"done,omitempty"` // removed by this command

	subject events.Subject
}

// Ways to remove an orphan.
const (
	orphanDelete = "delete"
	orphanStop   = "stop"
)

func orphanRowOf(o catalog.Orphan, window time.Duration) orphanRow {
	row := orphanRow{Orphan: "document", ID: cmdutil.NameOf(o.Subject), Owner: cli.ID(o.Owner), Since: stamp(o.Gone), Then: orphanDelete, subject: o.Subject}
	switch queue, item, isItem := projector.ItemOf(o.Subject.ID); {
	case o.Overlay:
		row.Orphan = "overlay"
	case !o.Subject.IsSession():
	case isItem:
		row.Orphan, row.ID, row.Then = "changeset", cli.ID(queue)+"/"+cli.ID(item), orphanStop
	default:
		row.Orphan, row.ID, row.Then = "flow", cli.ID(strings.TrimPrefix(o.Subject.ID, events.KindFlow+"/")), orphanStop
	}
	if window > 0 {
		row.Due = stamp(o.Gone.Add(window))
	}
	return row
}

// orphansOf lists the orphans of a store from the view.
func orphansOf(ctx context.Context, a *cmdutil.App, st *tally.Store, window time.Duration) (rows []orphanRow, err error) {
	err = a.WithWork(ctx, st, func(r catalog.WorkReader) error {
		found, err := r.Orphans(ctx, st.Namespace(), 0, events.Subject{})
		for _, o := range found {
			rows = append(rows, orphanRowOf(o, window))
		}
		return err
	})
	return rows, err
}

func listOrphans(a *cmdutil.App, rows []orphanRow, window time.Duration) error {
	if rows == nil {
		rows = []orphanRow{}
	}
	err := printRows(a, rows, "There are no orphans.", func() (render.Table, error) { return orphanTable(rows, a.Style()), nil })
	if err == nil && window == 0 && len(rows) > 0 && a.Format == cli.Text {
		fmt.Fprintln(a.Err, "They stay until orphans in [daemons] of your config.toml sets a time. --clean removes them now.")
	}
	return err
}

func orphanTable(rows []orphanRow, style cli.Style) render.Table {
	const what, id, owner, since, then, due = 0, 1, 2, 3, 4, 5
	t := render.Table{Head: []string{"ORPHAN", "ID", "OWNER", "GONE SINCE", "THEN", "DUE"}, Cut: []int{id, owner}, Drop: []int{then, since}}
	for _, r := range rows {
		at := "never"
		if r.Due != "" {
			at = cli.Minute(r.Due)
		}
		t.Rows = append(t.Rows, []string{r.Orphan, r.ID, r.Owner, cli.Minute(r.Since), r.Then, at})
	}
	t.Paint = func(_, column int, cell string) string {
		if column == id || column == due {
			return cell
		}
		return style.Dim(cell)
	}
	return t
}

// cleanOrphans removes orphans and prints each. An error does not stop the rest.
func cleanOrphans(ctx context.Context, a *cmdutil.App, st *tally.Store, rows []orphanRow) error {
	did, failed := []orphanRow{}, 0
	for _, r := range rows {
		what, err := tavern.CleanOrphan(ctx, st, r.subject)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			failed++
			fmt.Fprintf(a.Err, "%s %s: %s\n", r.Orphan, plain.Printable(r.ID), plain.Printable(err.Error()))
		case what != "":
			r.Done = true
			did = append(did, r)
		}
	}
	if err := writeCleaned(a, did); err != nil || failed == 0 {
		return err
	}
	return &cli.CodeError{Code: cli.Partial, Err: fmt.Errorf("%s could not be removed", plain.Count(failed, "orphan"))}
}

func writeCleaned(a *cmdutil.App, did []orphanRow) error {
	if a.Format != cli.Text {
		return cli.WriteList(a.Out, a.Format, did)
	}
	if len(did) == 0 {
		fmt.Fprintln(a.Err, "There are no orphans to remove.")
	}
	for _, r := range did {
		word := map[string]string{orphanDelete: "deleted", orphanStop: "stopped"}[r.Then]
		if _, err := fmt.Fprintf(a.Out, "%s %s: %s, as %s is gone\n", r.Orphan, plain.Printable(r.ID), word, plain.Printable(r.Owner)); err != nil {
			return err
		}
	}
	return nil
}
