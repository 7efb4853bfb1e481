package evals_test

import (
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/gentree"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/evals/tallydir"
)

// BenchmarkImportCorpus imports the recorded folders, or generated ones without them, into a store with durable
// acknowledgements. The metric x-hash is the time as a multiple of reading and hashing the same files. The catalog
// pauses for a tenth of a second at most, search and snapshots pause longer; they catch up afterwards. As in the
// import command, garbage is collected a third as often, and Go runs one thread more than there are processors,
// because one is usually in a sync.
func BenchmarkImportCorpus(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(300))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1))
	roots := corpus(b)
	var reading, importing time.Duration
	var size int64
	for range b.N {
		began := time.Now()
		size = hashFiles(b, roots)
		reading += time.Since(began)

		st := need(embedded.Open(b.Context(), embedded.Options{Store: b.TempDir(), Backend: "local"}))
		began = time.Now()
		for _, root := range roots {
			r, err := (tallydir.Layout{}).Import(b.Context(), st, root, layouts.ImportOptions{})
			if err != nil || r.Events == 0 || len(r.Problems) > 0 {
				b.Fatalf("got %+v, error %v", r, err)
			}
		}
		importing += time.Since(began)
		if err := st.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(size)
	b.ReportMetric(float64(importing)/float64(reading), "x-hash")
	b.ReportMetric(importing.Seconds()*1e3/float64(b.N), "import-ms")
	b.ReportMetric(reading.Seconds()*1e3/float64(b.N), "hash-ms")
}

// BenchmarkAppendCorpus appends the events of that import unchanged, all sessions at the same time: the lower bound
// for an import.
func BenchmarkAppendCorpus(b *testing.B) {
	roots := corpus(b)
	sessions := make(map[events.Subject][]events.Event)
	st := storetest.Open(b, "memory")
	for _, root := range roots {
		need((tallydir.Layout{}).Import(b.Context(), st, root, layouts.ImportOptions{}))
	}
	for rec, err := range st.Log.Read(b.Context(), events.Range{}) {
		if err != nil {
			b.Fatal(err)
		}
		sessions[rec.Subject] = append(sessions[rec.Subject], rec.Event)
	}
	var reading, appending time.Duration
	for range b.N {
		began := time.Now()
		hashFiles(b, roots)
		reading += time.Since(began)

		st := need(embedded.Open(b.Context(), embedded.Options{Store: b.TempDir(), Backend: "local"}))
		began = time.Now()
		var group sync.WaitGroup
		for sub, list := range sessions {
			group.Go(func() {
				if _, _, err := st.AppendSeries(b.Context(), sub, log.At(0), list...); err != nil {
					b.Error(err)
				}
			})
		}
		group.Wait()
		appending += time.Since(began)
		if err := st.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(appending)/float64(reading), "x-hash")
}

// corpus returns the folders to import.
func corpus(b *testing.B) []string {
	b.Helper()
	roots, err := filepath.Glob(filepath.Join("..", "..", "..", "shared", "data", "tally", "*"))
	if err != nil {
		b.Fatal(err)
	}
	if len(roots) > 0 {
		return roots
	}
	root := filepath.Join(b.TempDir(), "generated")
	if _, err := gentree.Write(root, gentree.Options{Sessions: 24, Turns: 10, TurnBytes: 20_000}); err != nil {
		b.Fatal(err)
	}
	return []string{root}
}

// hashFiles reads and hashes all files below some folders, and returns their total size.
func hashFiles(b *testing.B, roots []string) (size int64) {
	b.Helper()
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			sha256.Sum256(data)
			size += int64(len(data))
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return size
}
