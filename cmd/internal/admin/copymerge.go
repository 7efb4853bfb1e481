package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/tallylog/tally/cmd/internal/cli"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/render/plain"
	"github.com/tallylog/tally/internal/storecopy"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// mergedStore is the JSON output of copy if it merges.
type mergedStore struct {
	From       string                 `json:"from"`
	To         string                 `json:"to"`
	Merged     bool                   `json:"merged"` // true: the output is that of a merge
	DryRun     bool                   `json:"dryRun,omitempty"`
	Records    int                    `json:"records"` // appended, or planned
	Subjects   int                    `json:"subjects"`
	New        int                    `json:"new"`
	Same       int                    `json:"same"`
	Compared   int                    `json:"compared"`
	Invalid    int                    `json:"invalid,omitempty"`
	Personal   int                    `json:"personal,omitempty"`
	ErasedOnce int                    `json:"erasedOnce,omitempty"`
	Refused    []storecopy.Refusal    `json:"refused,omitempty"`
	RefusedAll int                    `json:"refusedSubjects,omitempty"`
	Lost       []events.Offset        `json:"lost,omitempty"`
	LostAll    int                    `json:"lostRecords,omitempty"`
	Diff       []storecopy.Difference `json:"differences,omitempty"`
	Differ     int                    `json:"differ,omitempty"`
}

// errMerge reports that the target has records of its own.
var errMerge = errors.New("the target has records of its own")

// merges reports whether an error says that the target is another log, into which the original can be merged.
func (c *storeCopy) merges(ctx context.Context, err error) bool {
	if c.follow || c.move || c.forget != "" || !cli.Is[*log.OtherLogError](err) {
		return false
	}
	if c.to.isServer() {
		return c.target.events.IsMarked(ctx) == nil
	}
	return storedir.Copying(c.to.dir) == nil
}

// merge merges the original into the target.
func (c *storeCopy) merge(ctx context.Context, lg *slog.Logger) (err error) {
	if c.follow || c.move || c.forget != "" {
		return cli.Usagef("--follow, --move and --forget copy a whole store: leave out --session, --namespace and --dry-run")
	}
	if c.original, err = c.from.open(ctx, lg, false); err != nil {
		return err
	}
	m := &storecopy.Merger{From: c.original, Sessions: c.chosen, Without: c.leftOut}
	if c.namespace != "" && len(c.chosen) == 0 {
		m.Namespaces = []string{c.namespace}
	}
	if c.original.events != nil {
		m.Loader = &projector.Loader{Source: c.original}
	}
	if err := c.openMerged(ctx, lg, m); err != nil {
		return errors.Join(err, c.original.close())
	}
	m.To = c.target.events
	var bars map[string]func(events.Offset)
	m.Progress = func(what string, at, end events.Offset) {
		if bars[what] == nil {
			bars = map[string]func(events.Offset){what: c.progress(what, end)}
		}
		bars[what](at)
	}
	d := mergedStore{From: c.from.text, To: c.to.text, Merged: true, DryRun: c.dryRun}
	err = c.runMerge(ctx, m, &d)
	if err := errors.Join(err, m.Close(), c.target.close(), c.original.close()); err != nil {
		return err
	}
	return c.reportMerge(d)
}

// openMerged opens the target. A dry run creates none.
func (c *storeCopy) openMerged(ctx context.Context, lg *slog.Logger, m *storecopy.Merger) (err error) {
	if c.dryRun {
		isNew, err := c.to.isMissing(ctx, lg)
		if err != nil {
			return err
		}
		if isNew {
			c.target, err = emptyTarget(ctx, lg)
			return err
		}
	}
	c.to.merge = true
	if c.target, err = c.to.openTarget(ctx, lg, c.from.text); err != nil {
		return err
	}
	if folder := config.StateFolder(os.Getenv); folder != "" {
		m.Table = filepath.Join(folder, "merge", c.from.config.StoreName()+"+"+c.to.config.StoreName()+".db")
	}
	return nil
}

