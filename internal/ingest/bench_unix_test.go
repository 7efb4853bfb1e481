//go:build unix

package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// transcript returns a session of Claude Code with n lines.
func transcript(session, n int) string {
	var b strings.Builder
	parent := "null"
	for i := range n {
		id := fmt.Sprintf("%08d-0000-4000-8000-%012d", session, i)
		head := fmt.Sprintf(`{"parentUuid":%s,"isSidechain":false,"uuid":%q,"sessionId":"s%d","timestamp":%q,"cwd":"/pier","version":"2.1.42","gitBranch":"main"`,
			parent, id, session, time.Unix(1_767_000_000+int64(i), 0).UTC().Format(time.RFC3339))
		switch i % 4 {
		case 0:
			fmt.Fprintf(&b, `%s,"type":"user","message":{"role":"user","content":"Go on with part %d of it"}}`+"\n", head, i)
		case 2:
			fmt.Fprintf(&b, `%s,"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t%d","content":%q}]}}`+"\n", head, i-1, strings.Repeat("A gull sat on the pier. ", 20))
		case 1:
			fmt.Fprintf(&b, `%s,"type":"assistant","message":{"id":"msg_%d_%d","role":"assistant","model":"m","content":[{"type":"tool_use","id":"t%d","name":"Read","input":{"file_path":"/pier/a"}}],"usage":{"input_tokens":3,"output_tokens":9}}}`+"\n", head, session, i, i)
		default:
			fmt.Fprintf(&b, `%s,"type":"assistant","message":{"id":"msg_%d_%d","role":"assistant","model":"m","content":[{"type":"text","text":"That is how it is, and so it goes on."}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":9}}}`+"\n", head, session, i)
		}
		parent = `"` + id + `"`
	}
	return b.String()
}

// startStore starts a store with synced appends.
func startStore(b *testing.B) *embedded.Server {
	b.Helper()
	s, err := embedded.Start(b.Context(), embedded.ServerOptions{Dir: b.TempDir(), Private: true})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// memory measures the peak memory above the current use, in MiB, until stop is called.
func memory() (stop func() float64) {
	var peak atomic.Uint64
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapInuse+m.StackInuse))
			time.Sleep(20 * time.Millisecond)
		}
	})
	return func() float64 {
		cancel()
		done.Wait()
		return (float64(peak.Load()) - float64(before.HeapInuse+before.StackInuse)) / (1 << 20)
	}
}

// BenchmarkBackfill reports the lines per second for existing sessions, and the peak memory including the store. For
// comparison in the same run, it appends the same lines as turns, session by session, like an import.
func BenchmarkBackfill(b *testing.B) {
	const sessions, lines = 2000, 30
	for b.Loop() {
		b.StopTimer()
		root := b.TempDir()
		var contents []string
		for i := range sessions {
			content := transcript(i, lines)
			contents = append(contents, content)
			path := filepath.Join(root, fmt.Sprintf("-p%d", i/20), fmt.Sprintf("s%d.jsonl", i))
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				b.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				b.Fatal(err)
			}
		}
		s := startStore(b)
		turns := appendTurns(b, s.Log(), contents)
		s.Close()
		contents = nil
		s = startStore(b)
		stop := memory()
		began := time.Now()
		in, err := New(Options{Log: s.Log(), Sources: []Source{{Agent: ofClaude, Root: root}}, Once: true, State: filepath.Join(b.TempDir(), "state.db")})
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := in.Run(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		rate := sessions * lines / time.Since(began).Seconds()
		if n := in.Status().Lines; n != sessions*lines {
			b.Fatalf("%d lines", n)
		}
		if err := errors.Join(in.Close(), s.Close()); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(rate, "lines/s")
		b.ReportMetric(turns, "turns/s")
		b.ReportMetric(rate/turns, "x-turns")
		b.ReportMetric(stop(), "MiB")
		b.ReportMetric(float64(in.Status().Events)/(sessions*lines), "events/line")
		b.StartTimer()
	}
}

