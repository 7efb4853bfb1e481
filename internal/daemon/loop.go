package daemon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Options configure a loop. Daemons, Work, Now and Follow are required.
type Options struct {
	Daemons []Daemon
	Work    Work

	// Now returns the log's time, for example [tally.Store.LogTime]. It decides what is due, not the machine's clock.
	Now func(ctx context.Context) (time.Time, error)

	// Follow yields the records after an offset, existing and new ones, for example [log.Log.Follow]. Each may make an
	// entry due.
	Follow func(ctx context.Context, after events.Offset) iter.Seq2[events.Record, error]

	// Shown waits until Work includes all current records. nil: it always does.
	Shown func(ctx context.Context) error

	Clock   func() time.Time // clock of the machine, which is only compared with the log's time; default time.Now
	Changed func()           // called when a status has changed; nil: not called
	Logger  *slog.Logger     // default: discard
}

// Loop calls daemons when an entry is due, and when a record arrives. Call Run once. Status is safe for concurrent use.
type Loop struct {
	o    Options
	list []*worker

	mu   sync.Mutex // guards the fields below, and the status of each daemon
	skew skew
}

// worker is a daemon with its state in the loop.
type worker struct {
	Daemon
	wake   chan struct{} // a record arrived; capacity 1
	errors int           // consecutive errors
	status Status
}

// Status is the state of a daemon.
type Status struct {
	Name    string
	Ran     bool      // Decide was called, so the other fields are valid
	Next    time.Time // time of the next call, by the log's time; zero: at the next record
	Last    Decision  // its last decision
	LastAt  time.Time // time of the last decision, by the log's time; zero: none
	Made    int       // number of decisions since the start of the loop
	Refused int       // number of decisions that failed because another daemon was faster
	Errors  int
	Error   string // of the last call; "": none
	Warning string // set if the clock and the log's time disagree
}

// Waits returns a short description of what the daemon waits for.
func (s Status) Waits() string {
	switch {
	case s.Next.IsZero():
		return "a record"
	case s.Error != "":
		return "the next try"
	}
	return "a record or the time"
}

// New returns a loop. It does nothing until Run or Once is called.
func New(o Options) *Loop {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	l := &Loop{o: o}
	for _, d := range o.Daemons {
		l.list = append(l.list, &worker{Daemon: d, wake: make(chan struct{}, 1), status: Status{Name: d.Name()}})
	}
	return l
}

// Status returns the status of each daemon, in the order of Options.
func (l *Loop) Status() []Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Status, len(l.list))
	for i, d := range l.list {
		list[i] = d.status
		list[i].Warning = l.skew.warning
	}
	return list
}

