package redact_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/ingest/redact"
)

func goroot(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func benchLines(b *testing.B, lines [][]byte, patterns ...redact.Pattern) {
	r := mustNew(b, redact.Options{Patterns: patterns})
	size := 0
	for _, line := range lines {
		size += len(line) + 1
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		for _, line := range lines {
			r.Line(line)
		}
	}
}

func BenchmarkLine(b *testing.B) {
	b.Run("agents", func(b *testing.B) { benchLines(b, agentLines(b)) })
	ticket := redact.Pattern{Name: "ticket", Regexp: `TICKET-[0-9]{6,}`}
	key := redact.Pattern{Name: "key", Regexp: `(?i)internal[_-]key["':= ]+([a-z0-9]{20,})`}
	number := redact.Pattern{Name: "number", Regexp: `\b[0-9]{4}-[0-9]{4}-[0-9]{4}\b`}
	b.Run("one pattern", func(b *testing.B) { benchLines(b, agentLines(b), ticket) })
	b.Run("two patterns", func(b *testing.B) { benchLines(b, agentLines(b), ticket, key) })
	b.Run("without literals", func(b *testing.B) { benchLines(b, agentLines(b), number) })
	b.Run("source", func(b *testing.B) {
		var lines [][]byte
		eachLine(b, filepath.Join(goroot(b), "src", "net"), func(_ string, line []byte) { lines = append(lines, line) }, ".go")
		benchLines(b, lines)
	})
}
