package admin

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/quota"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

// usage is the usage of a scope in quota and status.
type usage struct {
	projector.Usage
	Percent int  `json:"percent,omitempty"`
	Warning bool `json:"warning,omitempty"` // at least 80 % of the limit
}

func newQuota(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "quota [SCOPE [LIMIT]]", Short: "Show how much space documents take, and limit it", Args: cobra.MaximumNArgs(2),
		Long: `Show how many bytes of documents are live, over all namespaces: in the whole store,
for each owner, and for each kind. With a LIMIT in bytes, KiB, MiB or GiB, set a limit;
none removes it. There are no limits by default.

A SCOPE is store, owner:NAME (owner: for documents without an owner) or kind:KIND. Only
the newest revision of a document counts, and nothing of a deleted one. Sessions are
not limited, and neither is the size of the log on disk.

A write by any user that would exceed a limit is refused. Existing documents stay.
Limits belong to the store directory: clients that connect through a server can see the
usage, but cannot set limits.`,
		Example: cmdutil.Examples("tally quota", "tally quota owner:ann 500MiB", "tally quota kind:note none", "tally quota -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if err := quota.CheckScope(args[0]); err != nil {
					return err
				}
			}
			if len(args) == 2 {
				return setLimit(cmd.Context(), a, args[0], args[1])
			}
			return a.WithStillStore(cmd.Context(), func(st *tally.Store) error { return showUsage(cmd.Context(), a, st, args) })
		},
	}
}

func setLimit(ctx context.Context, a *cmdutil.App, scope, text string) error {
	var limit uint64
	if text != "none" {
		var err error
		if limit, err = config.ParseSize(text); err != nil || limit == 0 {
			return cli.Usagef("limit %q: want a number of bytes, or of KiB, MiB or GiB, or none", text)
		}
	}
	return a.WithStore(ctx, func(st *tally.Store) error {
		if err := st.SetLimit(ctx, scope, int64(limit)); err != nil {
			return err
		}
		return showUsage(ctx, a, st, []string{scope})
	})
}

// showUsage prints the usage of the named scopes, or of all.
func showUsage(ctx context.Context, a *cmdutil.App, st *tally.Store, scopes []string) error {
	list, err := usageOf(ctx, st)
	if projector.Tolerate(err) != nil {
		return err
	}
	return errors.Join(printUsage(a, list, scopes), err)
}

func printUsage(a *cmdutil.App, list []usage, scopes []string) error {
	for _, scope := range scopes {
		list = only(list, scope)
	}
	if a.Format != cli.Text {
		return cli.WriteList(a.Out, a.Format, list)
	}
	style := a.Style()
	t := render.Table{Head: []string{"SCOPE", "DOCUMENTS", "LIVE", "LIMIT", "USED"}, Right: []int{1, 2, 3, 4}, Cut: []int{0}, Drop: []int{1, 4}}
	for _, u := range list {
		t.Rows = append(t.Rows, []string{cli.ID(u.Scope), strconv.Itoa(u.Documents), plain.Bytes(u.Bytes), u.limit(), u.used()})
	}
	t.Paint = func(row, column int, cell string) string {
		if row >= 0 && column == 4 && list[row].Warning {
			return style.Yellow(cell)
		}
		return cell
	}
	return a.Table(t)
}

// only returns the usage of one scope. A scope that is not listed is empty.
func only(list []usage, scope string) []usage {
	for _, u := range list {
		if u.Scope == scope {
			return []usage{u}
		}
	}
	return []usage{{Usage: projector.Usage{Scope: scope}}}
}

func usageOf(ctx context.Context, st *tally.Store) ([]usage, error) {
	list, err := st.Usage(ctx)
	all := make([]usage, len(list))
	for i, u := range list {
		all[i] = usage{u, u.Percent(), u.Warns()}
	}
	return all, err
}

func (u usage) limit() string {
	if u.Limit == 0 {
		return "-"
	}
	return plain.Bytes(u.Limit)
}

func (u usage) used() string {
	if u.Limit == 0 {
		return "-"
	}
	return strconv.Itoa(u.Percent) + " %"
}

func (u usage) String() string {
	text := fmt.Sprintf("%s: %s of %s live, %s", u.Scope, plain.Bytes(u.Bytes), plain.Bytes(u.Limit), u.used())
	if u.Warning {
		text += ": near its limit"
	}
	return text
}
