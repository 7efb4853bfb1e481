package look

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/app"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/cli"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/projector/catalog"
)

// hit is a turn that search found.
type hit struct {
	Session string           `json:"session"`
	Offset  events.Offset    `json:"offset"`
	Thread  string           `json:"thread"`
	Index   int              `json:"index"` // among the turns that the event brought to the thread
	Roles   string           `json:"roles"`
	Time    events.Timestamp `json:"time,omitempty"`
	Snippet string           `json:"snippet"`
	Live    bool             `json:"live"`
}

func newSearch(a *app.App) *cobra.Command {
	var l catalog.Lookup
	cmd := &cobra.Command{
		Use: "search TEXT", Short: "Find turns by the words in them, the newest first", Args: cobra.MinimumNArgs(1),
		Long: `Find turns that have all the words given, the newest first. Words in double quotes
must stand in this order. Turns that were rewound are left out, unless --all is
given. If nothing is found, the exit code is 4.`,
		Example: app.Examples("tally search birthday cake", `tally search '"berry sponge"' --session order-desk`, "tally search invoice --all -o jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l.Text = strings.Join(args, " ")
			if l.Limit < 0 {
				return cli.Usagef("--limit %d: want a number from 0", l.Limit)
			}
			return a.WithViews(cmd.Context(), "search", func(c config.Config, v app.Views) error {
				l.Namespace = c.Namespace
				return search(cmd.Context(), a, v, l)
			})
		},
	}
	cmd.Flags().StringVar(&l.Session, "session", "", "only turns of the session with this id")
	cmd.Flags().BoolVar(&l.All, "all", false, "also turns that were rewound")
	cmd.Flags().IntVar(&l.Limit, "limit", 20, "so many at most; 0 is all")
	return cmd
}

func search(ctx context.Context, a *app.App, v app.Views, l catalog.Lookup) error {
	finder, err := catalog.OpenSearch(ctx, v.Dir, v.Catalog)
	if err != nil {
		return err
	}
	defer finder.Close()
	standing, err := finder.Standing(ctx)
	if err != nil {
		return err
	}
	hits, err := finder.Find(ctx, l)
	if err != nil {
		return err
	}
	if a.Format == cli.Text {
		writeHits(a, hits)
		a.AsOf(standing.Cursor)
	} else if err := listHits(a, hits); err != nil {
		return err
	}
	if len(hits) == 0 {
		return &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("no turn has %q", l.Text)}
	}
	return nil
}

func listHits(a *app.App, hits []catalog.Hit) error {
	list := make([]hit, len(hits))
	for i, h := range hits {
		plain := strings.NewReplacer(catalog.MatchBegin, "", catalog.MatchEnd, "").Replace(h.Snippet)
		list[i] = hit{cli.ID(h.Session), h.Offset, h.Thread, h.Number, h.Roles, h.At, plain, h.Live}
	}
	return cli.WriteList(a.Out, a.Format, list)
}

// writeHits prints two lines for each turn: where it is, and what stands around the
// words.
func writeHits(a *app.App, hits []catalog.Hit) {
	style, width := a.Style(), cli.Width(a.Out)
	for _, h := range hits {
		state := ""
		if !h.Live {
			state = "  rewound"
		}
		fmt.Fprintf(a.Out, "%s %v  %s  %s%s\n", style.Bold(render.Cut(cli.ID(h.Session), 60)), h.Offset, minute(h.At), render.Cut(h.Roles, 60), state)
		text := strings.NewReplacer(catalog.MatchBegin, "[", catalog.MatchEnd, "]").Replace(h.Snippet)
		fmt.Fprintf(a.Out, "  %s\n", render.Cut(text, width-2))
	}
}
