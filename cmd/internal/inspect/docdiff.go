package inspect

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
)

// docDiff is the JSON output of doc diff.
type docDiff struct {
	From   side   `json:"from"`
	To     side   `json:"to"`
	Same   bool   `json:"same"`             // the contents are equal
	Binary bool   `json:"binary,omitempty"` // one revision is not text, so there is no diff
	Added  int    `json:"added"`            // lines
	Gone   int    `json:"gone"`
	Diff   string `json:"diff,omitempty"` // unified
}

// side is one of two compared revisions.
type side struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
	marked
	Bytes int `json:"bytes"`
}

func sideOf(d *tally.Document) side {
	return side{d.Subject.Kind, cli.ID(d.Subject.ID), marked{d.Direct.Offset, d.Direct.SHA256, true}, len(d.Data)}
}

func newDocDiff(a *cmdutil.App) *cobra.Command {
	stat, exitCode := false, false
	cmd := &cobra.Command{
		Use: "diff KIND/ID [A [B]]", Short: "Compare two revisions of a document, line by line", Args: cobra.RangeArgs(1, 3),
		Long: `Compare two revisions of a document, line by line. A and B are positions such as @12,
#3, ~1 or a time. The default of B is the current revision, and that of A the one before
it. Binary content is compared as a whole.

` + cmdutil.DocumentNames,
		Example: cmdutil.Examples("tally doc diff doc/specs/store.md", "tally doc diff doc/specs/store.md @12 --stat", "tally doc diff doc/specs/store.md '#1' '#3' --exit-code"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithLook(cmd.Context(), func(st *tally.Store) error {
				from, to, err := sides(cmd.Context(), a, st, args)
				if err != nil {
					return err
				}
				d := compareRevisions(from, to)
				switch {
				case a.Format != cli.Text:
					err = cli.WriteJSON(a.Out, a.Format, d)
				case d.Same:
				case stat || d.Binary:
					err = d.sum(a)
				default:
					err = d.print(a)
				}
				if err == nil && exitCode && !d.Same {
					return cli.Silent(1)
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&stat, "stat", false, "only print the numbers of lines")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit 1 if the content differs, 0 if not")
	return cmd
}

// sides reads the revisions that the arguments name.
func sides(ctx context.Context, a *cmdutil.App, st *tally.Store, args []string) (from, to *tally.Document, err error) {
	doc, err := cmdutil.Document(ctx, st, args[0])
	if err != nil {
		return nil, nil, err
	}
	positions := append(args[1:len(args):len(args)], "~1", "head")
	if len(args) == 2 {
		positions[1] = "head"
	}
	if from, err = st.Documents().ReadAt(ctx, doc.Kind, doc.ID, positions[0]); err == nil {
		to, err = st.Documents().ReadAt(ctx, doc.Kind, doc.ID, positions[1])
	}
	if err != nil {
		err = a.DocumentError(ctx, st, doc, err)
	}
	return from, to, err
}

// compareRevisions compares two revisions.
func compareRevisions(from, to *tally.Document) docDiff {
	d := docDiff{From: sideOf(from), To: sideOf(to), Same: bytes.Equal(from.Data, to.Data)}
	if d.Binary = !d.Same && (!isText(from.Data) || !isText(to.Data)); d.Same || d.Binary {
		return d
	}
	text := string(diff.Diff(from.Direct.Offset.String(), from.Data, to.Direct.Offset.String(), to.Data))
	_, text, _ = strings.Cut(text, "\n") // the first line repeats the names
	d.Diff = text
	for i, line := range strings.Split(text, "\n") {
		switch {
		case i < 2 || line == "":
		case line[0] == '+':
			d.Added++
		case line[0] == '-':
			d.Gone++
		}
	}
	return d
}

// isText reports whether content can be shown line by line.
func isText(data []byte) bool { return utf8.Valid(data) && !bytes.Contains(data, []byte{0}) }

// sum prints the size of the difference in one line.
func (d docDiff) sum(a *cmdutil.App) error {
	if d.Binary {
		return a.Say("%v, %s, and %v, %s, differ. At least one is not text.", d.From.Offset, plain.Bytes(int64(d.From.Bytes)), d.To.Offset, plain.Bytes(int64(d.To.Bytes)))
	}
	_, err := fmt.Fprintf(a.Out, "-%d +%d lines\n", d.Gone, d.Added)
	return err
}

// print prints the lines that differ, wrapped to the width of the output. Continuation lines repeat the sign.
func (d docDiff) print(a *cmdutil.App) error {
	style, width := a.Style(), cli.Width(a.Out)
	for i, line := range strings.Split(strings.TrimSuffix(d.Diff, "\n"), "\n") {
		if line == "" {
			continue
		}
		sign, paint := line[:1], func(s string) string { return s }
		switch {
		case i < 2:
			paint = style.Bold
		case sign == "+":
			paint = style.Green
		case sign == "-":
			paint = style.Red
		case sign == "@":
			paint = style.Cyan
		}
		for _, row := range render.Wrap(line[1:], width-1) {
			if _, err := fmt.Fprintln(a.Out, paint(sign+row)); err != nil {
				return err
			}
		}
	}
	return nil
}
