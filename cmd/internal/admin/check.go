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
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/projector"
)

func newVerify(a *cmdutil.App) *cobra.Command {
	isAgents := false
	cmd := &cobra.Command{
		Use: "verify", Short: "Fold everything from zero and compare it with what is stored", Args: cobra.NoArgs,
		Long: `Read the whole log, fold it from zero, and compare that with every view: the rows
of the catalog, the turns that are searched, the snapshots. Nothing is changed. A
damaged record and the first difference of each view are named, and the exit code
is 5. Views that differ are mended by rebuild; the log itself is the truth.

With --agents the files in which agents keep their sessions are compared with what the
log has of them, too, byte for byte. A file that went on since is equal as far as the
log has it; one that is gone, or of which secrets were taken out, is counted.`,
		Example: cmdutil.Examples("tally verify", "tally verify -o json", "tally verify --agents"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithStillStore(cmd.Context(), func(st *tally.Store) error {
				v, err := verify(cmd.Context(), a, st)
				if err != nil {
					return err
				}
				all := verified{Verified: v}
				if isAgents {
					c, found, err := verifyAgents(cmd.Context(), st, os.Getenv)
					if err != nil {
						return err
					}
					all.Agents, all.Findings = &c, append(all.Findings, found...)
				}
				return report(a, all)
			})
		},
	}
	cmd.Flags().BoolVar(&isAgents, "agents", false, "compare the files of agents that are there, too")
	return cmd
}

// verified is what verify prints with -o json.
type verified struct {
	projector.Verified
	Agents *compared `json:"agents,omitempty"`
}

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

// settling is how long what is stored is given to become durable.
const settling = 2 * time.Second

// unsettled says what of a log does not become durable: nobody who appends to it stored
// that.
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
			return fmt.Sprintf("it goes to %v, and only what is up to %v is durable", head, durable), nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return "", err
}

func report(a *cmdutil.App, v verified) error {
	if a.Format != cli.Text {
		if err := cli.WriteJSON(a.Out, a.Format, v); err != nil {
			return err
		}
	} else {
		for _, f := range v.Findings {
			a.Say("%s", findingText(f))
		}
		verdict := "all views match the log"
		if len(v.Findings) > 0 {
			verdict = plain.Count(len(v.Findings), "finding")
		}
		a.Say("%s, %s, %s: %s", plain.Count(v.Records, "record"), plain.Count(v.Sessions, "session"), plain.Count(v.Snapshots, "snapshot"), verdict)
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

// rebuilt is what rebuild prints with -o json.
type rebuilt struct {
	Views     []rebuiltView `json:"views"`
	Snapshots int           `json:"snapshots"`
	Mended    []string      `json:"mended,omitempty"` // subjects that were quarantined
}

type rebuiltView struct {
	View   string        `json:"view"`
	Offset events.Offset `json:"offset"`
}

// snapshots stands for the snapshots among the names of views.
const snapshots = "snapshots"

func newRebuild(a *cmdutil.App) *cobra.Command {
	quarantined, views := false, append(cmdutil.ViewNames(nil), snapshots)
	cmd := &cobra.Command{
		Use: "rebuild [VIEW]...", Short: "Fold the log anew and replace the views: " + strings.Join(views, ", "),
		Args: cobra.OnlyValidArgs, ValidArgs: views,
		Long: `Fold the log from zero and replace the views with that. Each is built beside the one
that is read and takes its place at the end, so that readers never see a gap. What
is stopped in the middle goes on there the next time. With --quarantined only the
subjects are folded anew that a view could not fold.`,
		Example: cmdutil.Examples("tally rebuild", "tally rebuild catalog --progress json", "tally rebuild --quarantined"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c, err := a.Config(); err == nil {
				if refused := cmdutil.Refused(c); cli.Is[*embedded.ReadOnlyError](refused) {
					return refused
				}
			}
			return a.WithStore(cmd.Context(), func(st *tally.Store) error {
				r, err := rebuild(cmd.Context(), a, st, args, quarantined)
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
	cmd.Flags().BoolVar(&quarantined, "quarantined", false, "only the subjects that are quarantined")
	return cmd
}

func rebuild(ctx context.Context, a *cmdutil.App, st *tally.Store, names []string, quarantined bool) (rebuilt, error) {
	r := rebuilt{Views: []rebuiltView{}}
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

// String says what was rebuilt, for people.
func (r rebuilt) String() string {
	var b strings.Builder
	for _, v := range r.Views {
		fmt.Fprintf(&b, "Rebuilt %s, as of %v.\n", v.View, v.Offset)
	}
	for _, sub := range r.Mended {
		fmt.Fprintf(&b, "%s is in the views again.\n", plain.Printable(sub))
	}
	if r.Snapshots > 0 {
		fmt.Fprintf(&b, "Rebuilt %s; shorter sessions are folded when they are read.\n", plain.Count(r.Snapshots, "snapshot"))
	}
	if b.Len() == 0 {
		return "There is nothing that needs it.\n"
	}
	return b.String()
}
