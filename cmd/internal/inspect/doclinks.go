package inspect

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
)

// linkRow is a link in the JSON output of doc links.
type linkRow struct {
	Rel      string `json:"rel"`
	From     string `json:"from"`
	To       string `json:"to"`                 // under its current name
	Written  string `json:"written,omitempty"`  // subject as written in the link, if that differs
	Dangling bool   `json:"dangling,omitempty"` // the document or session does not exist
}

func newDocLinks(a *cmdutil.App) *cobra.Command {
	back := false
	cmd := &cobra.Command{
		Use: "links KIND/ID", Short: "List the links of a document, or the links to it", Args: cobra.ExactArgs(1),
		Long: `List the documents and sessions to which a document links, under their present names. A
link to a missing document or session is marked as dangling.

With --back, list the documents that link to this document, also by an earlier name of it,
or to a session, session/ID. The target need not exist.

` + cmdutil.DocumentNames,
		Example: cmdutil.Examples("tally doc links doc/specs/store.md", "tally doc links doc/plan -o json", "tally doc links session/travel --back -o jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error {
				if back {
					return backlinks(cmd.Context(), a, st, args[0])
				}
				return links(cmd.Context(), a, st, args[0])
			})
		},
	}
	cmd.Flags().BoolVar(&back, "back", false, "list the documents that link to this one, or to session/ID")
	return cmd
}

func links(ctx context.Context, a *cmdutil.App, st *tally.Store, name string) error {
	doc, err := cmdutil.Document(ctx, st, name)
	if err != nil {
		return err
	}
	list, err := st.Documents().Links(ctx, doc.Kind, doc.ID)
	if err != nil {
		return a.DocumentError(ctx, st, doc, err)
	}
	return printLinks(a, list, "TO", func(l tally.Linked) events.Subject { return l.To })
}

func backlinks(ctx context.Context, a *cmdutil.App, st *tally.Store, name string) error {
	to, err := cmdutil.Linkable(ctx, st, name)
	if err != nil {
		return err
	}
	list, err := st.Documents().Backlinks(ctx, to)
	if err != nil {
		return err
	}
	return printLinks(a, list, "FROM", func(l tally.Linked) events.Subject { return l.From })
}

// printLinks lists links with their relation and their other end.
func printLinks(a *cmdutil.App, list []tally.Linked, head string, end func(tally.Linked) events.Subject) error {
	var rows []linkRow
	t := render.Table{Head: []string{"REL", head}, Cut: []int{1, 0}}
	for _, l := range list {
		if l.From == l.To && l.Link.Rel == "renamed-from" {
			continue // a rename links a document to itself
		}
		row := linkRow{Rel: l.Link.Rel, From: cmdutil.NameOf(l.From), To: cmdutil.NameOf(l.To), Dangling: l.Dangling}
		if l.Link.To != l.To.String() {
			row.Written = l.Link.To
		}
		cells := []string{row.Rel, cmdutil.NameOf(end(l)), ""}
		if l.Dangling {
			cells[2], t.Head = "dangling", []string{"REL", head, "NOTE"}
		}
		rows, t.Rows = append(rows, row), append(t.Rows, cells)
	}
	if a.Format != cli.Text {
		return cli.WriteList(a.Out, a.Format, rows)
	}
	if len(rows) == 0 {
		return nil
	}
	for i := range t.Rows {
		t.Rows[i] = t.Rows[i][:len(t.Head)]
	}
	return a.Table(t)
}
