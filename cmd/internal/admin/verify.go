package admin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

func newVerify(a *cmdutil.App) *cobra.Command {
	isAgents := false
	cmd := &cobra.Command{
		Use: "verify", Short: "Check that the views and snapshots match the log", Args: cobra.NoArgs,
		Long: `Check that the views and snapshots match the log: read the whole log, compute all views
from the beginning, and compare the result with the catalog, the search index and the
snapshots. Nothing is changed. Damaged records and the first difference of each view are
listed, and the exit code is 5. tally rebuild repairs views; the log itself is the truth.
Views that a program brings are named: only that program can compare them.

With --agents, the files in which agents keep their sessions are also compared with the
log, byte for byte. A file that grew since is equal if the log's part of it is. Files
that are gone, or had secrets removed or content erased, are counted.`,
		Example: cmdutil.Examples("tally verify", "tally verify -o json", "tally verify --agents"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithStillStore(cmd.Context(), func(st *tally.Store) error {
				v, err := verify(cmd.Context(), a, st)
				if err != nil {
					return err
				}
				all := verified{Verified: v}
				if all.Uncompared, err = ownNames(st); err != nil {
					return err
				}
				if isAgents {
					c, found, err := verifyAgents(cmd.Context(), st, os.Getenv)
					if err != nil {
						return err
					}
					all.Agents, all.Findings = &c, append(all.Findings, found...)
				}
				return printVerified(a, all)
			})
		},
	}
	cmd.Flags().BoolVar(&isAgents, "agents", false, "also compare the session files of agents")
	return cmd
}

// verified is the JSON output of verify.
type verified struct {
	projector.Verified
	Uncompared []string  `json:"uncompared,omitempty"` // views that only the program which brings them can compare
	Agents     *compared `json:"agents,omitempty"`
}

// verify adds the results of the command verify.
func (x *examination) verify(st *tally.Store) error {
	v, err := verify(x.ctx, x.app, st)
	if err != nil {
		return err
	}
	for _, f := range v.Findings {
		x.bad("verify", cli.Integrity, findingText(f), "tally rebuild rebuilds views and snapshots")
	}
	if len(v.Findings) == 0 {
		x.ok("verify", "%s read: views and snapshots match the log", plain.Count(v.Records, "record"))
	}
	return nil
}

// verify compares the views and snapshots of a store with its log.
func verify(ctx context.Context, a *cmdutil.App, st *tally.Store) (projector.Verified, error) {
	head, err := st.Log.Head(ctx)
	if err != nil {
		return projector.Verified{}, err
	}
	p := cli.NewProgress(a.Err, a.Progress, "verifying")
	v, err := st.Loader().Verify(ctx, func(n int) { p.At(int64(n), int64(head), plain.Count(n, "record")) })
	p.Done(int64(v.Records), plain.Count(v.Records, "record"))
	if err != nil || st.ViewsDir() == "" {
		return v, err
	}
	found, err := a.VerifyViews(ctx, st)
	v.Findings = append(v.Findings, found...)
	if err != nil {
		return v, err
	}
	what, err := unsettled(ctx, st.Log, settling)
	if what != "" {
		v.Findings = append(v.Findings, projector.Finding{Subject: "log", What: what})
	}
	return v, err
}

// settling is how long verify waits for stored records to become durable.
const settling = 2 * time.Second

