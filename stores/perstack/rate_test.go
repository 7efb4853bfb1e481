package perstack_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/perstack"
)

// Durable events per second of one run and of 16 runs at once, compared with a Node.js program that writes a file for
// each event: synced with its folder, and without any sync as in the original. An event either has a new message, so
// that it is two records, or is a piece of streamed text. The 16 runs belong to one job, or each to its own. Each round
// measures everything, one after the other on the same disk; the reported numbers are medians of the rounds.
// of the rounds.
//
//	go test -run '^$' -bench Rate -benchtime 7x ./stores/perstack
func BenchmarkRate(b *testing.B) {
	for _, r := range []rated{
		{"message", 1, 1, 2000, calling}, {"message", 16, 1, 250, calling}, {"message", 16, 16, 250, calling},
		{"delta", 1, 1, 2000, streaming}, {"delta", 16, 1, 250, streaming}, {"delta", 16, 16, 250, streaming},
	} {
		b.Run(fmt.Sprintf("%s/%d runs of %d jobs", r.what, r.runs, r.jobs), func(b *testing.B) {
			var rates, synced, plain, toSynced, toPlain []float64
			for b.Loop() {
				own := r.record(b)
				durable, bare := nodeRate(b, r.runs, r.each, "--sync"), nodeRate(b, r.runs, r.each)
				rates, synced, plain = append(rates, own), append(synced, durable), append(plain, bare)
				toSynced, toPlain = append(toSynced, own/durable), append(toPlain, own/bare)
			}
			b.ReportMetric(0, "ns/op")
			for unit, list := range map[string]([]float64){"events/s": rates, "synced-files/s": synced, "files/s": plain, "x-synced": toSynced, "x-unsynced": toPlain} {
				slices.Sort(list)
				b.ReportMetric(list[len(list)/2], unit)
			}
		})
	}
}

// syncs counts the syncs of a log, and makes each take as long as on a disk: with a faster one, runs would never share
// a sync.
type syncs struct{ times atomic.Int64 }

func (*syncs) Appended(int, time.Duration, error) {}

func (s *syncs) Synced(int, time.Duration) {
	s.times.Add(1)
	time.Sleep(2 * time.Millisecond)
}

// 16 runs record at once, on every backend. If the store itself syncs, one sync makes the events of several runs
// durable. BenchmarkRate measures the rate; see docs/measurements.md.
func TestRate(t *testing.T) {
	var synced syncs
	storetest.EachWith(t, embedded.Options{Observer: &synced}, func(t *testing.T, st *tally.Store) {
		const runs = 16
		each := testkit.Times(25)
		before := synced.times.Load()
		t.Run("P-33 16 runs record at once, each in its order", func(t *testing.T) {
			h := perstack.JobOf(st, "j")
			need(h.Create(t.Context(), perstack.CreateInitialJob("j", "coder")))
			var all sync.WaitGroup
			failed := make([]error, runs)
			for run := range runs {
				list := make([]events.Raw, each)
				for n := range list {
					list[n] = calling("j", fmt.Sprint("run-", run), n)
				}
				all.Go(func() { failed[run] = recordAll(t.Context(), h, list) })
			}
			all.Wait()
			must(t, errors.Join(failed...))
			for run := range runs {
				wantInOrder(t, st, fmt.Sprint("run-", run), each)
			}
		})
		times := synced.times.Load() - before
		if !strings.HasSuffix(t.Name(), "/local") { // the others leave it to a server, or have no disk
			return
		}
		t.Run("P-33 a sync is shared by several runs", func(t *testing.T) {
			testkit.NotUnderRace(t) // with it, appends take longer than syncs
			if t.Logf("%d syncs", times); times == 0 || times >= int64(runs*each) {
				t.Errorf("got %d syncs for %d events, want fewer", times, runs*each)
			}
		})
	})
}

