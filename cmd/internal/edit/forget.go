package edit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/nats/natsdial"
	"github.com/tallylog/tally/internal/render/plain"
)

// forgotten is the output of forget, with -o json.
type forgotten struct {
	Receipt   string             `json:"receipt,omitempty"` // absent: nothing was to be forgotten, or of a dry run
	Scope     string             `json:"scope"`
	By        string             `json:"by,omitempty"`
	At        string             `json:"at,omitempty"`
	Reason    string             `json:"reason,omitempty"`
	Records   int                `json:"records"`
	Bytes     int                `json:"bytes"`
	Subjects  []forgottenSubject `json:"subjects"`
	Unreached []string           `json:"unreached,omitempty"`
	DryRun    bool               `json:"dryRun,omitempty"`
}

type forgottenSubject struct {
	Subject   string `json:"subject"`
	Namespace string `json:"namespace"`
	Records   int    `json:"records"`
	Bytes     int    `json:"bytes"`
}

type forgetter struct {
	app          *cmdutil.App
	what         tally.Forget
	turn, before string
	plan         string
	due, yes     bool
}

func newForget(a *cmdutil.App) *cobra.Command {
	f := &forgetter{app: a}
	cmd := &cobra.Command{
		Use: "forget [SESSION|document/KIND/ID] [@N]", Short: "Remove content from the store for good", Args: cobra.MaximumNArgs(2),
		Long: `Remove content from the store for good: of a session, one of its threads, turns or records,
or of a document. It is removed from the log, from snapshots, views and trees, and so are
large content, imported files and sealed secrets that nothing else names. Ids, types, times
and lengths of records stay, and so do tokens and prices: no offset changes.

Without -y the command says what goes, and asks. It ends with a receipt, the document
receipt/ID, and with the places that it did not reach, such as older backups.

--before and --namespace leave out what work needs: queues, items, inboxes, flows, locks and
agents. --due forgets the sessions that are older than [retain] in your config.toml says; the
owner of a store does it once a day.

Records on a server that others run cannot be changed: the exit code is 8. --plan writes a
file with which tally copy makes a store without the content.`,
		Example: cmdutil.Examples("tally forget travel", "tally forget travel --turn '#3' --reason 'a password'", "tally forget travel --thread agent-1 -y", "tally forget travel @1234",
			"tally forget document/doc/plan.md", "tally forget --before 2026-01-01 --dry-run", "tally forget --namespace trial -y"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.parse(args, cmd.Flags().Changed("namespace")); err != nil {
				return err
			}
			return a.WithExisting(cmd.Context(), func(st *tally.Store) error { return f.run(cmd.Context(), st, args) })
		},
	}
	x := cmd.Flags()
	x.StringVar(&f.turn, "turn", "", "one turn in effect, such as '#3'")
	x.StringVar(&f.what.Thread, "thread", "", "one thread, or with --turn the thread of the turn")
	x.BoolVar(&f.what.Children, "children", false, "also the sessions that SESSION started")
	x.StringVar(&f.before, "before", "", "sessions whose last record is older")
	x.StringVar(&f.what.Reason, "reason", "", "reason, for the receipt")
	x.BoolVarP(&f.what.Dry, "dry-run", "n", false, "show what would be forgotten, and change nothing")
	x.BoolVarP(&f.yes, "yes", "y", false, "do not ask for confirmation")
	x.StringVar(&f.plan, "plan", "", "write the plan for tally copy --forget to this file, and change nothing")
	x.BoolVar(&f.due, "due", false, "what [retain] in config.toml says")
	return cmd
}