// Run calls the daemons until ctx is done, and then returns nil. A failing daemon is retried with growing delays. If
// Follow ends, Run returns its error, because due times are unknown without records.
func (l *Loop) Run(ctx context.Context) error {
	if err := l.awaitWork(ctx); err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	after, err := l.o.Work.Cursor(ctx)
	if err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	inner, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	for _, d := range l.list {
		running.Go(func() { l.work(inner, d) })
	}
	err = l.follow(inner, after)
	stop()
	running.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// awaitWork waits until Work includes all current records.
func (l *Loop) awaitWork(ctx context.Context) error {
	if l.o.Shown == nil {
		return nil
	}
	return l.o.Shown(ctx)
}

// follow wakes the daemons when a record may have made an entry due, or its time has reached a due entry.
func (l *Loop) follow(ctx context.Context, after events.Offset) error {
	var last error
	for rec, err := range l.o.Follow(ctx, after) {
		if last = err; err != nil {
			continue // the records after a damaged one follow
		}
		for _, d := range l.list {
			if !projector.IsWork(rec.Subject) && !l.isDue(d, rec.Recorded) {
				continue
			}
			select {
			case d.wake <- struct{}{}:
			default: // it is woken already
			}
		}
	}
	if last == nil {
		last = errors.New("the records ended")
	}
	return fmt.Errorf("daemon: %w", last)
}

// isDue reports whether a daemon's next call is due by a time of the log. The log's time may advance faster than the
// daemon's sleep.
func (l *Loop) isDue(d *worker, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !d.status.Next.IsZero() && !now.Before(d.status.Next)
}

// gap is the minimum pause of a daemon between calls, so that one call handles many records.
const gap = 50 * time.Millisecond

// Delays between the retries of a failing daemon. They double from minRetry to maxRetry.
const (
	minRetry = time.Second
	maxRetry = 5 * time.Minute
)

// forever is the duration of a sleep until the next record.
const forever = -1

// work calls a daemon whenever it is due or woken.
func (l *Loop) work(ctx context.Context, d *worker) {
	for {
		wait, wake := l.step(ctx, d)
		if wait != forever {
			wait = max(wait-gap, 0)
		}
		if !sleep(ctx, gap, nil) || !sleep(ctx, wait, wake) {
			return
		}
	}
}

// sleep waits for a duration, or forever, or until it is woken. It returns false if ctx is done.
func sleep(ctx context.Context, while time.Duration, wake <-chan struct{}) bool {
	var timer <-chan time.Time
	if while != forever {
		t := time.NewTimer(while)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-timer:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// step calls a daemon once. It returns how long the daemon may sleep, and the channel that wakes it.
func (l *Loop) step(ctx context.Context, d *worker) (wait time.Duration, wake <-chan struct{}) {
	now, res, err := l.once(ctx, d)
	if ctx.Err() != nil {
		return forever, nil
	}
	retry := min(minRetry<<min(d.errors, 16), maxRetry)
	switch {
	case err != nil:
		wait = retry // a record does not help, so none wakes it
	case res.Failed > 0:
		res.Soonest(now.Add(retry))
		fallthrough
	default:
		wait, wake = forever, d.wake
		if !res.Next.IsZero() {
			wait = max(res.Next.Sub(now), 0)
		}
	}
	if d.errors++; err == nil && res.Failed == 0 {
		d.errors = 0
	}
	if err != nil {
		res.Failed, res.Err, res.Next = res.Failed+1, err, now.Add(wait)
	}
	l.note(d, now, res)
	return wait, wake
}

// once calls a daemon, after Work includes all current records.
func (l *Loop) once(ctx context.Context, d *worker) (now time.Time, res Result, err error) {
	if err := l.awaitWork(ctx); err != nil {
		return now, res, err
	}
	if now, err = l.o.Now(ctx); err != nil {
		return now, res, err
	}
	l.compare(now)
	res, err = d.Decide(ctx, l.o.Work, now)
	return now, res, err
}

// note updates the status of a daemon from a result.
func (l *Loop) note(d *worker, now time.Time, res Result) {
	l.mu.Lock()
	was := d.status
	s := &d.status
	s.Ran, s.Next, s.Error = true, res.Next, ""
	s.Made, s.Refused, s.Errors = s.Made+len(res.Made), s.Refused+res.Refused, s.Errors+res.Failed
	if n := len(res.Made); n > 0 {
		s.Last, s.LastAt = res.Made[n-1], now
	}
	if res.Err != nil {
		s.Error = res.Err.Error()
	}
	changed := *s != was
	l.mu.Unlock()
	for _, m := range res.Made {
		l.o.Logger.Info("decided", "daemon", d.Name(), "subject", m.Subject.String(), "what", m.What)
	}
	if res.Err != nil {
		l.o.Logger.Warn("a daemon failed", "daemon", d.Name(), "error", res.Err)
	}
	if changed && l.o.Changed != nil {
		l.o.Changed()
	}
}

// Once calls each daemon until nothing more is due. It returns the error of the first failing daemon.
func (l *Loop) Once(ctx context.Context) error {
	for _, d := range l.list {
		for again := true; again; {
			now, res, err := l.once(ctx, d)
			if err == nil {
				err = res.Err
			}
			l.note(d, now, res)
			if err != nil {
				return fmt.Errorf("daemon: %s: %w", d.Name(), err)
			}
			again = len(res.Made) > 0
		}
	}
	return nil
}
