package view_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/render"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/projector/view"
)

// BenchmarkViews builds the catalog, a Fold and an Own from the same log in turn, and reports their rates, also
// relative to that of the catalog. With TALLY_SOAK, the log has 100,000 sessions and a million events.
func BenchmarkViews(b *testing.B) {
	subjects, each := 2_000, 10
	if testkit.Soak() {
		subjects = 100_000
	}
	h := &history{head: events.Offset(subjects * each)}
	for n := range subjects * each {
		at := events.Offset(n + 1)
		e := events.Event{ID: fmt.Sprint("e", at), Source: "urn:test", Type: VoteCast.Name, Subject: events.Session("", fmt.Sprint("s", n%subjects)),
			ContentType: events.ContentTypeJSON, Data: fmt.Appendf(nil, `{"for":"c%d"}`, n%7)}
		h.Records = append(h.Records, events.Record{Event: e, Offset: at, Recorded: time.Unix(int64(at), 0)})
	}
	views := []view.View{catalog.Views(render.Opening, render.Said)[0], Votes.View(), Board.View()}
	took := make([]time.Duration, len(views))
	for range b.N {
		for i, v := range views {
			dir := b.TempDir()
			e := v.New(dir, slog.New(slog.DiscardHandler))
			r := &projector.Runner{Log: h, View: e}
			began := time.Now()
			if err := r.CatchUp(b.Context(), nil); err != nil {
				b.Fatal(err)
			}
			took[i] += time.Since(began)
			if err := e.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
	rate := func(i int) float64 { return float64(b.N*subjects*each) / took[i].Seconds() }
	b.ReportMetric(rate(0), "catalog/s")
	b.ReportMetric(rate(1), "fold/s")
	b.ReportMetric(rate(2), "own/s")
	b.ReportMetric(rate(1)/rate(0), "fold/catalog")
	b.ReportMetric(rate(2)/rate(0), "own/catalog")
}