// appendTurns appends each line as a turn, a session at a time, and returns the lines per second.
func appendTurns(b *testing.B, l *log.Log, contents []string) float64 {
	b.Helper()
	began, n := time.Now(), 0
	for i, content := range contents {
		sub := events.Session("", fmt.Sprintf("s%d", i))
		var series []events.Event
		for line := range bytes.Lines([]byte(content)) {
			e, err := events.New("urn:bench", sub, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: bytes.TrimSpace(line)}}})
			if err != nil {
				b.Fatal(err)
			}
			e.ID = fmt.Sprint("l", len(series))
			series = append(series, e)
		}
		if _, _, err := l.AppendSeries(b.Context(), sub, log.At(0), series...); err != nil {
			b.Fatal(err)
		}
		n += len(series)
	}
	return float64(n) / time.Since(began).Seconds()
}

// BenchmarkLive reports the time from the write of a line until a follower of the log gets it, with 200 sessions that
// write 20 lines a second each. It also reports the processor time, including the writer and the store: 1 is one core.
func BenchmarkLive(b *testing.B) {
	const sessions, perSecond, seconds = 200, 20, 20
	for b.Loop() {
		s := startStore(b)
		l := s.Log()
		root := b.TempDir()
		in, err := New(Options{Log: l, Sources: []Source{{Agent: ofClaude, Root: root}}, State: filepath.Join(b.TempDir(), "state.db")})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		var all sync.WaitGroup
		all.Go(func() { in.Run(ctx) })
		var mu sync.Mutex
		wrote := make(map[string]time.Time)
		var waits []time.Duration
		seen := make(chan struct{})
		all.Go(func() {
			for rec, err := range l.Follow(ctx, events.Range{}) {
				if err != nil {
					return
				}
				mu.Lock()
				if at, ok := wrote[rec.ID]; ok && rec.Type == events.TypeTurnAppended {
					waits = append(waits, time.Since(at))
					if len(waits) == sessions*perSecond*seconds {
						close(seen)
					}
				}
				mu.Unlock()
			}
		})
		files := make([]*os.File, sessions)
		lines := make([][]string, sessions)
		for i := range files {
			path := filepath.Join(root, fmt.Sprintf("-p%d", i/20), fmt.Sprintf("s%d.jsonl", i))
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				b.Fatal(err)
			}
			if files[i], err = os.Create(path); err != nil {
				b.Fatal(err)
			}
			lines[i] = strings.SplitAfter(transcript(i, perSecond*seconds), "\n")
		}
		busy := processorTime()
		began := time.Now()
		for n := range perSecond * seconds {
			for i, f := range files {
				due := began.Add(time.Duration(n)*time.Second/perSecond + time.Duration(i)*time.Second/(perSecond*sessions))
				time.Sleep(time.Until(due))
				mu.Lock()
				wrote[fmt.Sprintf("%08d-0000-4000-8000-%012d", i, n)] = time.Now()
				mu.Unlock()
				if _, err := f.WriteString(lines[i][n]); err != nil {
					b.Fatal(err)
				}
			}
		}
		select {
		case <-seen:
		case <-time.After(30 * time.Second):
			b.Logf("%+v", in.Status())
		}
		b.ReportMetric((processorTime()-busy).Seconds()/time.Since(began).Seconds(), "cores")
		cancel()
		all.Wait()
		if err := errors.Join(in.Close(), s.Close()); err != nil {
			b.Fatal(err)
		}
		slices.Sort(waits)
		b.ReportMetric(float64(len(waits)), "lines")
		b.ReportMetric(float64(waits[len(waits)/2])/1e6, "p50-ms")
		b.ReportMetric(float64(waits[len(waits)*99/100])/1e6, "p99-ms")
		b.ReportMetric(float64(waits[len(waits)-1])/1e6, "max-ms")
	}
}

// processorTime returns the processor time of this process.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
