package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/storecopy"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// copiedStore is the JSON output of copy.
type copiedStore struct {
	From     string          `json:"from"`
	To       string          `json:"to"`
	First    events.Offset   `json:"first,omitempty"` // that this run copied; absent: nothing was new
	Last     events.Offset   `json:"last"`
	Records  int             `json:"records"` // equal in both
	Personal int             `json:"personal,omitempty"`
	Without  int             `json:"without,omitempty"`
	Large    int             `json:"large,omitempty"`
	Sessions int             `json:"sessions,omitempty"` // whose states were compared
	Lost     []events.Offset `json:"lost,omitempty"`     // the first ones
	LostAll  int             `json:"lostRecords,omitempty"`
	Moved    bool            `json:"moved,omitempty"`

	Differences []storecopy.Difference `json:"differences,omitempty"` // the first ones
	Differ      int                    `json:"differ,omitempty"`
}

// storeCopy is a run of copy.
type storeCopy struct {
	app          *cmdutil.App
	follow, move bool
	dryRun       bool
	without      []string
	forget       string           // file of a plan
	sessions     []string         // to merge
	chosen       []events.Subject // the same
	namespace    string           // to merge; "": none was given
	leftOut      []events.Subject
	plan         *erasure.Plan // nil: none
	from, to     place
	original     original
	target       target
	copier       *storecopy.Copier
	verified     storecopy.Verified
	seen         events.Offset // up to where both logs were compared
	done         copiedStore
}

func newCopy(a *cmdutil.App) *cobra.Command {
	c := &storeCopy{app: a}
	cmd := &cobra.Command{
		Use: "copy FROM TO", Short: "Copy a store to a folder or a server, or merge it into another one", Args: cobra.ExactArgs(2),
		Long: `Copy a store record by record. FROM and TO are a folder, the URL of a NATS server that
others run, or context:NAME, a context of the nats command. FROM can also be a folder of
backups, of which the newest one is copied.

Each record of the copy has the offset of its original, so every position stays right. TO
is new, or an earlier copy of FROM: then the rest is copied. An interrupted copy continues
in the same way, and takes no appends before it is complete. At the end both stores are
read and compared. Exit code 5 reports a difference, or records that FROM has lost.

Personal settings (namespace _personal) are not copied. --without leaves sessions out. In
both cases empty records take their places. --forget leaves out the content that a plan of
tally forget --plan names: the records stay, as after tally forget.

--follow copies new records until the command is interrupted. --move marks FROM as moved
when everything is copied: from then on FROM takes no appends.

If TO has records of its own, FROM is merged into it: records get new offsets, and so does
what refers to them. --session and --namespace merge a part, into a new TO too. Sessions
and documents that differ in both stores are refused by name, and so is work of queues,
flows and agents: exit code 6. The others are merged. --dry-run prints what would happen.`,
		Example: cmdutil.Examples("tally copy old new", "tally copy old nats://tally.example.com --follow",
			"tally copy old context:team --move", "tally copy /mnt/backups new",
			"tally copy laptop team --dry-run", "tally copy laptop team --session travel"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range []string{"store", "server", "context"} {
				if cmd.Flags().Changed(name) {
					return cli.Usagef("copy names both stores as arguments: leave out --%s", name)
				}
			}
			if cmd.Flags().Changed("namespace") {
				c.namespace = cmd.Flag("namespace").Value.String()
			}
			return copyError(c.run(cmd.Context(), args))
		},
	}
	f := cmd.Flags()
	f.BoolVar(&c.follow, "follow", false, "copy new records until interrupted")
	f.BoolVar(&c.move, "move", false, "mark FROM as moved to TO when everything is copied")
	f.StringVar(&c.forget, "forget", "", "file of a plan of tally forget: leave its content out")
	f.BoolVar(&c.dryRun, "dry-run", false, "print what would be merged, and write nothing")
	f.StringArrayVar(&c.sessions, "session", nil, "session to merge; may be repeated")
	f.StringArrayVar(&c.without, "without", nil, "session to leave out; may be repeated")
	return cmd
}

func (c *storeCopy) run(ctx context.Context, args []string) (err error) {
	if err := c.places(args); err != nil {
		return err
	}
	lg, err := c.app.Logger()
	if err != nil {
		return err
	}
	ctx = log.NoteDamage(ctx, nil) // the report names lost records
	if len(c.chosen) > 0 || c.namespace != "" || c.dryRun {
		return c.merge(ctx, lg)
	}
	if err := c.open(ctx, lg); err != nil {
		return err
	}
	err = c.copy(ctx)
	closed := errors.Join(c.target.close(), c.original.close())
	switch {
	case errors.Is(err, errMerge) && closed == nil:
		return c.merge(ctx, lg)
	case err != nil || closed != nil:
		return errors.Join(err, closed)
	}
	return c.report()
}