// wantInOrder checks that the events of a run are in the order of recording, each once.
func wantInOrder(t *testing.T, st *tally.Store, run string, n int) {
	t.Helper()
	list := need(perstack.GetEventContents(t.Context(), st, "j", run))
	for i, e := range list {
		if e.ID != fmt.Sprintf("event-%s-%d", run, i) {
			t.Fatalf("event %d of %s is %s", i, run, e.ID)
		}
	}
	if len(list) != n {
		t.Errorf("%s has %d events, want %d", run, len(list), n)
	}
}

// rated is a measured configuration.
type rated struct {
	what       string
	runs, jobs int
	each       int // events of a run
	event      func(job, run string, n int) events.Raw
}

// record returns the events per second that the runs of new jobs record.
func (r rated) record(b *testing.B) float64 {
	b.Helper()
	st, err := embedded.Open(b.Context(), embedded.Options{Store: filepath.Join(b.TempDir(), "store"), Backend: "local", Own: true})
	must(b, err)
	handles := make([]*perstack.Handle, r.jobs)
	for i := range handles {
		handles[i] = perstack.JobOf(st, fmt.Sprint("bench-", i))
	}
	list := make([][]events.Raw, r.runs)
	for run := range list {
		for n := range r.each {
			list[run] = append(list[run], r.event(handles[run%r.jobs].ID(), fmt.Sprint("run-", run), n))
		}
	}
	began := time.Now()
	var all sync.WaitGroup
	failed := make([]error, r.runs)
	for run := range list {
		all.Go(func() { failed[run] = recordAll(b.Context(), handles[run%r.jobs], list[run]) })
	}
	all.Wait()
	must(b, errors.Join(failed...))
	rate := float64(r.runs*r.each) / time.Since(began).Seconds()
	must(b, st.Close())
	return rate
}

func recordAll(ctx context.Context, h *perstack.Handle, list []events.Raw) error {
	for _, raw := range list {
		if _, err := h.RecordRaw(ctx, raw); err != nil {
			return err
		}
	}
	return nil
}

// calling returns the event that the Node.js program writes.
func calling(job, run string, n int) events.Raw {
	const call = `{"id":"call-%d","skillName":"@perstack/base","toolName":"readTextFile","args":{"path":"src/main.go"}}`
	return events.Raw(fmt.Sprintf(`{"type":"callTools","id":"event-%[1]s-%[2]d","expertKey":"@perstack/coordinator","timestamp":%[3]d,"jobId":%[4]q,"runId":%[1]q,"stepNumber":%[5]d,`+
		`"newMessage":{"type":"expertMessage","id":"message-%[2]d","contents":[{"type":"textPart","id":"text-%[2]d","text":"%[6]s"},`+
		`{"type":"toolCallPart","id":"part-%[2]d","toolCallId":"call-%[2]d","toolName":"readTextFile","args":{"path":"src/main.go"}}]},"toolCalls":[%[7]s],`+
		`"usage":{"inputTokens":4096,"outputTokens":256,"reasoningTokens":0,"totalTokens":4352,"cachedInputTokens":1024}}`,
		run, n, 1760000000000+n, job, 1+n>>3, strings.Repeat("0123456789abcdef", 24), fmt.Sprintf(call, n)))
}

// streaming returns a piece of streamed text.
func streaming(job, run string, n int) events.Raw {
	return events.Raw(fmt.Sprintf(`{"type":"streamRunResult","id":"event-%[1]s-%[2]d","expertKey":"@perstack/coordinator","timestamp":%[3]d,"jobId":%[4]q,"runId":%[1]q,"stepNumber":1,"delta":"%[2]d and so on, "}`,
		run, n, 1760000000000+n, job))
}

// nodeRate returns the events per second that are written as files.
func nodeRate(b *testing.B, runs, each int, flags ...string) float64 {
	b.Helper()
	_, err := exec.LookPath("node")
	testkit.Needs(b, err == nil, "node")
	args := append([]string{"perstackdir/testdata/oracle/bench.mjs", filepath.Join(b.TempDir(), "files"), strconv.Itoa(runs), strconv.Itoa(each)}, flags...)
	out, err := exec.CommandContext(b.Context(), "node", args...).Output()
	must(b, err)
	var said struct{ EventsPerSecond float64 }
	must(b, json.Unmarshal(out, &said))
	return said.EventsPerSecond
}
