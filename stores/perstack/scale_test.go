package perstack_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
	"github.com/tallylog/tally/stores/perstack"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
	"github.com/tallylog/tally/stores/perstack/internal/share"
)

// read counts the records that are read from a backend.
type read struct {
	log.Backend
	records *atomic.Int64
}

func (b read) Scan(ctx context.Context, q log.Query) (log.Cursor, error) {
	cur, err := b.Backend.Scan(ctx, q)
	return readCursor{cur, b.records}, err
}

func (b read) Get(ctx context.Context, at events.Offset) (log.Message, error) {
	b.records.Add(1)
	return b.Backend.Get(ctx, at)
}

type readCursor struct {
	log.Cursor
	records *atomic.Int64
}

func (c readCursor) Next(ctx context.Context) (log.Message, error) {
	m, err := c.Cursor.Next(ctx)
	if err == nil {
		c.records.Add(1)
	}
	return m, err
}

// The reads of a call do not grow with the job: a handle that has worked with the job reads only new records and the
// requested ones, also in a job of ten times as many steps.
func TestScale(t *testing.T) {
	var records atomic.Int64
	l := logtest.OpenOn(t, read{memlog.New(memlog.Config{}), &records}, log.Config{Host: log.Host{Owner: true}})
	st := need(tally.Open(t.Context(), l, tally.Config{Snapshots: &snapshot.Mem{}}))
	for _, steps := range []int{30, 300} {
		h := scaleJob(t, st, steps)
		need(h.EventList(t.Context(), "r0"))
		need(h.Checkpoint(t.Context(), "c3"))
		readsAtMost(t, steps, 0, records.Load, scaleCalls(t.Context(), h, steps))
	}
}

// The same on every backend, by the log's count of reads, and for a new handle if there is a catalog. Without
// snapshots, a job with new records is read again when it is opened. Views and snapshots may read appended records at
// the same time.
func TestScaleEverywhere(t *testing.T) {
	const beside = 40
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		for _, steps := range []int{20, 200} {
			h := scaleJob(t, st, steps)
			fresh := func() *perstack.Handle { return perstack.JobOf(st, h.ID()) }
			calls := []scaleCall{
				{"a checkpoint by its id, by a new handle", 20, func() error { _, err := fresh().Checkpoint(t.Context(), "c7"); return err }, true},
				{"the runs, by a new handle", int64(steps/10) + 20, func() error { _, err := fresh().Runs(t.Context()); return err }, true},
			}
			if _, err := st.Shows(t.Context(), "catalog"); err == nil {
				calls = append(calls,
					scaleCall{"the list of events, by a new handle", 10, func() error { _, err := fresh().EventList(t.Context(), "r0"); return err }, false},
					scaleCall{"a page of events, by a new handle", 10, func() error { _, err := fresh().EventPage(t.Context(), "r1", 0, 5); return err }, false},
					scaleCall{"a page of jobs", 1, func() error { _, err := perstack.Jobs(t.Context(), st, perstack.Query{Limit: 1}); return err }, false})
			}
			need(h.Totals(t.Context())) // the first call of a handle reads the job
			for _, run := range []string{"r0", "r1"} {
				need(h.EventList(t.Context(), run))
			}
			calls = append(calls, scaleCalls(t.Context(), h, steps)...)
			if st.Snapshots() == nil { // opening a job reads it
				calls = slices.DeleteFunc(calls, func(c scaleCall) bool { return c.opens })
			}
			readsAtMost(t, steps, beside, st.Log.RecordsRead, calls)
		}
	})
}

// scaleJob stores a job with a number of steps, each with an event and a checkpoint.
func scaleJob(t *testing.T, st *tally.Store, steps int) *perstack.Handle {
	t.Helper()
	h := perstack.JobOf(st, fmt.Sprint("job-", steps))
	must(t, perstack.StoreJob(t.Context(), st, perstack.CreateInitialJob(h.ID(), "coder")))
	for i := range steps {
		need(h.SaveCheckpoint(t.Context(), turnOf(h.ID(), i)))
		need(h.Record(t.Context(), ending(h.ID(), fmt.Sprint("r", i/10), fmt.Sprint("e", i), int64(i), 5)))
	}
	for _, view := range []string{"catalog", "search"} {
		if _, err := st.Shows(t.Context(), view); err != nil && !errors.Is(err, tally.ErrNotFound) {
			t.Fatal(err)
		}
	}
	if st.Snapshots() != nil {
		need(st.Loader().Keep(t.Context(), h.Session().Subject(), 0, "")) // as the store's owner does
	}
	return h
}

// scaleCall is a call, with the maximum number of records that it reads.
type scaleCall struct {
	name  string
	limit int64
	do    func() error
	opens bool // it opens the present job
}

