package embedded_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/quota"
	"github.com/tallylog/tally/log"
)

// BenchmarkCountDocuments counts the live bytes of 100,000 documents from the log, as a process does at its first
// append to a document if there are limits.
func BenchmarkCountDocuments(b *testing.B) {
	const documents = 100_000
	srv, err := embedded.Start(b.Context(), embedded.ServerOptions{Dir: b.TempDir(), NoSync: true, Private: true})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Close()
	var all []*log.Pending
	for n := range documents {
		sub := events.Document("", "doc", fmt.Sprint(n))
		all = append(all, srv.Log().AppendAsync(b.Context(), sub, log.At(0), events.Event{Source: "urn:bench", Type: events.TypeDocumentWritten, ContentType: "text/plain", Data: make([]byte, 1000)}))
	}
	for _, p := range all {
		if _, err := p.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		list, err := quota.Read(b.Context(), srv.Log(), 0, nil)
		if err != nil || list[0].Documents != documents {
			b.Fatal(list, err)
		}
	}
}

// BenchmarkLimited writes durable documents by 64 writers of one owner: in a store without limits, and in one where
// another owner has a limit.
func BenchmarkLimited(b *testing.B) {
	for _, limited := range []bool{false, true} {
		b.Run(map[bool]string{false: "none", true: "of another"}[limited], func(b *testing.B) {
			dir := b.TempDir()
			srv, err := embedded.Start(b.Context(), embedded.ServerOptions{Dir: dir, Private: true})
			if err != nil {
				b.Fatal(err)
			}
			defer srv.Close()
			if limited {
				if err := quota.Set(srv.Dir(), "owner:ann", 1); err != nil {
					b.Fatal(err)
				}
			}
			var n atomic.Int64
			e := events.Event{Source: "urn:bench", Type: events.TypeDocumentWritten, ContentType: "text/plain", Data: make([]byte, 1000)}.WithExtension(events.ExtDoc, events.DocMeta{Owner: "bob"}.String())
			b.SetParallelism(32)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := srv.Log().Append(b.Context(), events.Document("", "doc", fmt.Sprint(n.Add(1))), log.At(0), e); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
