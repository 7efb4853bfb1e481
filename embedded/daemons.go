package embedded

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
	"sync"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/daemon"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/disk/statefile"
)

// daemonsDir is the folder of a store in which processes say what their daemons do: a file
// each, <pid>.json, which goes when they end.
const daemonsDir = "daemons"

const daemonsVersion = 1 // of the format of these files

// DaemonStatus is what a process said of one of its daemons.
type DaemonStatus struct {
	PID     int       `json:"-"`
	Daemon  string    `json:"daemon"`
	Waits   string    `json:"waits"` // for what
	Next    time.Time `json:"next,omitzero"`
	Subject string    `json:"subject,omitempty"` // of its last decision
	What    string    `json:"what,omitempty"`    // that it decided
	At      time.Time `json:"at,omitzero"`       // when, by the log's time
	Made    int       `json:"made"`
	Refused int       `json:"refused"`
	Errors  int       `json:"errors"`
	Error   string    `json:"error,omitempty"`   // of its last look
	Warning string    `json:"warning,omitempty"` // that the clock and the log's time disagree
}

type daemonsFile struct {
	Version int            `json:"version"`
	Daemons []DaemonStatus `json:"daemons"`
}

// Tend runs daemons on a store until ctx is done, and returns nil then. dir is the store's
// directory, in which it says what they do; "": nowhere.
func Tend(ctx context.Context, st *tally.Store, dir string, daemons []daemon.Daemon, lg *slog.Logger) error {
	changed := make(chan struct{}, 1)
	o, end, err := tendOptions(ctx, st, daemons, lg)
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
		default: // it is to be written already
		}
	}
	l := daemon.New(o)
	if dir != "" {
		defer sayDaemons(dir, l, changed)()
	}
	return l.Run(ctx)
}

// TendOnce has daemons decide what is due now.
func TendOnce(ctx context.Context, st *tally.Store, daemons []daemon.Daemon, lg *slog.Logger) ([]DaemonStatus, error) {
	o, end, err := tendOptions(ctx, st, daemons, lg)
	if err != nil {
		return nil, err
	}
	defer end()
	l := daemon.New(o)
	err = l.Once(ctx)
	return statusOf(l.Status()), err
}

// tendOptions are those of a loop on a store. end is called when the loop has ended.
func tendOptions(ctx context.Context, st *tally.Store, daemons []daemon.Daemon, lg *slog.Logger) (o daemon.Options, end func(), err error) {
	o = daemon.Options{Daemons: daemons, Now: st.LogTime, Logger: lg}
	o.Work, o.Shown, end, err = workOf(ctx, st)
	o.Follow = func(ctx context.Context, after events.Offset) iter.Seq2[events.Record, error] {
		return st.Log.Follow(ctx, events.Range{After: after})
	}
	return o, end, err
}

// sayEvery is how often a file of daemons is written anew at most.
const sayEvery = time.Second

// sayDaemons keeps the file of this process as the daemons are, once each has looked. done
// takes it away.
func sayDaemons(dir string, l *daemon.Loop, changed <-chan struct{}) (done func()) {
	path := filepath.Join(dir, daemonsDir, strconv.Itoa(os.Getpid())+".json")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
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
			if os.MkdirAll(filepath.Dir(path), 0o700) == nil {
				_ = statefile.Write(path, daemonsFile{daemonsVersion, statusOf(list)}, durable.NoSync) // a disk that is full says so elsewhere
			}
			select {
			case <-time.After(sayEvery):
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		_ = remove(path)
	}
}

func statusOf(list []daemon.Status) []DaemonStatus {
	said := make([]DaemonStatus, len(list))
	for i, s := range list {
		said[i] = DaemonStatus{Daemon: s.Name, Waits: s.Waits(), Next: s.Next, What: s.Last.What, At: s.LastAt, Made: s.Made, Refused: s.Refused, Errors: s.Errors, Error: s.Error, Warning: s.Warning}
		if s.Next.Year() > 9999 { // as a lease may say that somebody wrote by hand: JSON has no such time
			said[i].Next = time.Time{}
		}
		if !s.LastAt.IsZero() {
			said[i].Subject = s.Last.Subject.String()
		}
	}
	return said
}

// DaemonsOf returns what processes said of the daemons that they run on the store in a
// directory, by process. Those that were killed are in it, too: whether a process lives, the
// caller finds out.
func DaemonsOf(dir string) (list []DaemonStatus, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, daemonsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		pid, nerr := strconv.Atoi(strings.TrimSuffix(e.Name(), ".json"))
		if nerr != nil {
			continue
		}
		var f daemonsFile
		if statefile.Read(filepath.Join(dir, daemonsDir, e.Name()), daemonsVersion, &f) != nil {
			continue // it has ended, or is of another version
		}
		for _, d := range f.Daemons {
			d.PID = pid
			list = append(list, d)
		}
	}
	slices.SortStableFunc(list, func(a, b DaemonStatus) int { return a.PID - b.PID })
	return list, err
}

// beside returns what runs beside a store that this process owns.
func (o Options) beside(dir string, ts *trees) func(context.Context, *tally.Store) {
	return func(ctx context.Context, st *tally.Store) {
		var all sync.WaitGroup
		defer all.Wait()
		all.Go(func() { ts.run(ctx, st) })
		if o.Daemons == nil || o.Still {
			return
		}
		lg := o.Logger
		if lg == nil {
			lg = slog.New(slog.DiscardHandler)
		}
		daemons, err := o.Daemons(st)
		if err == nil && len(daemons) > 0 {
			err = Tend(ctx, st, dir, daemons, lg)
		}
		if err != nil {
			lg.Warn("nobody looks after what is due any more", "err", err)
		}
	}
}