// parse checks the arguments.
func (f *forgetter) parse(args []string, inNamespace bool) (err error) {
	if len(args) > 0 && strings.HasPrefix(args[len(args)-1], "@") {
		if f.what.Record, err = events.ParseOffset(args[len(args)-1]); err != nil || f.what.Record == 0 {
			return cli.Usagef("%q is not the offset of a record", args[len(args)-1])
		}
		args = args[:len(args)-1]
	}
	if len(args) > 1 {
		return cli.Usagef("%q: want the offset of a record, such as @1234", args[1])
	}
	if f.turn != "" {
		n, err := strconv.Atoi(strings.TrimPrefix(f.turn, "#"))
		if err != nil || n < 1 {
			return cli.Usagef("--turn %q: want a number such as '#3'", f.turn)
		}
		f.what.Turn = n
	}
	if f.what.Before, err = cmdutil.When("before", f.before, time.Now()); err != nil {
		return err
	}
	isNamed := len(args) > 0 || f.what.Record != 0
	isPart := f.what.Turn != 0 || f.what.Thread != "" || f.what.Children
	switch {
	case f.due && (isNamed || isPart || f.before != ""):
		return cli.Usagef("--due takes what [retain] says: name nothing else")
	case f.due:
		return nil
	case isNamed && f.before != "":
		return cli.Usagef("--before selects sessions: name none")
	case isPart && (len(args) == 0 || strings.HasPrefix(args[0], "document/")):
		return cli.Usagef("--turn, --thread and --children need a SESSION")
	case !isNamed && f.before == "" && !inNamespace:
		return cli.Usagef("name a session, a document, a record, --before or --namespace")
	}
	if !isNamed {
		c, err := f.app.Config()
		f.what.Namespace = c.Namespace
		return err
	}
	return nil
}

func (f *forgetter) run(ctx context.Context, st *tally.Store, args []string) error {
	if f.due {
		return f.runDue(ctx, st)
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "@") {
		if strings.HasPrefix(args[0], "document/") {
			f.what.Document = args[0]
		} else {
			s, err := f.app.Session(ctx, st, args[0])
			if err != nil {
				return err
			}
			f.what.Session = s.ID()
		}
	}
	r, err := f.forget(ctx, st, f.what)
	if err != nil {
		return err
	}
	return f.report(r)
}

// forget shows what goes and asks, unless -y was given, and then forgets it.
func (f *forgetter) forget(ctx context.Context, st *tally.Store, what tally.Forget) (tally.Receipt, error) {
	what.Dry = true
	r, err := st.Forget(ctx, what)
	if err != nil {
		return r, forgetError(err)
	}
	if f.plan != "" && r.ID != "" {
		text, err := r.Plan()
		if err == nil {
			err = durable.Replace(f.plan, text, 0o600, durable.WithSync)
		}
		if err != nil {
			return r, err
		}
		fmt.Fprintf(f.app.Err, "The plan is in %s.\n", plain.Printable(f.plan))
	}
	c, err := f.app.Config()
	if err != nil || f.what.Dry || r.ID == "" {
		return r, err
	}
	if st.Log.Shared() {
		f.what.Dry = true
		if err := f.report(r); err != nil {
			return r, err
		}
		return r, onServer(cmp.Or(f.plan, r.ID+".json"), natsdial.Redacted(cmp.Or(c.Server.URL, "OLD")), f.plan == "")
	}
	if f.plan != "" {
		f.what.Dry = true
		return r, nil
	}
	if !f.yes {
		fmt.Fprintln(f.app.Err, sum(r)+" of "+plain.Printable(r.Scope)+" will be removed for good.")
	}
	if err := f.app.Confirm(f.yes, "Forget "+plain.Printable(r.Scope)+"?"); err != nil {
		return r, err
	}
	what.Dry = false
	r, err = st.Forget(ctx, what)
	return r, forgetError(err)
}

// onServer is the error for records that nobody can change, with the commands that make a store without them.
func onServer(file, url string, unwritten bool) error {
	hint := ""
	if unwritten {
		hint = "Write the plan with --plan " + file + ". Then "
	}
	return &cli.CodeError{Code: cli.Incompatible, Err: errors.New("records on a server cannot be rewritten"),
		Hint: hint + fmt.Sprintf("tally copy %s NEW --forget %s makes a store without them, at the same offsets; then: nats stream rm TALLY_1", url, file)}
}

