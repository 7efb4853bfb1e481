package perstack_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/perstack"
)

// A further checkpoint costs the same however many a job has, by a handle and by the original's function.
func BenchmarkCheckpoint(b *testing.B) {
	for _, had := range []int{0, 10_000} {
		for _, way := range []string{"handle", "function"} {
			b.Run(fmt.Sprintf("%s/%d", way, had), func(b *testing.B) {
				st, ctx := storetest.Open(b, "local"), b.Context()
				h := perstack.JobOf(st, "j")
				for i := range had {
					if _, err := h.SaveCheckpoint(ctx, checkpoint("j", fmt.Sprint("r", i/20), fmt.Sprint("old", i), int64(i), messages(i/20*20, i+1))); err != nil {
						b.Fatal(err)
					}
				}
				save := func(c perstack.Checkpoint) error { _, err := h.SaveCheckpoint(ctx, c); return err }
				if way == "function" {
					save = func(c perstack.Checkpoint) error { return perstack.DefaultStoreCheckpoint(ctx, st, c) }
				}
				n := 0
				next := func() error {
					n++
					return save(checkpoint("j", "new", fmt.Sprint("c", n), int64(n), messages(1_000_000, 1_000_000+n%20)))
				}
				if err := next(); err != nil { // reads the job once
					b.Fatal(err)
				}
				for b.Loop() {
					if err := next(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// Other calls on a job with 10,000 checkpoints.
func BenchmarkLongJob(b *testing.B) {
	st, ctx := storetest.Open(b, "local"), b.Context()
	h := perstack.JobOf(st, "j")
	if err := perstack.StoreJob(ctx, st, perstack.CreateInitialJob("j", "coder")); err != nil {
		b.Fatal(err)
	}
	for i := range 10_000 {
		if _, err := h.SaveCheckpoint(ctx, checkpoint("j", fmt.Sprint("r", i/20), fmt.Sprint("c", i), int64(i), messages(i/20*20, i+1))); err != nil {
			b.Fatal(err)
		}
	}
	for name, call := range map[string]func() error{
		"first save of a handle": func() error {
			_, err := perstack.JobOf(st, "j").SaveCheckpoint(ctx, checkpoint("j", "x", "x", 1, messages(0, 1)))
			return err
		},
		"checkpoint by id": func() error { _, err := h.Checkpoint(ctx, "c5000"); return err },
		"update of the job": func() error {
			_, err := h.Update(ctx, func(j *perstack.Job) error { j.TotalSteps++; return nil })
			return err
		},
		"list of checkpoints": func() error { _, err := h.CheckpointList(ctx); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Events of one run, and of 16 at once, each durable when its call returns.
func BenchmarkRecord(b *testing.B) {
	for _, runs := range []int{1, 16} {
		b.Run(fmt.Sprint("runs=", runs), func(b *testing.B) {
			h, ctx := perstack.JobOf(storetest.Open(b, "local"), "j"), b.Context()
			var all sync.WaitGroup
			for run := range runs {
				all.Go(func() {
					for i := range b.N/runs + 1 {
						if _, err := h.Record(ctx, event("j", fmt.Sprint("r", run), fmt.Sprint("e", i), "callTools", int64(i), 1)); err != nil {
							b.Error(err)
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