// places checks the arguments.
func (c *storeCopy) places(args []string) (err error) {
	if c.from, err = placeOf(c.app, args[0]); err != nil {
		return err
	}
	if c.to, err = placeOf(c.app, args[1]); err != nil {
		return err
	}
	c.done.From, c.done.To = c.from.text, c.to.text
	own, err := c.app.Config()
	if err != nil {
		return err
	}
	for _, id := range c.without {
		c.leftOut = append(c.leftOut, events.Session(own.Namespace, id))
	}
	if c.forget != "" {
		text, err := os.ReadFile(c.forget)
		if err != nil {
			return err
		}
		plan, err := erasure.Decode(c.forget, text)
		if err != nil {
			return err
		}
		c.plan = &plan
	}
	for _, id := range c.sessions {
		c.chosen = append(c.chosen, events.Session(own.Namespace, id))
	}
	switch {
	case c.to.isBackups():
		return cli.Usagef("%s has backups: a store is copied to a folder of its own", c.to.text)
	case c.from.isBackups() && (c.follow || c.move):
		return cli.Usagef("%s has backups, which neither grow nor move: leave out --follow and --move", c.from.text)
	case c.from.isServer() || c.to.isServer():
		return nil
	}
	if apart(c.from.dir, c.to.dir) != nil {
		return cli.Usagef("%s and %s are inside one another: copy to a folder of its own", c.from.dir, c.to.dir)
	}
	return nil
}

// open opens both stores.
func (c *storeCopy) open(ctx context.Context, lg *slog.Logger) (err error) {
	if c.original, err = c.from.open(ctx, lg, c.move); err != nil {
		return err
	}
	if c.target, err = c.to.openTarget(ctx, lg, c.from.text); err != nil {
		return errors.Join(err, c.original.close())
	}
	if !c.original.made.IsZero() && c.original.made.Equal(c.target.made) {
		return errors.Join(cli.Usagef("%s and %s are the same log", c.from.text, c.to.text), c.target.close(), c.original.close())
	}
	c.copier = &storecopy.Copier{From: c.original, To: c.target.events, Without: c.leftOut, Forget: c.plan}
	return nil
}

// copy copies, compares both stores, and moves the original if it is to be moved.
func (c *storeCopy) copy(ctx context.Context) error {
	at, err := c.copier.Begin(ctx)
	if c.merges(ctx, err) {
		return errMerge
	}
	if err != nil {
		return err
	}
	if err := c.copier.Survey(ctx, at); err != nil {
		return err
	}
	// From here on TO is written to, and is an unfinished copy until it was compared.
	if err := c.target.mark(ctx); err != nil {
		return err
	}
	last, err := c.catchUp(ctx)
	if err != nil {
		return err
	}
	if c.follow {
		until := ctx
		ctx = context.WithoutCancel(ctx) // a signal ends only the following
		fmt.Fprintf(c.app.Err, "%s is copied up to %v; new records follow until you interrupt\n", plain.Printable(c.from.text), last)
		if _, err = c.copier.Follow(ctx, until, c.original.events); err == nil {
			last, err = c.catchUp(ctx)
		}
	}
	if err == nil && c.move && c.verified.Differ == 0 {
		// The commit point of a move: from here on FROM takes no appends. If this process ends now, TO may lack the last
		// records, and the next copy --move adds them.
		if err = c.original.move(ctx, c.to.text); err == nil {
			last, err = c.catchUp(ctx)
			c.done.Moved = true
		}
	}
	if err == nil && c.plan == nil { // otherwise they differ by the content
		err = c.states(ctx, last)
	}
	if err == nil && c.verified.Differ == 0 {
		err = c.copier.Receipt(ctx)
	}
	if last > at {
		c.done.First = at + 1
	}
	c.done.Last = last
	if err != nil || c.verified.Differ > 0 {
		return err
	}
	if c.done.Moved {
		if err := c.target.back(); err != nil {
			return err
		}
	}
	return c.target.unmark(ctx)
}

