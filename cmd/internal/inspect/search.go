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
	"github.com/tallylog/tally/internal/reads"
	"github.com/tallylog/tally/internal/render/plain"
)

const searchHelp = `Find turns by words, newest first, in any case and with or without accents.

  cake birthday      both words, in any order
  "birthday cake"    these words in this order
  refun*             any word with this beginning
  cake OR tart       one of the two
  -lemon             not this word: write it within quotes with the rest, or after --

Other signs have no meaning. In scripts without spaces, words are found anywhere.
Rewound turns are left out, unless --all is used. --sort rank puts turns first that
contain most of the words in the least text. Without colour, matches are between ⟦ and
⟧. If nothing is found, the exit code is 4.`

// newSearch returns the command. Its filters have the same names as those of ls.
func newSearch(a *cmdutil.App) *cobra.Command {
	l := catalog.Lookup{Sort: catalog.ByNewest}
	var since, until, cwd string
	cmd := &cobra.Command{
		Use: "search TEXT", Short: "Find turns by words, newest first", Args: cobra.MinimumNArgs(1), Long: searchHelp,
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
			return a.WithViews(cmd.Context(), []string{"search"}, func(c config.Config, v reads.Views) error {
				return search(cmd.Context(), a, reads.Reader{Views: v, Namespace: c.Namespace}, l, filtersOf(cmd))
			})
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &cli.CodeError{Code: cli.BadUsage, Err: err, Hint: "To exclude a word, put -word within quotes or after --. See tally search --help."}
	})
	f := cmd.Flags()
	f.StringVar(&l.Session, "session", "", `only turns of this session: an id, a unique beginning of one, or "last"`)
	f.StringVar(&l.Thread, "thread", "", "only turns of this thread")
	f.StringVar(&l.Role, "role", "", "only turns by this role, such as user")
	f.StringVar(&since, "since", "", "only turns since a time, or within a duration such as 7d")
	f.StringVar(&until, "until", "", "only turns before a time")
	f.StringVar(&l.Kind, "kind", "", "only sessions of this kind")
	f.StringVar(&l.Project, "project", "", "only sessions of this project")
	f.StringVar(&cwd, "cwd", "", "only sessions in this working directory")
	f.BoolVar(&l.All, "all", false, "also rewound turns")
	f.Var(cli.OneOf(&l.Sort, "order", catalog.ByNewest, catalog.ByRank), "sort", "newest or rank")
	f.IntVar(&l.Limit, "limit", 20, "maximal number of turns; 0 is all")
	return cmd
}

// filtersOf returns the flags that filter turns, as they were given.
func filtersOf(cmd *cobra.Command) string {
	text := ""
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != "all" && f.Name != "sort" && f.Name != "limit" {
			text += " --" + f.Name + " " + f.Value.String()
		}
	})
	return text
}

func search(ctx context.Context, a *cmdutil.App, r reads.Reader, l catalog.Lookup, filters string) (err error) {
	if l.Session != "" {
		if l.Session, err = listedAs(ctx, r.Views.Catalog, r.Namespace, l.Session); err != nil {
			return err
		}
	}
	found, err := r.Search(ctx, l)
	if err != nil {
		return err
	}
	if a.Format == cli.Text {
		writeHits(a, found.Items)
		a.AsOf(found.Cursor)
	} else if err := cli.WriteList(a.Out, a.Format, found.Items); err != nil {
		return err
	}
	if len(found.Items) == 0 {
		return nothingFound(l, found.Rewound, filters)
	}
	return nil
}

// nothingFound returns an error with the query, and with the number of matching turns that were rewound.
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

// listedAs returns the id of the session that an argument names, from the catalog. A search need not open the store.
func listedAs(ctx context.Context, r catalog.Reader, namespace, arg string) (string, error) {
	q := catalog.Query{Namespace: namespace, Grep: arg, Erased: true}
	if arg == cmdutil.Last {
		q.Grep, q.Sort, q.Limit, q.Erased = "", catalog.ByActive, 1, false
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
