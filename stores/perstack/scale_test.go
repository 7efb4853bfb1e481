package perstack_test

import (
	"context"
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
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/logtest"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/projector/catalog"
	"github.com/tallylog/tally/snapshot"
	"github.com/tallylog/tally/stores/perstack"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
	"github.com/tallylog/tally/stores/perstack/internal/share"
)

// read counts the records that are read of a backend.
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

// What a call reads does not grow with the job: a handle that has worked with it reads for
// one more of anything what came since and what it asks for, in a job of ten times as many
// steps too.
func TestScale(t *testing.T) {
	var records atomic.Int64
	l := logtest.OpenOn(t, read{logtest.NewMem(logtest.MemConfig{}), &records}, log.Config{Owner: true})
	st := need(tally.Open(t.Context(), l, tally.Config{Snapshots: &snapshot.Mem{}}))
	for _, steps := range []int{30, 300} {
		h := perstack.JobOf(st, fmt.Sprint("job-", steps))
		must(t, perstack.StoreJob(t.Context(), st, perstack.CreateInitialJob(h.ID(), "coder")))
		for i := range steps {
			need(h.SaveCheckpoint(t.Context(), turnOf(h.ID(), i)))
			need(h.Record(t.Context(), ending(h.ID(), fmt.Sprint("r", i/10), fmt.Sprint("e", i), int64(i), 5)))
		}
		need(st.Loader().Keep(t.Context(), h.Session().Subject(), 0, "")) // as the one who owns the store does
		need(h.EventList(t.Context(), "r0"))
		need(h.Checkpoint(t.Context(), "c3"))
		for _, call := range []struct {
			name string
			most int64
			do   func() error
		}{
			{"one more checkpoint of a new run", 50, func() error { _, err := h.SaveCheckpoint(t.Context(), turnOf(h.ID(), steps)); return err }},
			{"one more event", 2, func() error { _, err := h.Record(t.Context(), ending(h.ID(), "r0", "more", 7, 5)); return err }},
			{"the list of events", 6, func() error { _, err := h.EventList(t.Context(), "r0"); return err }},
			{"a checkpoint by its id", 20, func() error { _, err := h.Checkpoint(t.Context(), "c7"); return err }},
			{"the job", 6, func() error { _, err := h.Load(t.Context()); return err }},
			{"a change of the job", 8, func() error {
				_, err := h.Update(t.Context(), func(j *perstack.Job) error { j.TotalSteps++; return nil })
				return err
			}},
		} {
			t.Run(fmt.Sprintf("P-34 %d steps, %s reads at most %d records", steps, call.name, call.most), func(t *testing.T) {
				records.Store(0)
				must(t, call.do())
				t.Logf("it reads %d records", records.Load())
				if n := records.Load(); n > call.most {
					t.Errorf("it reads %d records", n)
				}
			})
		}
	}
}

// turnOf is the i-th checkpoint of a job: a run has ten, each with a message more.
func turnOf(job string, i int) perstack.Checkpoint {
	return checkpoint(job, fmt.Sprint("r", i/10), fmt.Sprint("c", i), int64(i), messages(i/10*10, i+1))
}

// 10,000 jobs, and a job of 100,000 events and 10,000 checkpoints: what the first page of a
// list, the first page of a run's events, a checkpoint and one more checkpoint take, in ms,
// and what memory the process has that owns the store: open-MB before, and peak-MB at most
// meanwhile, its views and the server's caches with it. x-first is one more checkpoint of the
// large job beside one of a new job.
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
	first := medianOf(b, 9, func(i int) error { // of a job each

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
		must(b, save(-1)) // what is read once
		more := medianOf(b, 9, save)
		b.ReportMetric(more, "one-more-ms")
		b.ReportMetric(more/first, "x-first")
		b.ReportMetric(before, "open-MB")
		b.ReportMetric(peakMB(b), "peak-MB")
		began := time.Now()
		need(h.EventList(b.Context(), "r7"))
		b.ReportMetric(float64(time.Since(began).Microseconds())/1000, "first-event-list-ms")
		began = time.Now()
		if n := len(need(perstack.Jobs(b.Context(), st, perstack.Query{Limit: 50}))); n != 50 {
			b.Fatalf("%d jobs", n)
		}
		b.ReportMetric(float64(time.Since(began).Microseconds())/1000, "jobs-ms")
	}
}

// medianOf is the median of some calls in milliseconds.
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

// bulk appends events to a job as they are, without waiting for the disk.
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

// fillJob stores a job of runs with checkpoints, and events for each of these.
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

// forgetPeak frees what the making of the store took, and has peakMB begin anew.
func forgetPeak(b *testing.B) {
	b.Helper()
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // not on Linux: then it is what it was
}

// peakMB is the most memory that this process has had.
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
