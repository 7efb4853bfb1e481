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

// usage is what quota and status say of a scope.
type usage struct {
	projector.Usage
	Percent int  `json:"percent,omitempty"`
	Warning bool `json:"warning,omitempty"` // 80 % of the limit or more
}

func newQuota(a *cmdutil.App) *cobra.Command {
	return &cobra.Command{
		Use: "quota [SCOPE [LIMIT]]", Short: "Show how much is live of documents, and limit it", Args: cobra.MaximumNArgs(2),
		Long: `Show how many bytes of documents can be read now: of the store, of each owner, of
each kind, over all namespaces. With a LIMIT, in bytes, KiB, MiB or GiB, set one; none
takes it away. By default nothing is limited.

A SCOPE is store, owner:NAME (owner: is what has none) or kind:KIND. Only the newest
revision of a document counts, and nothing of one that is deleted. Sessions are not
limited, nor what the log takes on disk.

What would pass a limit is refused, for whoever writes; what is there stays. Limits
are those of the store directory: who reaches the store through a server sees what is
used, and sets none.`,
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

// showUsage shows what scopes use, all or those that are named.
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

// only returns what is listed of a scope. One that is not listed has nothing.
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
