package daemon_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/internal/daemon"
)

// The pause after each failure is twice the one before, at most five minutes. After a success it is a second again.
func TestLoopPauses(t *testing.T) {
	for name, fails := range map[string]func() (daemon.Result, error){
		"net Q3 a daemon that fails":      func() (daemon.Result, error) { return daemon.Result{}, errors.New("the disk is full") },
		"net Q3 a daemon that leaves out": func() (daemon.Result, error) { return daemon.Result{Failed: 1, Err: errors.New("one is damaged")}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				const failures = 11
				d := &scripted{do: func(n int, now time.Time) (daemon.Result, error) {
					switch n {
					case failures + 1:
						return daemon.Result{Next: now.Add(time.Hour)}, nil
					case failures + 3:
						return daemon.Result{}, nil
					}
					return fails()
				}}
				run(t, daemon.Options{Daemons: []daemon.Daemon{d}, Work: list{}, Now: w.now, Follow: w.follow}, func(*daemon.Loop) { sleep(t, 3*time.Hour) })
				want, at, pause := []time.Duration{0}, time.Duration(0), time.Second
				for range failures {
					at += pause
					want = append(want, at)
					pause = min(2*pause, 5*time.Minute)
				}
				d.want(t, append(want, at+time.Hour, at+time.Hour+time.Second)...)
			})
		})
	}
}
