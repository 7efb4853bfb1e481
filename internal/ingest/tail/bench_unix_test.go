//go:build unix

package tail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// writeMany writes files in folders, ten lines each.
func writeMany(b *testing.B, r *rig, files, folders int) {
	b.Helper()
	for i := range files {
		r.write(fmt.Sprintf("%03d/%05d.jsonl", i%folders, i), text("a", 300))
	}
	old := time.Now().Add(-48 * time.Hour)
	must(b, filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			err = os.Chtimes(path, old, old)
		}
		return err
	}))
}

func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkIdle measures the cost to follow 10,000 unchanged files in 500 folders, compared with a watcher that
// examines each of them every second.
func BenchmarkIdle(b *testing.B) {
	r := newRig(b, func(o *Options) { o.MaxWatches = 1 << 20 })
	writeMany(b, r, 10_000, 500)
	r.run()
	reads := 0
	r.tail.beforeOpen = func(string) error { reads++; return nil }
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	start := cpu()
	for b.Loop() { // a minute each
		for range 12 {
			r.now = r.now.Add(5 * time.Second)
			r.drain()
		}
	}
	tail := cpu() - start
	runtime.GC()
	runtime.ReadMemStats(&after)
	start = cpu()
	for range b.N {
		r.naive()
	}
	naive := cpu() - start
	b.ReportMetric(100*tail.Seconds()/60/float64(b.N), "%core")
	b.ReportMetric(100*naive.Seconds()/float64(b.N), "%core-naive")
	b.ReportMetric(float64(reads), "files-read")
	b.ReportMetric(float64(after.HeapAlloc)/1e6, "heap-MB")
}

// naive is a second of a watcher that walks its folders.
func (r *rig) naive() {
	must(r.t, filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			_, err = d.Info()
		}
		return err
	}))
}

// BenchmarkStart measures the time until 10,000 known files are followed.
func BenchmarkStart(b *testing.B) {
	r := newRig(b, func(o *Options) { o.MaxWatches = 1 << 20 })
	writeMany(b, r, 10_000, 500)
	r.run()
	r.close()
	for b.Loop() {
		r.open()
		r.drain()
		r.close()
	}
}

// BenchmarkDelivery measures the time from the write of a line to its delivery, compared with a watcher that walks its
// folders each second and reads changed files.
func BenchmarkDelivery(b *testing.B) {
	r := newRig(b, func(o *Options) { o.MaxWatches, o.Now = 1<<20, time.Now })
	writeMany(b, r, 1000, 50)
	r.open()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	came := make(chan time.Time, 1)
	ended := make(chan bool)
	go func() {
		defer close(ended)
		for {
			batch, err := r.tail.Next(ctx)
			if err != nil {
				return
			}
			if batch.Lines[0].Offset > 300 {
				came <- time.Now()
			}
			r.tail.Ack(batch)
		}
	}()
	for s := r.tail.Status(); s.Files < 1000 || s.Lag > 0; s = r.tail.Status() {
		time.Sleep(10 * time.Millisecond)
	}
	var times []time.Duration
	for b.Loop() {
		rel := fmt.Sprintf("%03d/%05d.jsonl", len(times)%50, len(times)%1000)
		start := time.Now()
		r.append(rel, "{\"line\":1}\n")
		times = append(times, (<-came).Sub(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
	cancel()
	<-ended
}

// BenchmarkBackfill measures how fast existing content is read.
func BenchmarkBackfill(b *testing.B) {
	r := newRig(b, func(o *Options) { o.Once, o.State = true, "" })
	for i := range 100 {
		r.write(fmt.Sprintf("%d.jsonl", i), text("a", 1<<20))
	}
	b.SetBytes(100 << 20)
	for b.Loop() {
		r.open()
		for {
			batch, err := r.tail.Next(b.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			must(b, err)
			r.tail.Ack(batch)
		}
		r.close()
	}
}