func scaleCalls(ctx context.Context, h *perstack.Handle, steps int) []scaleCall {
	return []scaleCall{
		{"one more checkpoint of a new run", 50, func() error { _, err := h.SaveCheckpoint(ctx, turnOf(h.ID(), steps)); return err }, false},
		{"one more event", 2, func() error { _, err := h.Record(ctx, ending(h.ID(), "r0", "more", 7, 5)); return err }, false},
		{"the list of events", 6, func() error { _, err := h.EventList(ctx, "r0"); return err }, false},
		{"a checkpoint by its id", 20, func() error { _, err := h.Checkpoint(ctx, "c7"); return err }, true},
		{"the job", 6, func() error { _, err := h.Load(ctx); return err }, true},
		{"a change of the job", 8, func() error {
			_, err := h.Update(ctx, func(j *perstack.Job) error { j.TotalSteps++; return nil })
			return err
		}, true},
	}
}

// readsAtMost checks the reads of calls, with an allowance for concurrent reads. On a slow machine, views and snapshots
// may read more at the same time; then the call is repeated. A call that reads too much does so each time.
func readsAtMost(t *testing.T, steps int, beside int64, count func() int64, calls []scaleCall) {
	t.Helper()
	for _, call := range calls {
		t.Run(fmt.Sprintf("P-34 %d steps, %s reads at most %d records", steps, call.name, call.limit), func(t *testing.T) {
			var tries []int64
			for range 10 {
				before := count()
				must(t, call.do())
				n := count() - before
				if tries = append(tries, n); n <= call.limit+beside {
					t.Logf("it reads %d records", n)
					return
				}
				time.Sleep(10 * time.Millisecond) // for the concurrent readers
			}
			t.Errorf("the call read %d records, want fewer", tries)
		})
	}
}

// turnOf returns the i-th checkpoint of a job. A run has ten, each with one more message.
func turnOf(job string, i int) perstack.Checkpoint {
	return checkpoint(job, fmt.Sprint("r", i/10), fmt.Sprint("c", i), int64(i), messages(i/10*10, i+1))
}

// 10,000 jobs, and a job of 100,000 events and 10,000 checkpoints: the times in ms of the first page of a list, the
// first page of a run's events, reading a checkpoint and saving one. open-MB is the memory of the store's owner before,
// and peak-MB its maximum meanwhile, including views and the server's caches. x-first is the ratio of a save in the
// large job to one in a new job.
//
// first-event-list and first-event-page use a new handle. After the peak follow calls that read everything: all jobs,
// all settings of runs, and the totals of the large job by a new handle.
//
//	go test -run '^$' -bench Scale -benchtime 1x ./stores/perstack
func BenchmarkScale(b *testing.B) {
	o := embedded.Options{Store: filepath.Join(b.TempDir(), "store"), Backend: "local", Own: true}
	st := need(embedded.Open(b.Context(), o))
	for i := range 10_000 {
		j := perstack.CreateInitialJob(fmt.Sprint("small-", i), "coder")
		j.StartedAt = int64(1760000000000 + i)
		parsed, err := shape.ParseJob(need(j.Raw()))
		must(b, err)
		bulk(b, st, j.ID, parsed.Created())
	}
	fillJob(b, st, "large", 100, 100, 10)
	showsAll(b, st)
	must(b, st.Close())
	forgetPeak(b)
	st = need(embedded.Open(b.Context(), o))
	defer func() { must(b, st.Close()) }()
	r, err := catalog.Open(b.Context(), st.ViewsDir())
	must(b, err)
	defer r.Close()
	before := peakMB(b)
	h := perstack.JobOf(st, "large")
	first := medianOf(b, 9, func(i int) error { // a job for each

		_, err := perstack.JobOf(st, fmt.Sprint("small-", i)).SaveCheckpoint(b.Context(), checkpoint(fmt.Sprint("small-", i), "r", "c", 1, messages(0, 3)))
		return err
	})
	for b.Loop() {
		b.ReportMetric(0, "ns/op")
		for _, call := range []struct {
			unit string
			do   func(int) error
		}{
			{"list-ms", func(int) error {
				_, err := r.List(b.Context(), catalog.Query{Namespace: st.Namespace(), Kind: events.KindJob, Limit: 50})
				return err
			}},
			{"events-page-ms", func(i int) error {
				_, err := r.Progress(b.Context(), projector.ProgressQuery{Namespace: st.Namespace(), Session: shape.SessionID("large"), Run: shape.RunRef(fmt.Sprint("r", i)), Limit: 100})
				return err
			}},
			{"jobs-ms", func(int) error {
				list, err := perstack.Jobs(b.Context(), st, perstack.Query{Limit: 50})
				if len(list) != 50 {
					b.Fatalf("%d jobs, %v", len(list), err)
				}
				return err
			}},
			{"first-event-list-ms", func(i int) error { // by a new handle
				list, err := perstack.JobOf(st, "large").EventList(b.Context(), fmt.Sprint("r", i))
				if len(list) != 1000 {
					b.Fatalf("%d events, %v", len(list), err)
				}
				return err
			}},
			{"first-event-page-ms", func(i int) error {
				_, err := perstack.JobOf(st, "large").EventPage(b.Context(), fmt.Sprint("r", i), 0, 100)
				return err
			}},
			{"open-checkpoint-ms", func(i int) error {
				_, err := perstack.JobOf(st, "large").Checkpoint(b.Context(), fmt.Sprint("c", 97*i))
				return err
			}},
			{"checkpoint-ms", func(i int) error { _, err := h.Checkpoint(b.Context(), fmt.Sprint("c", 89*i)); return err }},
		} {
			b.ReportMetric(medianOf(b, 9, call.do), call.unit)
		}
		save := func(i int) error {
			_, err := h.SaveCheckpoint(b.Context(), checkpoint("large", "more", fmt.Sprint("more", i), 1, messages(0, 3)))
			return err
		}
		must(b, save(-1)) // reads the job once
		more := medianOf(b, 9, save)
		b.ReportMetric(more, "one-more-ms")
		b.ReportMetric(more/first, "x-first")
		b.ReportMetric(before, "open-MB")
		b.ReportMetric(peakMB(b), "peak-MB")
		b.ReportMetric(timeOf(func() { need(perstack.JobOf(st, "large").Totals(b.Context())) }), "first-totals-ms")
		b.ReportMetric(timeOf(func() { need(perstack.GetAllJobs(b.Context(), st)) }), "all-jobs-ms")
		b.ReportMetric(timeOf(func() { need(perstack.GetAllRuns(b.Context(), st)) }), "all-runs-ms")
	}
}

