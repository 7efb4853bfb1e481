package ailoop_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/stores/ailoop"
)

// BenchmarkHistorySave saves a conversation of a thousand messages each time with one more. The metric written is the
// stored size of a save as a multiple of the message's size.
func BenchmarkHistorySave(b *testing.B) {
	for _, backend := range []string{"memory", "local"} {
		b.Run(backend, func(b *testing.B) {
			st := storetest.Open(b, backend)
			h, s := ailoop.Of(st, "bench"), longTalk(1000)
			mustSave(b, h, s)
			hs := &logHistories{st: st, prefix: "bench"}
			before, err := hs.written(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			added := ailoop.AssistantMessage(strings.Repeat("what a model answers ", 50))
			n := 0
			for b.Loop() {
				s = s.Append(added)
				mustSave(b, h, s)
				n++
			}
			b.StopTimer()
			after, err := hs.written(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(after-before)/float64(n*len(added.Raw())), "written")
		})
	}
	b.Run("file", func(b *testing.B) {
		st, s := ailoop.NewFile(filepath.Join(b.TempDir(), "chat.json")), longTalk(1000)
		for b.Loop() {
			mustSave(b, st, s)
		}
	})
}

// BenchmarkHistoryLoad loads a conversation of a thousand messages.
func BenchmarkHistoryLoad(b *testing.B) {
	st := storetest.Open(b, "local")
	file := ailoop.NewFile(filepath.Join(b.TempDir(), "chat.json"))
	s := longTalk(1000)
	mustSave(b, file, s)
	mustSave(b, ailoop.Of(st, "bench"), s)
	for name, h := range map[string]ailoop.HistoryStore{"log": ailoop.Of(st, "bench"), "file": file} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				mustLoad(b, h)
			}
		})
	}
}
