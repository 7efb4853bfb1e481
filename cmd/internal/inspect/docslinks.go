package inspect

import (
	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
)

// linkRow is a link in docs links and docs backlinks, with -o json.
type linkRow struct {
	Rel      string `json:"rel"`
	From     string `json:"from"`
	To       string `json:"to"`                 // under the name that it has today
	Written  string `json:"written,omitempty"`  // the subject as the link says it, if that is another one
	Dangling bool   `json:"dangling,omitempty"` // there is no such document or session
}

func newDocsLinks(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "links KIND/ID", Short: "List what a document links to", Args: cobra.ExactArgs(1),
		Long: `List what a document links to: documents and sessions, under the names that they have
today. One that is not there is marked as dangling.

` + cmdutil.DocumentNames,
		Example: cmdutil.Examples("tally docs links doc/specs/store.md", "tally docs links doc/plan -o json", "tally docs links note/today"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error {
				doc, err := cmdutil.Document(cmd.Context(), st, args[0])
				if err != nil {
					return err
				}
				list, err := st.Documents().Links(cmd.Context(), doc.Kind, doc.ID)
				if err != nil {
					return a.DocumentError(cmd.Context(), st, doc, err)
				}
				return printLinks(a, list, "TO", func(l tally.Linked) events.Subject { return l.To })
			})
		},
	}
}

func newDocsBacklinks(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "backlinks KIND/ID", Short: "List which documents link to a document or session", Args: cobra.ExactArgs(1),
		Long: `List which documents link to a document, also by a name that it had before, or to a
session, session/ID. What is linked to need not be there.

` + cmdutil.DocumentNames,
		Example: cmdutil.Examples("tally docs backlinks doc/goal", "tally docs backlinks session/travel -o jsonl", "tally docs backlinks note/today"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error {
				to, err := cmdutil.Linkable(cmd.Context(), st, args[0])
				if err != nil {
					return err
				}
				list, err := st.Documents().Backlinks(cmd.Context(), to)
				if err != nil {
					return err
				}
				return printLinks(a, list, "FROM", func(l tally.Linked) events.Subject { return l.From })
			})
		},
	}
}

// printLinks lists links by their relation and their other end.
func printLinks(a *cmdutil.App, list []tally.Linked, head string, end func(tally.Linked) events.Subject) error {
	var rows []linkRow
	t := render.Table{Head: []string{"REL", head}, Cut: []int{1, 0}}
	for _, l := range list {
		if l.From == l.To && l.Link.Rel == "renamed-from" {
			continue // it is what it was
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
