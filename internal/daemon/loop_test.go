package daemon_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/daemon"
	"github.com/tallylog/tally/projector"
)

// begin is the log's time when a test begins, far from the time of any clock.
var begin = time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)

// world is a log of offsets with its time, which advances while the test sleeps.
type world struct {
	born     time.Time
	behind   time.Duration // of the log's time
	appended chan events.Offset
	others   chan time.Time // times of records without effect on work
}

func newWorld() *world {
	return &world{born: time.Now(), appended: make(chan events.Offset), others: make(chan time.Time)}
}

func (w *world) now(context.Context) (time.Time, error) {
	return begin.Add(time.Since(w.born)).Add(-w.behind), nil
}

func (w *world) follow(ctx context.Context, _ events.Offset) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for {
			select {
			case at, ok := <-w.appended:
				if !ok {
					yield(events.Record{}, errors.New("it is closed"))
					return
				}
				if !yield(events.Record{Offset: at, Event: events.Event{Subject: events.Session("", "inbox/a")}}, nil) {
					return
				}
			case at := <-w.others:
				if !yield(events.Record{Recorded: at, Event: events.Event{Subject: events.Session("", "a conversation")}}, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// list is the work of a test, sorted by time.
type list []daemon.Due

func (l list) Due(_ context.Context, what string, upto time.Time, limit int) (found []daemon.Due, err error) {
	for _, d := range l {
		if d.What == what && !d.At.After(upto) && len(found) < limit {
			found = append(found, d)
		}
	}
	return found, nil
}

func (l list) Cursor(context.Context) (events.Offset, error) { return 0, nil }

// scripted is a daemon that records its calls, and calls do.
type scripted struct {
	calls []time.Duration // since begin
	do    func(n int, now time.Time) (daemon.Result, error)
}

func (d *scripted) Name() string { return "scripted" }

func (d *scripted) Decide(_ context.Context, _ daemon.Work, now time.Time) (daemon.Result, error) {
	d.calls = append(d.calls, now.Sub(begin))
	return d.do(len(d.calls), now)
}

// run runs a loop in the background during do.
func run(t *testing.T, o daemon.Options, do func(l *daemon.Loop)) (err error) {
	l := daemon.New(o)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	do(l)
	synctest.Wait()
	stop()
	return <-ended
}

func (d *scripted) want(t *testing.T, want ...time.Duration) {
	t.Helper()
	if !slices.Equal(d.calls, want) {
		t.Errorf("the daemon was called at %v, want %v", d.calls, want)
	}
}

func sleep(t *testing.T, d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A daemon is called at the start, at the time that it named, and when a record arrives. Many records cause one call.
// In between it sleeps for any time.
func TestLoopSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := &scripted{do: func(n int, now time.Time) (res daemon.Result, err error) {
			if n == 1 {
				res.Next = now.Add(time.Hour)
			}
			return res, nil
		}}
		err := run(t, daemon.Options{Daemons: []daemon.Daemon{d}, Work: list{}, Now: w.now, Follow: w.follow}, func(l *daemon.Loop) {
			sleep(t, 30*time.Minute)
			if s := l.Status()[0]; !s.Next.Equal(begin.Add(time.Hour)) || s.Waits() != "a record or the time" {
				t.Errorf("got %+v", s)
			}
			sleep(t, 1000*time.Hour-30*time.Minute)
			if s := l.Status()[0]; !s.Next.IsZero() || s.Waits() != "a record" {
				t.Errorf("got %+v", s)
			}
			for at := range events.Offset(1000) {
				w.appended <- at + 1
			}
			sleep(t, time.Hour)
		})
		if err != nil {
			t.Error(err)
		}
		d.want(t, 0, time.Hour, 1000*time.Hour, 1000*time.Hour+50*time.Millisecond)
	})
}

// A failing daemon is retried with growing delays, and no record wakes it. A daemon with a failing subject continues
// with the others.
func TestLoopBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := &scripted{do: func(n int, _ time.Time) (res daemon.Result, err error) {
			if n < 5 {
				err = errors.New("the disk is full")
			}
			return res, err
		}}
		one := &scripted{do: func(n int, _ time.Time) (res daemon.Result, err error) {
			if n < 4 {
				res.Failed, res.Err = 1, errors.New("one is damaged")
			}
			return res, nil
		}}
		var changed atomic.Int64
		o := daemon.Options{Daemons: []daemon.Daemon{d, one}, Work: list{}, Now: w.now, Follow: w.follow, Changed: func() { changed.Add(1) }}
		run(t, o, func(l *daemon.Loop) {
			sleep(t, 500*time.Millisecond)
			w.appended <- 1
			sleep(t, 0)
			if s := l.Status(); s[0].Errors != 1 || s[0].Error != "the disk is full" || s[0].Waits() != "the next try" || s[1].Errors != 2 {
				t.Errorf("got %+v", s)
			}
			sleep(t, time.Hour)
			if s := l.Status()[0]; s.Errors != 4 || s.Error != "" {
				t.Errorf("got %+v", s)
			}
		})
		if len(d.calls) != 6 || d.calls[4].Round(time.Second) != 15*time.Second {
			t.Errorf("the failing daemon was called at %v", d.calls)
		}
		if len(one.calls) != 4 || one.calls[1] != 500*time.Millisecond || changed.Load() == 0 || changed.Load() > 12 {
			t.Errorf("the daemon with a failing subject was called at %v and made %d changes", one.calls, changed.Load())
		}
	})
}

