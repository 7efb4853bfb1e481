package tallydir_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/gentree"
	"github.com/tallylog/tally/stores/evals/tallydir"
)

// BenchmarkImport imports a generated folder into a log in memory: the cost of an import without the log.
func BenchmarkImport(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "p")
	st, err := gentree.Write(dir, gentree.Options{Sessions: 100, Turns: 100})
	if err != nil {
		b.Fatal(err)
	}
	var events int
	for b.Loop() {
		events = mustImport(b, openStore(b), dir).Events
	}
	b.SetBytes(st.Bytes)
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkImportAgain compares a folder with its imported sessions.
func BenchmarkImportAgain(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "p")
	if _, err := gentree.Write(dir, gentree.Options{Sessions: 100, Turns: 100}); err != nil {
		b.Fatal(err)
	}
	st := openStore(b)
	events := mustImport(b, st, dir).Events
	began, n := time.Now(), 0
	for b.Loop() {
		if r, err := (tallydir.Layout{}).Import(b.Context(), st, dir, layouts.ImportOptions{}); err != nil || r.Events != 0 {
			b.Fatal(r, err)
		}
		n++
	}
	b.ReportMetric(float64(events*n)/time.Since(began).Seconds(), "events/s")
}