// catchUp copies up to the durable end, and compares the records that were not compared before.
func (c *storeCopy) catchUp(ctx context.Context) (last events.Offset, err error) {
	end, err := c.original.Durable(ctx)
	if err != nil {
		return 0, err
	}
	c.copier.Progress = c.progress("copying", end)
	if last, err = c.copier.Run(ctx); err != nil {
		return last, err
	}
	c.copier.Progress = c.progress("comparing", last)
	more, err := c.copier.Verify(ctx, c.seen, last)
	c.verified.Add(more)
	c.seen = last
	return last, err
}

func (c *storeCopy) progress(what string, end events.Offset) func(events.Offset) {
	p := cli.NewProgress(c.app.Err, c.app.Progress, what)
	return func(at events.Offset) { p.At(int64(at), int64(end), at.String()) }
}

// states compares the states of the sessions of which the original has snapshots.
func (c *storeCopy) states(ctx context.Context, last events.Offset) error {
	from, ok := c.original.Source.(projector.Source)
	if c.original.snapshots == nil || !ok || last == 0 {
		return nil
	}
	var sessions []events.Subject
	seen := make(map[events.Subject]bool)
	for m, err := range c.original.snapshots.All(ctx) {
		if err != nil || !m.Subject.IsSession() || m.Offset > last || m.Subject.Namespace == events.PersonalNamespace || slices.Contains(c.leftOut, m.Subject) || seen[m.Subject] {
			continue // a damaged one, which loads ignore, or one that does not count here
		}
		seen[m.Subject] = true
		sessions = append(sessions, m.Subject)
	}
	return c.verified.States(ctx, &projector.Loader{Source: from, Snapshots: c.original.snapshots, ReadOnly: true},
		&projector.Loader{Source: c.target.events}, last, sessions)
}

// report prints the result.
func (c *storeCopy) report() error {
	v := c.verified
	d := &c.done
	d.Records, d.Personal, d.Without, d.Large, d.Sessions = v.Records, v.Personal, v.Without, v.Large, v.Sessions
	d.Lost, d.LostAll, d.Differences, d.Differ = v.Lost, v.LostRecords, v.Differences, v.Differ
	var err error
	if c.app.Format != cli.Text {
		err = cli.WriteJSON(c.app.Out, c.app.Format, d)
	} else {
		err = c.print()
	}
	if err == nil && (v.LostRecords > 0 || v.Differ > 0) {
		return cli.Silent(cli.Integrity)
	}
	return err
}

func (c *storeCopy) print() error {
	d, a := c.done, c.app
	var err error
	if d.First == 0 {
		err = a.Say("Nothing new: %s has everything up to %v.", d.To, d.Last)
	} else {
		err = a.Say("Copied %v to %v from %s to %s.", d.First, d.Last, d.From, d.To)
	}
	if d.Differ == 0 && err == nil {
		err = a.Say("Compared: %s are equal.", plain.Count(d.Records, "record"))
	}
	if d.Personal > 0 {
		fmt.Fprintf(a.Err, "note: %s of the namespace %s are not copied\n", plain.Count(d.Personal, "record"), events.PersonalNamespace)
	}
	if d.Without > 0 {
		fmt.Fprintf(a.Err, "note: %s of sessions that were left out are not copied\n", plain.Count(d.Without, "record"))
	}
	for _, at := range d.Lost {
		fmt.Fprintf(a.Err, "%v is lost in %s: an empty record takes its place\n", at, plain.Printable(d.From))
	}
	if more := d.LostAll - len(d.Lost); more > 0 {
		fmt.Fprintf(a.Err, "and %s more\n", plain.Count(more, "lost record"))
	}
	for _, x := range d.Differences {
		fmt.Fprintf(a.Err, "%v %s: %s\n", x.Offset, plain.Printable(x.Subject), plain.Printable(x.What))
	}
	if more := d.Differ - len(d.Differences); more > 0 {
		fmt.Fprintf(a.Err, "and %s more\n", plain.Count(more, "difference"))
	}
	if d.Moved && err == nil {
		err = a.Say("%s was moved: it takes no appends any more.", d.From)
	}
	return err
}

// copyError adds exit codes and hints to errors of copy.
func copyError(err error) error {
	switch {
	case cli.Is[*log.OtherLogError](err):
		return &cli.CodeError{Code: cli.Conflict, Err: err, Hint: "Name a new target, or the original of which it is a copy."}
	case cli.Is[*storecopy.ForkError](err):
		return &cli.CodeError{Code: cli.Conflict, Err: err, Hint: "Leave the fork out too, or neither of them."}
	case cli.Is[*storecopy.SizeError](err):
		return &cli.CodeError{Code: cli.Incompatible, Err: err}
	}
	return backupError(err)
}
