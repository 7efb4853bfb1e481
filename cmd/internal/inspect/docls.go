package inspect

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// Documents returns new verbs of the noun doc that read documents.
func Documents(a *cmdutil.App) []*cobra.Command {
	return append(cmdutil.Paged(newDocLs(a), newCat(a), newDocLog(a), newDocDiff(a), newDocLinks(a)), newDocWatch(a))
}

// docRow is a document in doc ls -o json.
type docRow struct {
	Kind        string        `json:"kind"`
	ID          string        `json:"id"`
	Title       string        `json:"title,omitempty"`
	ContentType string        `json:"contentType,omitempty"`
	Bytes       int64         `json:"bytes"`
	SHA256      string        `json:"sha256,omitempty"`
	Owner       string        `json:"owner,omitempty"`
	Layer       string        `json:"layer,omitempty"`
	Revisions   int           `json:"revisions"`
	First       events.Offset `json:"first"`
	Last        events.Offset `json:"last"` // base of a write that replaces the document
	UpdatedAt   string        `json:"updatedAt,omitempty"`
	ExpiresAt   string        `json:"expiresAt,omitempty"`
	Deleted     bool          `json:"deleted,omitempty"`
	Reason      string        `json:"reason,omitempty"`
	RenamedTo   string        `json:"renamedTo,omitempty"`
	Lease       *leaseRow     `json:"lease,omitempty"`
	Next        string        `json:"next,omitempty"` // only in the last document of a page: the value for --after
}

// leaseRow is the holder of a lease on a document, and its end.
type leaseRow struct {
	Holder string `json:"holder"`
	Until  string `json:"until"`
}

func newDocLs(a *cmdutil.App) *cobra.Command {
	var q projector.DocumentQuery
	leases := false
	cmd := &cobra.Command{
		Use: "ls [KIND[/PREFIX]]", Short: "List documents by kind and id", Args: cobra.MaximumNArgs(1),
		Long: `List documents by kind and id: all, those of a kind, or those with a prefix. The list
comes from the catalog, a view that the owner of the store keeps up to date. If no
process owns the store, it is read without opening the store.

HEAD is the offset of the last revision, and the base of a write that replaces it.
--leases also shows leases: who is working on a document, and until when.

On a terminal, columns that do not fit are left out. In a pipe nothing is cut.`,
		Example: cmdutil.Examples("tally doc ls", "tally doc ls doc/specs/ --newest --limit 20", "tally doc ls --owner ann --layer project -o jsonl", "tally doc ls --linked doc/goal --rel parent"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("limit") && cli.IsTerminal(a.Out) {
				q.Limit = firstPage
			}
			if q.Limit < 0 {
				return cli.Usagef("--limit %d: want a number from 0", q.Limit)
			}
			if len(args) == 1 {
				q.Kind, q.Prefix, _ = strings.Cut(args[0], "/")
			}
			if err := linkOf(&q); err != nil {
				return err
			}
			return docsLs(cmd.Context(), a, q, leases)
		},
	}
	docFlags(cmd, &q)
	f := cmd.Flags()
	f.BoolVar(&q.Deleted, "deleted", false, "also documents that were deleted or have expired")
	f.BoolVar(&q.Newest, "newest", false, "sort by last write, newest first")
	f.BoolVar(&leases, "leases", false, "also show leases")
	f.IntVar(&q.Limit, "limit", 0, "maximal number of documents; 0 is all (default 100 on a terminal)")
	f.StringVar(&q.After, "after", "", "continue after a page: its value of next")
	return cmd
}

// docFlags adds the flags that select documents.
func docFlags(cmd *cobra.Command, q *projector.DocumentQuery) {
	f := cmd.Flags()
	f.StringVar(&q.Owner, "owner", "", "only documents of this owner")
	f.StringVar(&q.Layer, "layer", "", "only documents of this layer, such as project")
	f.StringVar(&q.Link, "linked", "", "only documents with a link to KIND/ID or session/ID")
	f.StringVar(&q.Rel, "rel", "", "with --linked, only links of this relation")
}

// linkOf converts the target of --linked to a subject.
func linkOf(q *projector.DocumentQuery) error {
	if q.Link == "" {
		if q.Rel != "" {
			return cli.Usagef("--rel needs --linked")
		}
		return nil
	}
	kind, id, _ := strings.Cut(q.Link, "/")
	to := events.Document(events.DefaultNamespace, kind, id)
	if kind == events.KindSession {
		to = events.Session(events.DefaultNamespace, id)
	}
	q.Link = to.String()
	return to.Validate()
}