// unsettled describes records that do not become durable, or returns "". Such records were not stored by an appender.
func unsettled(ctx context.Context, l interface {
	Head(context.Context) (events.Offset, error)
	Durable(context.Context) (events.Offset, error)
}, patience time.Duration) (string, error) {
	head, err := l.Head(ctx)
	for began := time.Now(); err == nil; {
		var durable events.Offset
		if durable, err = l.Durable(ctx); err != nil || durable >= head {
			break
		}
		if time.Since(began) > patience {
			return fmt.Sprintf("it ends at %v, but is durable only up to %v", head, durable), nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return "", err
}

func printVerified(a *cmdutil.App, v verified) error {
	if a.Format != cli.Text {
		if err := cli.WriteJSON(a.Out, a.Format, v); err != nil {
			return err
		}
	} else {
		for _, f := range v.Findings {
			a.Say("%s", findingText(f))
		}
		for _, name := range v.Uncompared {
			a.Say("%s: not compared, because only the program that brings the view can fold it", name)
		}
		verdict := "all views match the log"
		if len(v.Findings) > 0 {
			verdict = plain.Count(len(v.Findings), "finding")
		}
		records := plain.Count(v.Records, "record")
		if v.Erased > 0 {
			records += fmt.Sprintf(" (%d erased)", v.Erased)
		}
		a.Say("%s, %s, %s: %s", records, plain.Count(v.Sessions, "session"), plain.Count(v.Snapshots, "snapshot"), verdict)
		if v.Agents != nil {
			a.Say("%s", v.Agents.text())
		}
	}
	if len(v.Findings) > 0 {
		return cli.Silent(cli.Integrity)
	}
	return nil
}

func findingText(f projector.Finding) string {
	if f.Offset == 0 {
		return plain.Printable(f.Subject + ": " + f.What)
	}
	return fmt.Sprintf("%s %v: %s", plain.Printable(f.Subject), f.Offset, f.What)
}

// rebuilt is the JSON output of rebuild.
type rebuilt struct {
	Views     []rebuiltView `json:"views"`
	Snapshots int           `json:"snapshots"`
	Mended    []string      `json:"mended,omitempty"`  // subjects that were in quarantine
	Dropped   []string      `json:"dropped,omitempty"` // views of programs whose files were removed
}

type rebuiltView struct {
	View   string        `json:"view"`
	Offset events.Offset `json:"offset"`
}

// snapshots is the name of the snapshots in the list of views.
const snapshots = "snapshots"

func newRebuild(a *cmdutil.App) *cobra.Command {
	quarantined, drop, views := false, false, append(cmdutil.ViewNames(nil), snapshots)
	cmd := &cobra.Command{
		Use: "rebuild [VIEW]...", Short: "Rebuild the views from the log: " + strings.Join(views, ", "),
		ValidArgs: views,
		Long: `Rebuild the views from the log. Each view is built next to the current one and replaces
it at the end, so readers never see a gap. An interrupted rebuild continues the next
time. With --quarantined, only sessions that a view could not read are tried again.

A view that a program brings is folded by that program. With --drop, its files are
removed, and the program builds it again from the first event.`,
		Example: cmdutil.Examples("tally rebuild", "tally rebuild catalog --progress json", "tally rebuild --quarantined", "tally rebuild votes --drop"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c, err := a.Config(); err == nil {
				if refused := cmdutil.Refused(c); cli.Is[*embedded.ReadOnlyError](refused) {
					return refused
				}
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error {
				own, err := ownNames(st)
				if err != nil {
					return err
				}
				var r rebuilt
				if drop {
					r, err = dropOwn(st, args, own)
				} else if err = checkViews(args, views, own); err == nil {
					r, err = rebuild(cmd.Context(), a, st, args, quarantined)
				}
				if err != nil {
					return err
				}
				if a.Format != cli.Text {
					return cli.WriteJSON(a.Out, a.Format, r)
				}
				_, err = fmt.Fprint(a.Out, r)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&quarantined, "quarantined", false, "only sessions in quarantine")
	cmd.Flags().BoolVar(&drop, "drop", false, "remove the files of views that programs bring")
	cmd.MarkFlagsMutuallyExclusive("quarantined", "drop")
	return cmd
}

// ownNames returns the names of the views that programs bring and that have files.
func ownNames(st *tally.Store) ([]string, error) {
	if st.ViewsDir() == "" {
		return nil, nil
	}
	files, err := catalog.OwnIn(st.ViewsDir())
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	return slices.Compact(names), err
}

// checkViews refuses names that are not in views. own are the views that programs bring.
func checkViews(names, views, own []string) error {
	for _, name := range names {
		switch {
		case slices.Contains(own, name):
			return cli.Usagef("the program that brings the view %s folds it: call Store.Rebuild there, or use --drop", name)
		case !slices.Contains(views, name):
			return cli.Usagef("there is no view %q: want %s", name, cmdutil.Or(append(slices.Clone(views), own...)))
		}
	}
	return nil
}

// dropOwn removes the files of views that programs bring, of all versions.
func dropOwn(st *tally.Store, names, own []string) (rebuilt, error) {
	r := rebuilt{Views: []rebuiltView{}}
	if len(names) == 0 {
		return r, cli.Usagef("--drop needs the name of a view that a program brings")
	}
	for _, name := range names {
		if !slices.Contains(own, name) {
			return r, cli.Usagef("no program has brought a view %q to this store", name)
		}
	}
	files, err := catalog.OwnIn(st.ViewsDir())
	if err != nil {
		return r, err
	}
	for _, f := range files {
		if !slices.Contains(names, f.Name) {
			continue
		}
		if err := f.Remove(); err != nil {
			return r, err
		}
		if !slices.Contains(r.Dropped, f.Name) {
			r.Dropped = append(r.Dropped, f.Name)
		}
	}
	return r, nil
}

func rebuild(ctx context.Context, a *cmdutil.App, st *tally.Store, names []string, quarantined bool) (rebuilt, error) {
	r := rebuilt{Views: []rebuiltView{}}
	if a.IsMissing() {
		return r, nil
	}
	all := len(names) == 0
	views := slices.DeleteFunc(cmdutil.ViewNames(names), func(name string) bool { return name == snapshots })
	if quarantined {
		mended, err := a.Retry(ctx, st, views)
		for _, q := range mended {
			r.Mended = append(r.Mended, q.Subject.String())
		}
		return r, err
	}
	for _, name := range views {
		at, err := a.Rebuild(ctx, st, name)
		if err != nil {
			return r, err
		}
		r.Views = append(r.Views, rebuiltView{name, at})
	}
	if all && st.Snapshots() == nil || !all && !slices.Contains(names, snapshots) {
		return r, nil
	}
	var err error
	r.Snapshots, err = rebuildSnapshots(ctx, a, st)
	return r, err
}

func rebuildSnapshots(ctx context.Context, a *cmdutil.App, st *tally.Store) (int, error) {
	if st.Snapshots() == nil {
		return 0, &cli.CodeError{Code: cli.Failed, Err: errors.New("this store keeps no snapshots")}
	}
	p := cli.NewProgress(a.Err, a.Progress, "rebuilding snapshots")
	n, err := st.Loader().Rebuild(ctx, projector.Policy{}, func(n int) { p.At(int64(n), -1, plain.Count(n, "session")) })
	p.Done(int64(n), plain.Count(n, "snapshot"))
	return n, err
}

// String returns the result as text for people.
func (r rebuilt) String() string {
	var b strings.Builder
	for _, v := range r.Views {
		fmt.Fprintf(&b, "Rebuilt %s, as of %v.\n", v.View, v.Offset)
	}
	for _, sub := range r.Mended {
		fmt.Fprintf(&b, "%s is in the views again.\n", plain.Printable(sub))
	}
	for _, name := range r.Dropped {
		fmt.Fprintf(&b, "Removed %s: the program that brings the view builds it again.\n", name)
	}
	if r.Snapshots > 0 {
		fmt.Fprintf(&b, "Rebuilt %s; shorter sessions are folded when they are read.\n", plain.Count(r.Snapshots, "snapshot"))
	}
	if b.Len() == 0 {
		return "Nothing to rebuild.\n"
	}
	return b.String()
}
