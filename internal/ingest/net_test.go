package ingest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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

// inBubble plays a law with drawn programs on a fake clock, without a watch of the system's events.
func inBubble(t *testing.T, law func(t *rapid.T, dir string)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) { law(rt, dir) }) // a bubble has no Deadline
	})
}

// following runs an Ingester that follows the rig's files, and those of more sources, until stop is called, which
// returns the error of Run.
func (r *rig) following(l *refusing, more ...Source) (in *Ingester, stop func() error) {
	r.t.Helper()
	o := r.options(l)
	o.Sources = append(o.Sources, more...)
	o.Once, o.Quiet = false, time.Minute
	o.Tail.MaxWatches, o.Tail.Grace = -1, 2*time.Second
	in, err := New(o)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	l.heard = in.Blocked
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	return in, sync.OnceValue(func() error {
		cancel()
		err := <-ended
		if err == context.Canceled {
			err = nil
		}
		return errors.Join(err, in.Close())
	})
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

// Each line of a response has its usage so far.
func TestLargestUsage(t *testing.T) {
	t.Run("net G6 of the lines of a response the larger count wins in every class of tokens", func(t *testing.T) {
		dir := t.TempDir()
		rapid.Check(t, func(rt *rapid.T) {
			r := newRig(rt, dir, ofClaude)
			defer os.RemoveAll(filepath.Dir(r.dir))
			k := &agentTalk{t: rt}
			k.entry("user", "", `"message":{"role":"user","content":"Go on"}`)
			want := make(map[string]events.Tokens) // by model: each response has one of its own
			for n := range rapid.IntRange(1, 3).Draw(rt, "responses") {
				var list []events.Tokens
				var most events.Tokens
				for range rapid.IntRange(1, 4).Draw(rt, "lines") {
					more := rapid.SampledFrom([]int64{0, 0, 1, 7})
					most = most.Add(events.Tokens{Input: more.Draw(rt, "input"), Output: more.Draw(rt, "output"), CacheRead: more.Draw(rt, "read"), CacheWrite: more.Draw(rt, "written")})
					list = append(list, most)
				}
				model := fmt.Sprint("m", n)
				if most != (events.Tokens{}) {
					want[model] = most
				}
				for _, u := range rapid.Permutation(list).Draw(rt, "order") {
					k.entry("assistant", k.last, fmt.Sprintf(`"message":{"id":"msg_%d","role":"assistant","model":%q,"content":[],"usage":{"input_tokens":%d,"output_tokens":%d,"cache_read_input_tokens":%d,"cache_creation_input_tokens":%d}}`,
						n, model, u.Input, u.Output, u.CacheRead, u.CacheWrite))
				}
			}
			for line := range strings.Lines(k.b.String()) {
				if r.grow("-pier/s.jsonl", line); rapid.Bool().Draw(rt, "rests") {
					r.run() // and the response is counted so far
				}
			}
			r.run()
			have := make(map[string]events.Tokens)
			for _, c := range r.session("claude/-pier/s").Ledger.Costs {
				have[c.Model] = have[c.Model].Add(c.Tokens)
			}
			if !maps.Equal(have, want) {
				rt.Errorf("by model, the usage is %v, want %v", have, want)
			}
		})
	})
}

func TestTwoFolders(t *testing.T) {
	t.Run("net G3 of a file that is in two folders one is read and the other is named", func(t *testing.T) {
		inBubble(t, func(rt *rapid.T, dir string) {
			r := newRig(rt, dir, ofCodex)
			defer os.RemoveAll(filepath.Dir(r.dir))
			names := rapid.Permutation([]string{"sessions/2026/01/02/" + rolloutName(threadID), "archived_sessions/" + rolloutName(threadID)}).Draw(rt, "names")
			other := r // of the second file
			if rapid.Bool().Draw(rt, "is in another root") {
				other = newRig(rt, dir, ofCodex)
				defer os.RemoveAll(filepath.Dir(other.dir))
				names[1] = rapid.SampledFrom(names).Draw(rt, "name")
			}
			full := r.open()
			defer full.Close()
			stop := func() error { return nil }
			defer func() { stop() }()
			follow := func() {
				_, stop = r.following(&refusing{Log: full}, Source{Agent: ofCodex, Root: other.dir, ID: "other"})
			}
			_, content := codexTalk(rt)
			r.grow(names[0], content)
			follow()
			time.Sleep(time.Minute)
			if rapid.Bool().Draw(rt, "is not a copy") {
				_, content = codexTalk(rt)
			}
			other.grow(names[1], content)
			changed := rapid.IntRange(0, 1).Draw(rt, "changed")
			for range 2 {
				time.Sleep(10 * time.Minute)
				if other == r && rapid.Bool().Draw(rt, "restart") { // the log knows the name, but not the root
					must(rt, stop())
					follow()
				}
				[]*rig{r, other}[changed].grow(names[changed], `{"timestamp":"2026-01-02T04:00:00.000Z","type":"event_msg","payload":{"type":"x"}}`+"\n")
			}
			time.Sleep(10 * time.Minute)
			must(rt, stop())
			disk, given := r.files(), r.given()
			if len(given) != 1 || given[names[0]] != disk[names[0]] {
				rt.Errorf("the log has %q, want %s as it is:\n%s", given, names[0], disk[names[0]])
			}
			if len(r.problems) == 0 || slices.ContainsFunc(r.problems, func(p Problem) bool { return p.File != names[1] }) {
				rt.Errorf("got the problems %v, want them of %s", r.problems, names[1])
			}
		})
	})
}

func must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

func TestSecondPass(t *testing.T) {
	t.Run("net G2 one pass says all that a second one would", func(t *testing.T) {
		for name, talk := range talks {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(rt *rapid.T, dir string) {
					r := newRig(rt, dir, talk.agent)
					defer os.RemoveAll(filepath.Dir(r.dir))
					name, content := talk.play(rt)
					for range rapid.IntRange(1, 3).Draw(rt, "changes") {
						to := rapid.IntRange(0, len(content)).Draw(rt, "to")
						if isAmbiguous(content, to) {
							to = len(content)
						}
						switch rapid.IntRange(0, 3).Draw(rt, "change") {
						case 0:
							r.write(name, content[:to])
						case 1:
							os.Remove(filepath.Join(r.dir, name))
						default:
							r.grow(name, content[min(to, len(r.files()[name])):to])
						}
						os.Chtimes(filepath.Join(r.dir, name), time.Now(), time.Now()) // on this clock; it may be missing
						r.run()
						n, said := len(r.records()), len(r.problems)
						if rapid.Bool().Draw(rt, "loses its state") && len(r.files()) > 0 {
							r.lose()
						}
						time.Sleep(time.Hour)
						r.run()
						if list := r.records(); len(list) != n {
							rt.Errorf("a second pass appended %v", list[n:])
						}
						if len(r.problems) != said {
							rt.Errorf("a second pass reported %v", r.problems[said:])
						}
					}
				})
			})
		}
	})
}