// A loop whose records end returns an error, and a stopped one returns nil.
func TestLoopEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := &scripted{do: func(int, time.Time) (res daemon.Result, err error) { return res, nil }}
		err := run(t, daemon.Options{Daemons: []daemon.Daemon{d}, Work: list{}, Now: w.now, Follow: w.follow}, func(*daemon.Loop) { close(w.appended) })
		if err == nil || !strings.Contains(err.Error(), "it is closed") {
			t.Error(err)
		}
	})
}

// A call waits until the work includes the record that woke the daemon.
func TestLoopWaitsForTheView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := &scripted{do: func(int, time.Time) (res daemon.Result, err error) { return res, nil }}
		o := daemon.Options{Daemons: []daemon.Daemon{d}, Work: list{}, Now: w.now, Follow: w.follow}
		o.Shown = func(context.Context) error {
			time.Sleep(3 * time.Second)
			return nil
		}
		run(t, o, func(*daemon.Loop) {
			sleep(t, time.Minute)
			w.appended <- 7
			sleep(t, time.Minute)
		})
		d.want(t, 6*time.Second, time.Minute+3*time.Second) // it starts when the work includes all records
	})
}

// Records of conversations make nothing due, and wake a daemon only if the log's time reaches its next call.
func TestLoopSleepsBesideConversations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := &scripted{do: func(n int, now time.Time) (res daemon.Result, err error) {
			if n == 1 {
				res.Next = now.Add(time.Hour)
			}
			return res, nil
		}}
		run(t, daemon.Options{Daemons: []daemon.Daemon{d}, Work: list{}, Now: w.now, Follow: w.follow}, func(*daemon.Loop) {
			sleep(t, time.Minute)
			w.others <- begin.Add(time.Minute)
			sleep(t, time.Minute)
			w.others <- begin.Add(time.Hour)
			sleep(t, time.Minute)
			w.others <- begin.Add(1000 * time.Hour)
			sleep(t, time.Hour)
		})
		d.want(t, 0, 2*time.Minute)
	})
}

// D-64: daemons decide by the log's time, regardless of the clock. A warning reports if the clock is ahead or behind. A
// store that was idle for a night causes none.
func TestLoopClock(t *testing.T) {
	for _, tt := range []struct {
		name    string
		jump    time.Duration
		warning string
	}{
		{"D-64 a year ahead", 365 * 24 * time.Hour, "the clock jumped and is 8766h"},
		{"D-64 a day back", -24 * time.Hour, "the clock is 18h"},
		{"D-64 a second ahead", time.Second, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, jump := newWorld(), time.Duration(0)
				const night = 6 * time.Hour
				w.behind = night
				due := begin.Add(time.Hour - night)
				d := &scripted{}
				decided := 0
				d.do = func(_ int, now time.Time) (res daemon.Result, err error) {
					if decided == 0 {
						res.Soonest(due)
					}
					if !now.Before(due) {
						decided++
						res.Next = time.Time{}
					}
					return res, nil
				}
				o := daemon.Options{Daemons: []daemon.Daemon{d}, Work: list{}, Now: w.now, Follow: w.follow}
				o.Clock = func() time.Time { return begin.Add(time.Since(w.born)).Add(jump) }
				run(t, o, func(l *daemon.Loop) {
					sleep(t, time.Minute)
					if warning := l.Status()[0].Warning; warning != "" {
						t.Error(warning)
					}
					jump = tt.jump
					w.appended <- 1
					sleep(t, 30*time.Minute)
					if decided != 0 {
						t.Error("the daemon decided by the clock")
					}
					if warning := l.Status()[0].Warning; (warning == "") != (tt.warning == "") || !strings.HasPrefix(warning, tt.warning) {
						t.Errorf("got %q, want %q", warning, tt.warning)
					}
					sleep(t, time.Hour)
					if decided != 1 {
						t.Errorf("the daemon decided %d times", decided)
					}
					jump = 0
					w.appended <- 2
					sleep(t, time.Minute)
					if warning := l.Status()[0].Warning; warning != "" {
						t.Error(warning)
					}
				})
			})
		})
	}
}

// Entries without a decision do not hide later ones, and are visited once.
func TestEachGoesPastTheUndecided(t *testing.T) {
	var work list
	for i := range 300 {
		work = append(work, daemon.Due{What: projector.DueFlow, Subject: events.Session("", string(rune('a'+i))), At: begin.Add(time.Duration(i) * time.Second)})
	}
	var res daemon.Result
	seen := 0
	err := res.Each(t.Context(), work, projector.DueFlow, begin.Add(time.Minute+200*time.Second), time.Minute, func(d daemon.Due) error {
		if seen++; seen == 2 {
			return errors.New("damaged")
		}
		return nil
	})
	if err != nil || seen != 201 || res.Failed != 1 || !res.Next.Equal(begin.Add(time.Minute+201*time.Second)) {
		t.Errorf("%d, %+v, %v", seen, res, err)
	}
}
