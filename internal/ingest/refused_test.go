package ingest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// A refusal is what a call of the log does instead of what it should.
type refusal struct {
	err    error
	stores int // number of the call's events that are stored nevertheless
}

// refusing is a log that refuses calls for one session. appends and reads have an entry for each of the next calls;
// nil: the call succeeds. Later calls succeed.
type refusing struct {
	Log
	session string
	heard   func() error // what the status says

	mu             sync.Mutex // guards what follows
	appends, reads []*refusal
	last           error // the last append was refused with it; nil: it succeeded
	silent         []error
}

// due returns the refusal of a call, or nil.
func due(list *[]*refusal) (r *refusal) {
	if len(*list) > 0 {
		r, *list = (*list)[0], (*list)[1:]
	}
	return r
}

func (l *refusing) AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, int, error) {
	if sub.ID != l.session {
		return l.Log.AppendSeries(ctx, sub, expect, evs...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil && !errors.Is(l.heard(), l.last) {
		l.silent = append(l.silent, l.last)
	}
	r := due(&l.appends)
	if l.last = nil; r == nil {
		return l.Log.AppendSeries(ctx, sub, expect, evs...)
	}
	l.last = r.err
	added := 0
	if n := min(r.stores, len(evs)); n > 0 {
		_, added, _ = l.Log.AppendSeries(ctx, sub, expect, evs[:n]...)
	}
	return log.Ack{}, added, fmt.Errorf("append: %w", r.err)
}

func (l *refusing) read(sub events.Subject) error {
	if sub.ID != l.session {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := due(&l.reads); r != nil {
		return fmt.Errorf("read: %w", r.err)
	}
	return nil
}

func (l *refusing) Last(ctx context.Context, sub events.Subject) (events.Record, error) {
	if err := l.read(sub); err != nil {
		return events.Record{}, err
	}
	return l.Log.Last(ctx, sub)
}

func (l *refusing) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	if err := l.read(r.Subject); err != nil {
		return func(yield func(events.Record, error) bool) { yield(events.Record{}, err) }
	}
	return l.Log.Read(ctx, r)
}

// passing are the errors of a log that takes the same events later.
var passing = []error{log.ErrFull, &log.QuotaError{Scope: "store", Limit: 1, Want: 2}, log.ErrUnavailable, log.ErrBusy, log.ErrUnknown}

// drawRefusals draws refusals of the next calls: some calls succeed in between, and some refusals last long.
func drawRefusals(t *rapid.T, errs []error, stores bool) (list []*refusal) {
	for range rapid.IntRange(0, 3).Draw(t, "refusals") {
		list = append(list, make([]*refusal, rapid.SampledFrom([]int{0, 0, 1, 4}).Draw(t, "successes"))...)
		r := &refusal{err: rapid.SampledFrom(errs).Draw(t, "error")}
		if stores && r.err == log.ErrUnknown {
			r.stores = rapid.SampledFrom([]int{0, 1, 2, 1000}).Draw(t, "stored")
		}
		list = append(list, slices.Repeat([]*refusal{r}, rapid.SampledFrom([]int{1, 2, 14}).Draw(t, "times"))...)
	}
	return list
}

func TestRefused(t *testing.T) {
	// foreign appends a record of another producer to the refused session.
	foreign := func(rt *rapid.T, l *log.Log) {
		e := events.Event{Type: "com.example.x", Source: "urn:other"}
		if _, err := l.Append(context.Background(), events.Session("", "claude/-pier/s"), log.Any, l.Stamp(e)); err != nil {
			rt.Fatalf("%v", err)
		}
	}
	t.Run("net G1 lines wait while the log refuses, and the status says so", func(t *testing.T) {
		inBubble(t, func(rt *rapid.T, dir string) {
			r := newRig(rt, dir, ofClaude)
			defer os.RemoveAll(filepath.Dir(r.dir))
			full := r.open()
			defer full.Close()
			l := &refusing{Log: full, session: "claude/-pier/s"}
			name, content := claudeTalk(rt)
			in, stop := r.following(l)
			defer stop()
			others := 0 // turns of a session that is not refused
			for from, n := 0, 0; from < len(content); n++ {
				to := len(content)
				if n < 4 {
					to = rapid.IntRange(from, len(content)).Draw(rt, "to")
				}
				if isAmbiguous(content, to) {
					continue
				}
				r.grow(name, content[from:to])
				from = to
				l.mu.Lock()
				l.appends, l.reads = drawRefusals(rt, passing, true), drawRefusals(rt, passing[2:4], false)
				l.mu.Unlock()
				for range rapid.IntRange(0, 4).Draw(rt, "rests") {
					r.grow("-other/s.jsonl", prompts(others, 1))
					others++
					time.Sleep(time.Duration(rapid.IntRange(0, 100).Draw(rt, "seconds")) * time.Second)
					if rapid.Bool().Draw(rt, "foreign") {
						foreign(rt, full)
					}
				}
			}
			time.Sleep(time.Hour)
			if err := in.Blocked(); err != nil {
				rt.Errorf("the log takes events again, and the status says %v", err)
			}
			if n := r.blocked.Load(); n%2 != 0 {
				rt.Errorf("got %d reports of a change, want an even number", n)
			}
			if err := stop(); err != nil {
				rt.Fatalf("%v", err)
			}
			if len(l.silent) > 0 {
				rt.Errorf("during the refusals %v the status did not say so", l.silent)
			}
			if len(r.problems) > 0 {
				rt.Errorf("%v", r.problems)
			}
			r.check(dir)
		})
	})
	t.Run("net G1 the status says no more that the log refuses when the error is final", func(t *testing.T) {
		inBubble(t, func(rt *rapid.T, dir string) {
			r := newRig(rt, dir, ofClaude)
			defer os.RemoveAll(filepath.Dir(r.dir))
			full := r.open()
			defer full.Close()
			l, wrong := &refusing{Log: full, session: "claude/-pier/s"}, errors.New("the disk is on fire")
			_, content := claudeTalk(rt)
			in, stop := r.following(l)
			defer stop()
			list := drawRefusals(rt, passing, false)
			list = append(slices.DeleteFunc(list, func(r *refusal) bool { return r == nil }), &refusal{err: wrong})
			isRead := rapid.Bool().Draw(rt, "reads")
			if isRead {
				l.reads = list
			} else {
				l.appends = list
			}
			r.grow("-pier/s.jsonl", content)
			time.Sleep(time.Hour)
			if err := in.Blocked(); err != nil {
				rt.Errorf("the status says %v", err)
			}
			if err := stop(); !errors.Is(err, wrong) && !(isRead && err == nil) { // the look-up of a read position may fail
				rt.Errorf("the run ended with %v, want %v", err, wrong)
			}
		})
	})
}
