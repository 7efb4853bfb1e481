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

// Options say what a loop runs, and on what. Daemons, Work, Now and Follow are needed.
type Options struct {
	Daemons []Daemon
	Work    Work

	// Now returns the log's time, such as [tally.Store.LogTime]: what is due goes by it, and
	// by no clock.
	Now func(ctx context.Context) (time.Time, error)

	// Follow yields the records behind an offset and those that come, such as
	// [log.Log.Follow]: each of them may make something due.
	Follow func(ctx context.Context, after events.Offset) iter.Seq2[events.Record, error]

	// Shown waits until Work shows what is recorded by now. nil: it always does.
	Shown func(ctx context.Context) error

	Clock   func() time.Time // of the machine: it decides nothing, and is compared with the log's time; default time.Now
	Changed func()           // is called when a status has changed; nil: nobody wants to know
	Logger  *slog.Logger     // default: discard
}

// Loop has daemons look when something is due, and when something was recorded. It is for one
// call of Run; Status is safe for concurrent use.
type Loop struct {
	o    Options
	list []*worker

	mu   sync.Mutex // guards what follows, and the status of each daemon
	skew skew
}

// worker is a daemon with what is known of it.
type worker struct {
	Daemon
	wake   chan struct{} // something was recorded; holds one
	errors int           // one after the other
	status Status
}

// Status is what a daemon is doing.
type Status struct {
	Name    string
	Ran     bool      // it has looked, so that the rest says something
	Next    time.Time // when it looks again, by the log's time; zero: when something is recorded
	Last    Decision  // its last decision
	LastAt  time.Time // when that was made, by the log's time; zero: it made none
	Made    int       // decisions since the loop began
	Refused int       // that were void: somebody was faster
	Errors  int
	Error   string // of the last look; "": it went well
	Warning string // that the clock and the log's time disagree
}

// Waits says in a few words what the daemon waits for.
func (s Status) Waits() string {
	switch {
	case s.Next.IsZero():
		return "a record"
	case s.Error != "":
		return "the next try"
	}
	return "a record or the time"
}

// New makes a loop. It does nothing until Run or Once is called.
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

// Status returns what each daemon is doing, in the order in which they were given.
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

// Run has the daemons look until ctx is done, and returns nil then. A daemon that fails tries
// again, each time a little later. The error is that with which Follow ended: without records
// nobody knows what is due.
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

// awaitWork waits until Work shows what is recorded by now.
func (l *Loop) awaitWork(ctx context.Context) error {
	if l.o.Shown == nil {
		return nil
	}
	return l.o.Shown(ctx)
}

// follow wakes the daemons whenever something was recorded that may be due, or at a time at
// which something is.
func (l *Loop) follow(ctx context.Context, after events.Offset) error {
	var last error
	for rec, err := range l.o.Follow(ctx, after) {
		if last = err; err != nil {
			continue // of a damaged record those behind it follow
		}
		for _, d := range l.list {
			if !projector.IsWork(rec.Subject) && !l.isDue(d, rec.Recorded) {
				continue
			}
			select {
			case d.wake <- struct{}{}:
			default: // it is to look already
			}
		}
	}
	if last == nil {
		last = errors.New("the records ended")
	}
	return fmt.Errorf("daemon: %w", last)
}

// isDue reports whether a daemon is to look by a time of the log: that may have gone ahead of
// the time that the daemon sleeps for.
func (l *Loop) isDue(d *worker, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !d.status.Next.IsZero() && !now.Before(d.status.Next)
}

// gap is how long a daemon rests between looks, so that many records are looked at at once.
const gap = 50 * time.Millisecond

// Retries of a daemon that failed are that far apart, from the first one on.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// forever waits for a record.
const forever = -1

// work has a daemon look whenever it is to.
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

// sleep waits for a while, or forever, or until it is woken. It returns false if ctx is done.
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

// look has a daemon look once. It returns how long it may sleep then, and what wakes it.
func (l *Loop) step(ctx context.Context, d *worker) (wait time.Duration, wake <-chan struct{}) {
	now, res, err := l.once(ctx, d)
	if ctx.Err() != nil {
		return forever, nil
	}
	retry := min(firstRetry<<min(d.errors, 16), lastRetry)
	switch {
	case err != nil:
		wait = retry // whatever is recorded: it makes this no better
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

// once has a daemon look, at what was recorded up to now.
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

// note has the status of a daemon say what came of a look.
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

// Once has each daemon look until nothing more is due, and returns the error of the first
// one that fails.
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
