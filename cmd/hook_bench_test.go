package cmd_test

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkHook measures how long an agent waits for a hook, which starts a program each time. -benchtime 500x yields
// a meaningful p99. There is no store and no watch: neither makes a difference.
func BenchmarkHook(b *testing.B) {
	const said = `{"session_id":"s","transcript_path":"/home/me/.claude/projects/shop/s.jsonl","cwd":"/","tool_response":"`
	for _, c := range []struct {
		name  string
		write func(io.Writer) error
		open  bool // the input is not closed
	}{
		{"whole", text(said + `"}`), false},
		{"broken", text(said[:40]), false},
		{"10MB", text(said + strings.Repeat("x", 10<<20) + `"}`), false},
		{"never-closed", text(said + `"}`), true},
		{"nothing", text(""), true},
		{"endless", func(w io.Writer) error { return endlessly(w, said) }, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			store := filepath.Join(b.TempDir(), "none")
			took := make([]time.Duration, 0, b.N)
			for b.Loop() {
				took = append(took, hook(b, store, c.write, c.open))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func endlessly(w io.Writer, first string) error {
	_, err := io.WriteString(w, first)
	for more := strings.Repeat("x", 64<<10); err == nil; {
		_, err = io.WriteString(w, more)
	}
	return err
}

// hook runs a hook with an input, and returns its running time.
func hook(b *testing.B, store string, write func(io.Writer) error, isOpen bool) time.Duration {
	b.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	c := command(b.Context(), store, "tally", "hook", "claude")
	c.Stdin = in
	began := time.Now()
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	in.Close()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = write(out) // the hook may not read it all
		if !isOpen {
			out.Close()
		}
	}()
	if err := c.Wait(); err != nil {
		b.Fatal(err)
	}
	took := time.Since(began)
	<-written
	out.Close()
	return took
}
