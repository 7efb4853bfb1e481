// Package runner runs the daemons of a store: it connects the loop of package daemon to a store and to the view of due
// work. Processes that run daemons report in a folder of the store's directory; [StatusOf] reads the reports.
package runner

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/daemon"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/statefile"
)

// reportsDir is the folder of a store for reports. Each process writes the file <pid>.json, and removes it when its
// daemons end.
const reportsDir = "daemons"

const reportVersion = 1 // of the format of these files

// Status is a process's report about one of its daemons.
type Status struct {
	PID     int       `json:"-"`
	Daemon  string    `json:"daemon"`
	Waits   string    `json:"waits"` // the event that the daemon waits for
	Next    time.Time `json:"next,omitzero"`
	Subject string    `json:"subject,omitempty"` // of the last decision
	What    string    `json:"what,omitempty"`    // the last decision
	At      time.Time `json:"at,omitzero"`       // time of the last decision, by the log's clock
	Made    int       `json:"made"`
	Refused int       `json:"refused"`
	Errors  int       `json:"errors"`
	Error   string    `json:"error,omitempty"`   // of the last check
	Warning string    `json:"warning,omitempty"` // the machine's clock and the log's time disagree
}

type report struct {
	Version int      `json:"version"`
	Daemons []Status `json:"daemons"`
}

// Run runs daemons on a store until ctx is done, and then returns nil. Run reports about them in dir, the store's
// directory. If dir is "", Run reports nowhere.
func Run(ctx context.Context, st *tally.Store, dir string, daemons []daemon.Daemon, lg *slog.Logger) error {
	changed := make(chan struct{}, 1)
	o, end, err := loopOptions(ctx, st, daemons, lg)
	if err != nil {
		if ctx.Err() != nil {
			err = nil
		}
		return err
	}
	defer end()
	o.Changed = func() {
		select {
		case changed <- struct{}{}:
		default: // a write is pending
		}
	}
	l := daemon.New(o)
	if dir != "" {
		defer keepReport(dir, l, changed, lg)()
	}
	return l.Run(ctx)
}

// Once lets daemons decide all work that is due now.
func Once(ctx context.Context, st *tally.Store, daemons []daemon.Daemon, lg *slog.Logger) ([]Status, error) {
	o, end, err := loopOptions(ctx, st, daemons, lg)
	if err != nil {
		return nil, err
	}
	defer end()
	l := daemon.New(o)
	err = l.Once(ctx)
	return statusOf(l.Status()), err
}

// loopOptions returns the options of a loop on a store. The caller calls end after the loop has ended.
func loopOptions(ctx context.Context, st *tally.Store, daemons []daemon.Daemon, lg *slog.Logger) (o daemon.Options, end func(), err error) {
	o = daemon.Options{Daemons: daemons, Now: st.LogTime, Logger: lg}
	o.Work, o.Shown, end, err = workOf(ctx, st)
	o.Follow = func(ctx context.Context, after events.Offset) iter.Seq2[events.Record, error] {
		return st.Log.Follow(ctx, events.Range{After: after})
	}
	return o, end, err
}

// reportPause is the shortest time between two writes of a report.
const reportPause = time.Second

// keepReport keeps this process's report up to date, from the time when each daemon has checked for work once. done
// removes the report.
func keepReport(dir string, l *daemon.Loop, changed <-chan struct{}, lg *slog.Logger) (done func()) {
	path := filepath.Join(dir, reportsDir, strconv.Itoa(os.Getpid())+".json")
	if lg == nil {
		lg = slog.New(slog.DiscardHandler)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		var failed error // the last write's
		for {
			select {
			case <-changed:
			case <-stop:
				return
			}
			list := l.Status()
			if slices.ContainsFunc(list, func(s daemon.Status) bool { return !s.Ran }) {
				continue
			}
			err := os.MkdirAll(filepath.Dir(path), 0o700)
			if err == nil {
				err = statefile.Write(path, report{reportVersion, statusOf(list)}, durable.NoSync)
			}
			if err != nil && failed == nil {
				lg.Warn("the report about the daemons is not stored", "path", path, "err", err)
			}
			failed = err
			select {
			case <-time.After(reportPause):
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		_ = os.Remove(path)
	}
}

func statusOf(list []daemon.Status) []Status {
	reported := make([]Status, len(list))
	for i, s := range list {
		reported[i] = Status{Daemon: s.Name, Waits: s.Waits(), Next: s.Next, What: s.Last.What, At: s.LastAt, Made: s.Made, Refused: s.Refused, Errors: s.Errors, Error: s.Error, Warning: s.Warning}
		if s.Next.Year() > 9999 { // a lease written by hand may name a year that JSON times cannot express
			reported[i].Next = time.Time{}
		}
		if !s.LastAt.IsZero() {
			reported[i].Subject = s.Last.Subject.String()
		}
	}
	return reported
}

// StatusOf returns the reports in a store's directory, ordered by process id. Killed processes leave their reports
// behind: the caller checks whether a process lives.
func StatusOf(dir string) (list []Status, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, reportsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		pid, nerr := strconv.Atoi(strings.TrimSuffix(e.Name(), ".json"))
		if nerr != nil {
			continue
		}
		var r report
		if statefile.Read(filepath.Join(dir, reportsDir, e.Name()), reportVersion, &r) != nil {
			continue // the process ended meanwhile, or the format is another one
		}
		for _, d := range r.Daemons {
			d.PID = pid
			list = append(list, d)
		}
	}
	slices.SortStableFunc(list, func(a, b Status) int { return a.PID - b.PID })
	return list, err
}