// timeOf returns the duration of a call in milliseconds.
func timeOf(do func()) float64 {
	began := time.Now()
	do()
	return float64(time.Since(began).Microseconds()) / 1000
}

// medianOf returns the median duration of calls in milliseconds.
func medianOf(b *testing.B, n int, do func(int) error) float64 {
	b.Helper()
	var list []float64
	for i := range n {
		began := time.Now()
		must(b, do(i))
		list = append(list, float64(time.Since(began).Microseconds())/1000)
	}
	slices.Sort(list)
	return list[n/2]
}

// bulk appends events to a job without waiting for the disk.
func bulk(b *testing.B, st *tally.Store, job string, payloads ...events.Payload) {
	b.Helper()
	sub := perstack.JobOf(st, job).Session().Subject()
	var list []events.Event
	for _, p := range payloads {
		e, err := events.New(shape.Source, sub, p)
		must(b, err)
		list = append(list, e)
	}
	if len(list) == 1 {
		_, err := st.Log.AppendBuffered(b.Context(), sub, log.At(0), list[0])
		must(b, err)
		return
	}
	_, _, err := st.Log.AppendSeries(b.Context(), sub, log.Any, list...)
	must(b, err)
}

// fillJob stores a job of runs with checkpoints, and events for each checkpoint.
func fillJob(b *testing.B, st *tally.Store, job string, runs, checkpoints, each int) {
	b.Helper()
	parsed, err := shape.ParseJob(need(perstack.CreateInitialJob(job, "coder").Raw()))
	must(b, err)
	bulk(b, st, job, parsed.Created())
	var known share.Messages
	for run := range runs {
		name := fmt.Sprint("r", run)
		ref := shape.RunRef(name)
		list := []events.Payload{&events.RunStarted{Run: ref}}
		for c := range checkpoints {
			n := run*checkpoints + c
			point := checkpoint(job, name, fmt.Sprint("c", n), int64(c), messages(n-c%20, n+1))
			raw := need(point.Raw())
			split := need(known.Split(shape.RunThread(name, 1), raw))
			if split.New != nil {
				list = append(list, &events.TurnAppended{Entries: split.New})
				for _, e := range split.New {
					known.Add(e.Thread, e.Turn)
				}
			}
			list = append(list, need(shape.ParseCheckpoint(raw)).Saved(split.Raw, split.Lists, 0))
			for i := range each {
				e := need(shape.ParseEvent(need(event(job, name, fmt.Sprint(n, "-", i), "startGeneration", int64(1760000000000+n*each+i), int64(c)).Raw())))
				list = append(list, e.Payload(e.Raw, nil))
			}
		}
		for part := range slices.Chunk(list, 900) {
			bulk(b, st, job, part...)
		}
	}
}

// forgetPeak frees memory and resets the peak.
func forgetPeak(b *testing.B) {
	b.Helper()
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // only on Linux
}

// peakMB returns the peak memory of this process.
func peakMB(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0 // not on Linux
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kb := 0.0
	fmt.Sscan(rest, &kb)
	return kb / 1024
}
