package inspect

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

func newCat(a *cmdutil.App) *cobra.Command {
	var at string
	mark := false
	cmd := &cobra.Command{
		Use: "cat KIND/ID[@REV|@TIME|#N]", Short: "Print the content of a document", Args: cobra.ExactArgs(1),
		Long: `Print the content of a document, byte for byte. On a terminal, characters that it cannot
show are replaced.

` + cmdutil.DocumentNames + `

A suffix of the id selects a revision: @12 by its offset, @2026-08-22 or
@2026-08-22T10:00Z by time, #3 the third revision of the history. If an id itself ends
like that, use --at, which takes every position that show takes.

--mark prints on standard error which revision was printed, the SHA-256 of its content,
and whether the output equals the stored content. -o json has the same, with the content
as "data", or as "dataBase64" if it is not UTF-8.`,
		Example: cmdutil.Examples("tally doc cat doc/specs/store.md", "tally doc cat doc/specs/store.md@12 --mark > store.md", "tally doc cat 'doc/specs/store.md#1'", "tally doc cat doc/specs/store.md --at 2026-08-22T10:00Z -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithLook(cmd.Context(), func(st *tally.Store) error {
				doc, position, err := cmdutil.DocumentAt(cmd.Context(), st, args[0], at)
				if err != nil {
					return err
				}
				d, err := st.Documents().ReadAt(cmd.Context(), doc.Kind, doc.ID, position)
				if err != nil {
					return a.DocumentError(cmd.Context(), st, doc, err)
				}
				return cat(a, d, mark)
			})
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "position; default head")
	cmd.Flags().BoolVar(&mark, "mark", false, "print on standard error the revision, its SHA-256, and whether the output equals the stored content")
	return cmd
}

// marked identifies the revision that was printed.
type marked struct {
	Offset events.Offset `json:"offset"`
	SHA256 string        `json:"sha256"` // of the stored content
	Direct bool          `json:"direct"` // the printed content equals the stored content
}

// content is the JSON output of cat.
type content struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
	marked
	described
	Bytes      int     `json:"bytes"`
	Data       *string `json:"data,omitempty"`
	DataBase64 string  `json:"dataBase64,omitempty"` // instead of Data, if the content is not UTF-8
}

// described is the metadata of a revision.
type described struct {
	Time        events.Timestamp  `json:"time,omitempty"` // by the producer's clock
	ContentType string            `json:"contentType,omitempty"`
	Title       string            `json:"title,omitempty"`
	Owner       string            `json:"owner,omitempty"`
	Layer       string            `json:"layer,omitempty"`
	Attributes  map[string]string `json:"attributes,omitempty"`
	Links       []events.Link     `json:"links,omitempty"`
	ExpiresAt   events.Timestamp  `json:"expiresAt,omitempty"`
	Erased      string            `json:"erased,omitempty"` // id of the receipt of the erasure that removed the content
}

func describedBy(rev projector.Revision) described {
	m := rev.Meta
	return described{rev.Time, rev.ContentType, m.Title, m.Owner, m.Layer, m.Attributes, m.Links, m.ExpiresAt, rev.Erased}
}

func cat(a *cmdutil.App, d *tally.Document, mark bool) error {
	m := marked{Offset: d.Direct.Offset, SHA256: d.Direct.SHA256, Direct: d.Direct.Is(d.Data)}
	if a.Format != cli.Text {
		c := content{Kind: d.Subject.Kind, ID: cli.ID(d.Subject.ID), marked: m, described: describedBy(d.Revision), Bytes: len(d.Data)}
		if text := string(d.Data); utf8.ValidString(text) {
			c.Data = &text
		} else {
			c.DataBase64 = base64.StdEncoding.EncodeToString(d.Data)
		}
		return cli.WriteJSON(a.Out, a.Format, c)
	}
	if d.Erased != "" {
		fmt.Fprintf(a.Err, "%s: its content was erased, receipt %s\n", cmdutil.NameOf(d.Subject), plain.Printable(d.Erased))
	}
	shown := a.Shown(string(d.Data))
	if _, err := fmt.Fprint(a.Out, shown); err != nil || !mark {
		return err
	}
	m.Direct = d.Direct.Is([]byte(shown))
	line, err := json.Marshal(m)
	if err == nil {
		_, err = fmt.Fprintf(a.Err, "%s\n", line)
	}
	return err
}
