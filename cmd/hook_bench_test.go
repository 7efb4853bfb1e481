package cmd_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// How long an agent waits for a hook, as that of a program that is started each time:
// -benchtime 500x gives a p99 that means something. There is no store, and no watch: neither
// makes a difference.
func BenchmarkHook(b *testing.B) {
	const said = `{"session_id":"s","transcript_path":"/home/me/.claude/projects/shop/s.jsonl","cwd":"/","tool_response":"`
	for name, in := range map[string]string{"whole": said + `"}`, "broken": said[:40], "10MB": said + strings.Repeat("x", 10<<20) + `"}`} {
		b.Run(name, func(b *testing.B) {
			store := filepath.Join(b.TempDir(), "none")
			took := make([]time.Duration, 0, b.N)
			for b.Loop() {
				c := command(b.Context(), store, "tally", "hook", "claude")
				c.Stdin = strings.NewReader(in)
				began := time.Now()
				if err := c.Run(); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}
