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

func newOrphans(a *cmdutil.App) *cobra.Command {
	clean := false
	cmd := &cobra.Command{
		Use: "orphans", Short: "List what belongs to an agent or a flow that is gone, or take it away", Args: cobra.NoArgs,
		Long: `List what belongs to somebody who is gone: documents, overlays, flows and changesets
whose owner is an agent that was stopped or archived, or a flow that is over. An owner
that is there, or of whom nothing is known, has no orphans.

THEN is what becomes of it, and DUE when: the janitor of serve and tend deletes documents,
and stops flows and changesets, once their owner has been gone for as long as orphans
says in [daemons] of your own config.toml. If that says nothing, they stay. A changeset
that somebody applies right now is left to them. Time is the log's.

--clean does now what the janitor would do, and prints what it did. What was deleted can
be read still: docs history lists it, and cat KIND/ID#N prints it.`,
		Example: cmdutil.Examples("tally orphans", "tally orphans -o jsonl", "tally orphans --clean"),
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
	Orphan string           `json:"orphan"` // what it is: document, overlay, flow or changeset
	ID     string           `json:"id"`     // KIND/ID of a document, the flow's, QUEUE/ITEM of a changeset
	Owner  string           `json:"owner"`  // session
	Since  events.Timestamp `json:"since"`  // when that went
	Then   string           `json:"then"`   // what the janitor does: delete or stop
	Due    events.Timestamp `json:"due,omitempty"`
	Done   bool             `json:"done,omitempty"` // by this command

	subject events.Subject
}

// What becomes of orphans.
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

// orphansOf lists the orphans of a store, as the view has them.
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
	err := list(a, rows, "There are no orphans.", func() (render.Table, error) { return orphanTable(rows, a.Style()), nil })
	if err == nil && window == 0 && len(rows) > 0 && a.Format == cli.Text {
		fmt.Fprintln(a.Err, "Nobody takes them away: orphans in [daemons] of your config.toml says after how long. --clean does so now.")
	}
	return err
}

func orphanTable(rows []orphanRow, style cli.Style) render.Table {
	const what, id, owner, since, then, due = 0, 1, 2, 3, 4, 5
	t := render.Table{Head: []string{"ORPHAN", "ID", "OWNER", "GONE SINCE", "THEN", "DUE"}, Cut: []int{id, owner}, Drop: []int{then, since}}
	for _, r := range rows {
		at := "never"
		if r.Due != "" {
			at = minute(r.Due)
		}
		t.Rows = append(t.Rows, []string{r.Orphan, r.ID, r.Owner, minute(r.Since), r.Then, at})
	}
	t.Paint = func(_, column int, cell string) string {
		if column == id || column == due {
			return cell
		}
		return style.Dim(cell)
	}
	return t
}

// cleanOrphans takes away what can be, and prints that. What fails does not keep the rest.
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
	return &cli.CodeError{Code: cli.Partial, Err: fmt.Errorf("nothing could be done about %s", plain.Count(failed, "orphan"))}
}

func writeCleaned(a *cmdutil.App, did []orphanRow) error {
	if a.Format != cli.Text {
		return cli.WriteList(a.Out, a.Format, did)
	}
	if len(did) == 0 {
		fmt.Fprintln(a.Err, "There was nothing to be done.")
	}
	for _, r := range did {
		word := map[string]string{orphanDelete: "deleted", orphanStop: "stopped"}[r.Then]
		if _, err := fmt.Fprintf(a.Out, "%s %s: %s, as %s is gone\n", r.Orphan, plain.Printable(r.ID), word, plain.Printable(r.Owner)); err != nil {
			return err
		}
	}
	return nil
}