func forgetError(err error) error {
	switch {
	case cli.Is[*tally.KindError](err):
		return &cli.CodeError{Code: cli.Conflict, Err: err}
	case errors.Is(err, errors.ErrUnsupported):
		return &cli.CodeError{Code: cli.Incompatible, Err: err}
	}
	return err
}

// sum counts what a receipt has.
func sum(r tally.Receipt) string {
	sessions, documents := 0, 0
	for _, s := range r.Subjects {
		switch {
		case s.Subject.IsSession():
			sessions++
		case s.Subject.Kind != events.KindUnit && s.Subject.Kind != events.KindBlob:
			documents++
		}
	}
	var parts []string
	if sessions > 0 {
		parts = append(parts, plain.Count(sessions, "session"))
	}
	if documents > 0 {
		parts = append(parts, plain.Count(documents, "document"))
	}
	return strings.Join(append(parts, plain.Count(r.Records, "record"), plain.Bytes(int64(r.Bytes))), ", ")
}

// report prints a receipt.
func (f *forgetter) report(r tally.Receipt) error {
	isDry := f.what.Dry || f.plan != ""
	if f.app.Format != cli.Text {
		out := forgotten{Receipt: r.ID, Scope: r.Scope, By: r.By, Reason: r.Reason, Records: r.Records, Bytes: r.Bytes, Subjects: []forgottenSubject{}, Unreached: r.Unreached, DryRun: isDry}
		if isDry {
			out.Receipt = ""
		}
		if !r.At.IsZero() {
			out.At = r.At.Format(time.RFC3339)
		}
		for _, s := range r.Subjects {
			out.Subjects = append(out.Subjects, forgottenSubject{s.Subject.String(), s.Subject.Namespace, s.Records, s.Bytes})
		}
		return cli.WriteJSON(f.app.Out, f.app.Format, out)
	}
	var err error
	switch {
	case r.ID == "":
		err = f.app.Say("Nothing to forget: %s has no content.", r.Scope)
	case isDry:
		err = f.app.Say("Would forget: %s.", sum(r))
		for _, s := range r.Subjects {
			if err == nil && s.Subject.Kind != events.KindUnit {
				err = f.app.Say("  %s  %s, %s", cmdutil.NameOf(s.Subject), plain.Count(s.Records, "record"), plain.Bytes(int64(s.Bytes)))
			}
		}
	default:
		err = f.app.Say("Forgotten: %s. Receipt %s (tally doc cat receipt/%s).", sum(r), r.ID, r.ID)
	}
	if err != nil || len(r.Unreached) == 0 {
		return err
	}
	lines := []string{"Not reached by this:"}
	for _, line := range r.Unreached {
		lines = append(lines, "  "+plain.Printable(line))
	}
	_, err = fmt.Fprintln(f.app.Out, strings.Join(lines, "\n"))
	return err
}

// runDue forgets what [retain] says.
func (f *forgetter) runDue(ctx context.Context, st *tally.Store) error {
	c, err := f.app.Config()
	if err != nil {
		return err
	}
	if len(c.Retain) == 0 {
		return &cli.CodeError{Code: cli.BadUsage, Err: errors.New("no time is set"), Hint: "Set sessions or jobs in [retain] of your config.toml."}
	}
	due, err := st.Due(ctx, cmdutil.RetentionOf(c.Retain))
	if err != nil {
		return err
	}
	some := false
	for _, what := range due {
		what.Reason = cmp.Or(f.what.Reason, what.Reason)
		r, err := f.forget(ctx, st, what)
		if err != nil {
			return err
		}
		if r.ID == "" {
			continue
		}
		some = true
		if err := f.report(r); err != nil {
			return err
		}
	}
	if !some {
		return f.report(tally.Receipt{Scope: "[retain]"})
	}
	return nil
}
