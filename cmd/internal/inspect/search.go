package inspect

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/render/plain"
)

const searchHelp = `Find turns by the words in them, whatever their case or accents.

  cake birthday      both words, in any order
  "birthday cake"    these words, one after the other
  refun*             any word that begins so
  cake OR tart       one of the two
  -lemon             not this: write it between quotes with the rest, or behind --

Other signs have no meaning. Words in scripts without spaces are found wherever they
stand. Turns that were rewound are left out, unless --all is given. The newest come
first; --sort rank puts those first that say most of the words in the fewest. Without
colour, what was searched for stands between ⟦ and ⟧. If nothing is found, the exit
code is 4.`

// newSearch returns the verb. Its filters go by the names that ls has for them.
func newSearch(a *cmdutil.App) *cobra.Command {
	l := catalog.Lookup{Sort: catalog.ByNewest}
	var since, until, cwd string
	cmd := &cobra.Command{
		Use: "search TEXT", Short: "Find turns by the words in them, the newest first", Args: cobra.MinimumNArgs(1), Long: searchHelp,
		Example: cmdutil.Examples(`tally search '"berry sponge" OR tart*' --session order-desk`, "tally search --role user --since 7d -- invoice -draft", "tally search refund --all --sort rank -o jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l.Text = strings.Join(args, " ")
			if l.Limit < 0 {
				return cli.Usagef("--limit %d: want a number from 0", l.Limit)
			}
			var errs [3]error
			l.Since, errs[0] = cmdutil.When("since", since, time.Now())
			l.Until, errs[1] = cmdutil.When("until", until, time.Now())
			if cwd != "" {
				l.CWD, errs[2] = filepath.Abs(cwd)
			}
			if err := cmp.Or(errs[:]...); err != nil {
				return err
			}
			return a.WithViews(cmd.Context(), []string{"search"}, func(c config.Config, v cmdutil.Views) error {
				l.Namespace = c.Namespace
				return search(cmd.Context(), a, v, l, filters(cmd))
			})
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &cli.CodeError{Code: cli.BadUsage, Err: err, Hint: "A word that a turn must not have, -x, goes between quotes or behind --. See tally search --help."}
	})
	f := cmd.Flags()
	f.StringVar(&l.Session, "session", "", `only turns of this session: an id, a unique beginning of one, or "last"`)
	f.StringVar(&l.Thread, "thread", "", "only turns of this thread")
	f.StringVar(&l.Role, "role", "", "only turns in which such a one speaks, such as user")
	f.StringVar(&since, "since", "", "only turns since a time, or for so long, such as 7d")
	f.StringVar(&until, "until", "", "only turns before that")
	f.StringVar(&l.Kind, "kind", "", "only in sessions of this kind")
	f.StringVar(&l.Project, "project", "", "only in sessions of this project")
	f.StringVar(&cwd, "cwd", "", "only in sessions that worked in this directory")
	f.BoolVar(&l.All, "all", false, "also turns that were rewound")
	f.Var(cli.OneOf(&l.Sort, "order", catalog.ByNewest, catalog.ByRank), "sort", "newest or rank")
	f.IntVar(&l.Limit, "limit", 20, "so many at most; 0 is all")
	return cmd
}

// filters repeats the flags that leave turns out, as they were given.
func filters(cmd *cobra.Command) string {
	text := ""
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != "all" && f.Name != "sort" && f.Name != "limit" {
			text += " --" + f.Name + " " + f.Value.String()
		}
	})
	return text
}

func search(ctx context.Context, a *cmdutil.App, v cmdutil.Views, l catalog.Lookup, filters string) error {
	finder, err := catalog.OpenSearch(ctx, v.Dir, v.Catalog)
	if err != nil {
		return err
	}
	defer finder.Close()
	standing, err := finder.Standing(ctx)
	if err != nil {
		return err
	}
	if l.Session != "" {
		if l.Session, err = listedAs(ctx, v.Catalog, l.Namespace, l.Session); err != nil {
			return err
		}
	}
	found, err := finder.Find(ctx, l)
	if err != nil {
		return err
	}
	if a.Format == cli.Text {
		writeHits(a, found.Hits)
		a.AsOf(standing.Cursor)
	} else {
		for i := range found.Hits {
			found.Hits[i].Session = cli.ID(found.Hits[i].Session)
		}
		if err := cli.WriteList(a.Out, a.Format, found.Hits); err != nil {
			return err
		}
	}
	if len(found.Hits) == 0 {
		return nothingFound(l, found.Rewound, filters)
	}
	return nil
}

// nothingFound says what was looked for, and whether it was there once.
func nothingFound(l catalog.Lookup, rewound int, filters string) error {
	e := &cli.CodeError{Code: cli.NotFound, Err: fmt.Errorf("no turn has %q", l.Text)}
	if filters != "" {
		e.Err = fmt.Errorf("%w with%s", e.Err, filters)
	}
	if rewound > 0 {
		e.Hint = "--all would show " + plain.Count(rewound, "turn") + " that were rewound."
		if rewound == 1 {
			e.Hint = "--all would show 1 turn that was rewound."
		}
	}
	return e
}

// listedAs finds the id of the session that an argument names, in the catalog: the store
// need not be open for a search.
func listedAs(ctx context.Context, r catalog.Reader, namespace, arg string) (string, error) {
	q := catalog.Query{Namespace: namespace, Grep: arg}
	if arg == cmdutil.Last {
		q.Grep, q.Sort, q.Limit = "", catalog.ByActive, 1
	} else if _, ok, err := r.Session(ctx, namespace, arg); ok || err != nil {
		return arg, err
	} else if id, err := events.UnescapeID(arg); err == nil {
		q.Grep = id
	}
	page, err := r.List(ctx, q)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, s := range page.Sessions {
		ids = append(ids, s.ID)
	}
	found := cmdutil.Meant(q.Grep, slices.Values(ids))
	switch len(found) {
	case 0:
		return "", cmdutil.NoSession(arg, namespace)
	case 1:
		return found[0], nil
	}
	return "", cli.Usagef("--session %q names %d sessions", arg, len(found))
}