// isMissing reports whether there is no store at a place.
func (p place) isMissing(ctx context.Context, lg *slog.Logger) (bool, error) {
	if !p.isServer() {
		info, err := storedir.Inspect(p.dir)
		return err == nil && info.State != storedir.Present, err
	}
	r, err := p.dial(ctx, lg, false)
	if coded, is := errors.AsType[*cli.CodeError](err); is && coded.Code == cli.NotFound {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, r.close()
}

func (c *storeCopy) runMerge(ctx context.Context, m *storecopy.Merger, d *mergedStore) error {
	plan, err := m.Plan(ctx)
	if err != nil {
		return err
	}
	d.Records, d.Subjects, d.New, d.Same, d.Invalid, d.Personal = plan.Records, plan.Subjects, plan.New, plan.Same, plan.Invalid, plan.Personal
	d.Refused, d.RefusedAll, d.Lost, d.LostAll = plan.Refused, plan.Refuses, plan.Lost, plan.Losses
	if c.dryRun {
		return nil
	}
	fmt.Fprintf(c.app.Err, "merging into %s, which has records of its own: %s of %s, %d of them new; %d with nothing new; %d refused\n",
		plain.Printable(d.To), plain.Count(plan.Records, "record"), plain.Count(plan.Subjects, "subject"), plan.New, plan.Same, plan.Refuses)
	done, err := m.Run(ctx)
	if err != nil {
		return err
	}
	d.Records, d.Refused, d.RefusedAll = done.Records, done.Refused, done.Refuses
	v, err := m.Verify(ctx)
	d.Compared, d.ErasedOnce, d.Diff, d.Differ = v.Sessions, v.Without, v.Differences, v.Differ
	return err
}

func (c *storeCopy) reportMerge(d mergedStore) error {
	var err error
	if c.app.Format != cli.Text {
		err = cli.WriteJSON(c.app.Out, c.app.Format, d)
	} else {
		err = c.printMerge(d)
	}
	switch {
	case err != nil:
		return err
	case d.LostAll > 0 || d.Differ > 0:
		return cli.Silent(cli.Integrity)
	case d.RefusedAll > 0:
		return cli.Silent(cli.Conflict)
	}
	return nil
}

func (c *storeCopy) printMerge(d mergedStore) error {
	a := c.app
	var err error
	switch {
	case d.DryRun:
		err = a.Say("Would merge %s of %s, %d of them new, from %s into %s. %d with nothing new.",
			plain.Count(d.Records, "record"), plain.Count(d.Subjects, "subject"), d.New, d.From, d.To, d.Same)
	case d.Records == 0:
		err = a.Say("Nothing new: %s has everything that can be merged.", d.To)
	default:
		err = a.Say("Merged %s of %s from %s into %s.", plain.Count(d.Records, "record"), plain.Count(d.Subjects, "subject"), d.From, d.To)
	}
	if d.Compared > 0 && d.Differ == 0 && err == nil {
		err = a.Say("Compared: %s in equal states.", plain.Count(d.Compared, "subject"))
	}
	note := func(n int, text string) {
		if n > 0 {
			fmt.Fprintf(a.Err, "note: %s %s\n", plain.Count(n, "record"), text)
		}
	}
	note(d.Personal, "of the namespace "+events.PersonalNamespace+" are not merged")
	note(d.Invalid, "without effect are not merged")
	if d.ErasedOnce > 0 {
		fmt.Fprintf(a.Err, "note: of %s one store has erased records that the other one still has\n", plain.Count(d.ErasedOnce, "subject"))
	}
	for _, r := range d.Refused {
		fmt.Fprintf(a.Err, "%s is not merged: %s\n", plain.Printable(r.Subject), plain.Printable(r.Why))
	}
	for _, at := range d.Lost {
		fmt.Fprintf(a.Err, "%v is lost in %s\n", at, plain.Printable(d.From))
	}
	for _, x := range d.Diff {
		fmt.Fprintf(a.Err, "%v %s: %s\n", x.Offset, plain.Printable(x.Subject), plain.Printable(x.What))
	}
	if more := d.RefusedAll - len(d.Refused) + d.LostAll - len(d.Lost) + d.Differ - len(d.Diff); more > 0 {
		fmt.Fprintf(a.Err, "and %s more\n", plain.Count(more, "line"))
	}
	return err
}
