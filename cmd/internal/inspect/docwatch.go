package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

func newDocWatch(a *cmdutil.App) *cobra.Command {
	w := &docWatcher{app: a}
	after := ""
	cmd := &cobra.Command{
		Use: "watch [KIND[/PREFIX]]", Short: "Print changes of documents as they happen", Args: cobra.MaximumNArgs(1),
		Long: `Print changes of documents as they happen, each once and in the order of the log, until
interrupted. --after @N begins with earlier changes, after an offset. To continue a
watch without a gap, use the last offset that it printed. The output has no content: doc
cat KIND/ID@OFFSET prints that.`,
		Example: cmdutil.Examples("tally doc watch", "tally doc watch doc/specs/ --after @0 -o jsonl", "tally doc watch --linked doc/goal --limit 1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if w.limit < 0 {
				return cli.Usagef("--limit %d: want a number from 0", w.limit)
			}
			if len(args) == 1 {
				w.q.Kind, w.q.Prefix, _ = strings.Cut(args[0], "/")
			}
			if err := linkOf(&w.q); err != nil {
				return err
			}
			var err error
			if after != "" {
				if w.after, err = events.ParseOffset(after); err != nil {
					return err
				}
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error {
				if after == "" {
					if w.after, err = st.Log.Durable(cmd.Context()); err != nil {
						return err
					}
				}
				return w.watch(cmd.Context(), st)
			})
		},
	}
	docFlags(cmd, &w.q)
	cmd.Flags().StringVar(&after, "after", "", "begin with changes after this offset, @0 for all (default: only new changes)")
	cmd.Flags().IntVar(&w.limit, "limit", 0, "end after this number of changes; 0 is never")
	return cmd
}

// docWatcher prints changes of documents.
type docWatcher struct {
	app     *cmdutil.App
	q       projector.DocumentQuery
	after   events.Offset
	limit   int
	printed int
	damaged int
}

func (w *docWatcher) watch(ctx context.Context, st *tally.Store) error {
	for {
		err := w.until(ctx, st)
		if lagged, ok := errors.AsType[*tally.LaggedError](err); ok {
			w.after = lagged.After // changes that were dropped are read from the log
			continue
		}
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case w.damaged > 0:
			return cli.Silent(cli.Integrity)
		}
		return nil
	}
}

// until prints changes until an error, or until the limit is reached.
func (w *docWatcher) until(ctx context.Context, st *tally.Store) error {
	for c, err := range st.Documents().Watch(ctx, w.q, w.after) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			w.damaged++
			fmt.Fprintln(w.app.Err, plain.Printable(damage.Error()))
			continue
		}
		if err != nil {
			return err
		}
		if err := w.print(c); err != nil {
			return err
		}
		if w.printed++; w.printed == w.limit {
			return nil
		}
	}
	return nil
}

func (w *docWatcher) print(c tally.Change) error {
	row := revisionOf(c)
	if w.app.Format != cli.Text {
		return cli.WriteJSON(w.app.Out, cli.JSONL, row)
	}
	width := cli.Width(w.app.Out)
	text := fmt.Sprintf("%-7v ", row.Offset)
	if width >= minTimed {
		text = fmt.Sprintf("%-7v %s  ", row.Offset, cli.Minute(row.Time))
	}
	text += render.Cut(cmdutil.NameOf(c.Subject), max((width-len(text))*2/3, 12))
	if what := row.what(); what != "" {
		text += "  " + what
	}
	_, err := fmt.Fprintln(w.app.Out, render.Cut(text, width))
	return err
}
