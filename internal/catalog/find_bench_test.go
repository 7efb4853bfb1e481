package catalog

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// benchWords draws words with the frequencies of a natural language: the nth has frequency 1/n.
func benchWords(r *rand.Rand, n int) string {
	zipf := rand.NewZipf(r, 1.07, 1, 50_000)
	list := make([]string, n)
	for i := range list {
		list[i] = "w" + strconv.FormatUint(zipf.Uint64(), 36)
	}
	return strings.Join(list, " ")
}

// BenchmarkFind searches a store of 110,000 sessions, of which every hundredth has a project of its own. It reports the
// 95th percentile of the times by kind of search. TALLY_TURNS is the number of turns.
func BenchmarkFind(b *testing.B) {
	const sessions = 110_000
	turns := 400_000
	if n, err := strconv.Atoi(os.Getenv("TALLY_TURNS")); err == nil {
		turns = n
	}
	f := benchViews(b, sessions, turns)
	if info, err := os.Stat(f.path); err == nil {
		b.Logf("search.db has %d bytes for each turn", info.Size()/int64(turns))
	}
	recent := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(turns-1000) * time.Second)
	for _, c := range []struct {
		name   string
		lookup Lookup
	}{
		{"frequent", Lookup{Text: "w0"}}, {"rare", Lookup{Text: "w%d"}}, {"two", Lookup{Text: "w1 w%d"}}, {"prefix", Lookup{Text: "w1*"}}, {"either", Lookup{Text: "w0 OR w%d"}}, {"not", Lookup{Text: "w%d -w0"}},
		{"role", Lookup{Text: "w0", Role: "user"}}, {"session", Lookup{Text: "w0", Session: "s7"}}, {"kind", Lookup{Text: "w0", Kind: "conversation"}}, {"project", Lookup{Text: "w0", Project: "p7"}}, {"recent", Lookup{Text: "w0", Since: recent}},
		{"none", Lookup{Text: "w0", Project: "none"}}, {"rank-frequent", Lookup{Text: "w0", Sort: ByRank}}, {"rank-rare", Lookup{Text: "w%d", Sort: ByRank}}, {"rank-two", Lookup{Text: "w1 w%d", Sort: ByRank}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took []time.Duration
			hits := 0
			for b.Loop() {
				l := c.lookup
				l.Namespace, l.Limit = "default", 20
				if strings.Contains(l.Text, "%d") {
					l.Text = fmt.Sprintf(l.Text, 100+len(took)%500)
				}
				began := time.Now()
				found, err := f.Find(b.Context(), l)
				must(b, err)
				took, hits = append(took, time.Since(began)), hits+len(found.Hits)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
			b.ReportMetric(float64(hits)/float64(len(took)), "hits")
		})
	}
}

// benchViews builds both views of a store, without a log.
func benchViews(b *testing.B, sessions, turns int) Finder {
	b.Helper()
	dir, r := b.TempDir(), rand.New(rand.NewPCG(1, 1))
	list, search := New(dir, openingOf, nullLogger), NewSearch(dir, textOf, nullLogger)
	apply := func(at int, id string, p events.Payload, typ string) {
		rec := events.Record{Event: events.Event{ID: "e", Type: typ, Subject: events.Session("", id)}, Offset: events.Offset(at), Recorded: time.Date(2026, 1, 1, 0, 0, at, 0, time.UTC)}
		must(b, list.Apply(b.Context(), projector.Fact{Record: rec, Payload: p}))
		must(b, search.Apply(b.Context(), projector.Fact{Record: rec, Payload: p}))
		if list.Held()+search.Held() > 16<<20 || at == sessions+turns {
			must(b, list.Commit(b.Context(), projector.Cursor{Offset: rec.Offset, EventID: "e"}))
			must(b, search.Commit(b.Context(), projector.Cursor{Offset: rec.Offset, EventID: "e"}))
		}
	}
	for _, v := range []projector.View{list, search} {
		_, _, err := v.Begin(b.Context())
		must(b, err)
	}
	for i := range sessions {
		project := ""
		if i%100 == 7 {
			project = fmt.Sprint("p", i)
		}
		apply(i+1, fmt.Sprint("s", i), &events.SessionCreated{Kind: "conversation", Project: project, Title: "t", CreatedAt: "2026-01-01T00:00:00Z"}, events.TypeSessionCreated)
	}
	for i := range turns {
		role := []string{"user|", "assistant|"}[i%2]
		apply(sessions+i+1, fmt.Sprint("s", r.IntN(sessions)), &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(strconv.Quote(role + benchWords(r, 40)))}}}, events.TypeTurnAppended)
	}
	must(b, list.Close())
	must(b, search.Close())
	reader, err := Open(b.Context(), filepath.Clean(dir))
	must(b, err)
	b.Cleanup(func() { reader.Close() })
	f, err := OpenSearch(b.Context(), dir, reader)
	must(b, err)
	b.Cleanup(func() { f.Close() })
	return f
}