func docsLs(ctx context.Context, a *cmdutil.App, q projector.DocumentQuery, leases bool) error {
	var list []docRow
	var cursor projector.Cursor
	err := a.WithViews(ctx, []string{"catalog"}, func(c config.Config, v reads.Views) error {
		q.Namespace = c.Namespace
		standing, err := v.Catalog.Standing(ctx)
		if err != nil {
			return err
		}
		cursor = standing.Cursor
		found, next, err := v.Catalog.Documents(ctx, q)
		for _, d := range found {
			list = append(list, docRowOf(d))
		}
		if len(list) > 0 {
			list[len(list)-1].Next = next
		}
		return err
	})
	if err == nil && leases && len(list) > 0 {
		err = a.WithExisting(ctx, func(st *tally.Store) error { return addLeases(ctx, st, list) })
	}
	switch {
	case err != nil:
		return err
	case a.Format != cli.Text:
		return cli.WriteList(a.Out, a.Format, list)
	case len(list) == 0:
		fmt.Fprintln(a.Err, nothingOf(q))
		return nil
	}
	if err := a.Table(docTable(list, a.Style(), leases)); err != nil {
		return err
	}
	if next := list[len(list)-1].Next; next != "" {
		fmt.Fprintf(a.Err, "there are more: --after %s\n", cmdutil.Quoted(next))
	}
	a.AsOf(cursor)
	return nil
}

func nothingOf(q projector.DocumentQuery) string {
	if q != (projector.DocumentQuery{Namespace: q.Namespace, Limit: q.Limit, Newest: q.Newest}) {
		return "No document matches."
	}
	return "There are no documents yet. Try: tally doc put KIND/ID FILE --create"
}

func docRowOf(d projector.DocumentListed) docRow {
	row := docRow{Kind: d.Subject.Kind, ID: cli.ID(d.Subject.ID), Title: d.Title, ContentType: d.ContentType, Bytes: d.Bytes, SHA256: d.SHA256, Owner: d.Owner, Layer: d.Layer,
		Revisions: d.Revisions, First: d.First, Last: d.Last, UpdatedAt: spelledTime(d.UpdatedAt), ExpiresAt: spelledTime(d.ExpiresAt), Deleted: d.Deleted, Reason: d.Reason}
	if to, _, err := d.RenamedTo.Parse(d.Subject.Namespace); d.RenamedTo != "" && err == nil {
		row.RenamedTo = cmdutil.NameOf(to)
	}
	return row
}

func spelledTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return string(events.TimestampOf(t))
}

// addLeases looks up the leases of documents.
func addLeases(ctx context.Context, st *tally.Store, list []docRow) error {
	for i, row := range list {
		doc, err := cmdutil.Document(ctx, st, row.Kind+"/"+row.ID)
		if err != nil {
			return err
		}
		lease, err := st.Documents().Holder(ctx, doc.Kind, doc.ID)
		if err != nil {
			return err
		}
		if lease.Holder != "" {
			list[i].Lease = &leaseRow{lease.Holder, spelledTime(lease.Until)}
		}
	}
	return nil
}

func docTable(list []docRow, style cli.Style, leases bool) render.Table {
	const doc, size, revisions, head, owner, layer, updated, title, holder = 0, 1, 2, 3, 4, 5, 6, 7, 8
	t := render.Table{
		Head:  []string{"DOCUMENT", "SIZE", "REVS", "HEAD", "OWNER", "LAYER", "UPDATED", "TITLE"},
		Right: []int{size, revisions, head}, Cut: []int{title, doc}, Drop: []int{layer, revisions, owner, size, updated},
	}
	if leases {
		t.Head = append(t.Head, "LEASE")
		t.Cut = append(t.Cut, holder)
	}
	for _, d := range list {
		what := d.Title
		switch {
		case d.RenamedTo != "":
			what = "renamed: " + d.RenamedTo
		case d.Deleted:
			what = "deleted: " + d.Reason
		}
		row := []string{d.Kind + "/" + d.ID, plain.Bytes(d.Bytes), strconv.Itoa(d.Revisions), d.Last.String(), d.Owner, d.Layer, cli.Minute(events.Timestamp(d.UpdatedAt)), what}
		if leases {
			who := "-"
			if d.Lease != nil {
				who = d.Lease.Holder + " until " + cli.Minute(events.Timestamp(d.Lease.Until))
			}
			row = append(row, who)
		}
		t.Rows = append(t.Rows, row)
	}
	t.Paint = func(_, column int, cell string) string {
		if column == doc || column == title {
			return cell
		}
		return style.Dim(cell)
	}
	return t
}
