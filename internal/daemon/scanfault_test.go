package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/daemon"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
)

// failing is a log of which one read fails.
type failing struct {
	*log.Log
	reads *int // left until the one that fails
}

func (f failing) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	if *f.reads--; *f.reads == -1 {
		return func(yield func(events.Record, error) bool) { yield(events.Record{}, errors.New("the disk is away")) }
	}
	return f.Log.Read(ctx, r)
}

// A scan that failed at any read lists the same as one that did not.
func TestScanRestarts(t *testing.T) {
	ctx := t.Context()
	l, err := log.OpenOn(ctx, memlog.New(memlog.Config{}), log.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	write := func(id string) {
		e := events.Event{Source: "urn:test", Type: events.TypeDocumentWritten, ContentType: "text/plain", Data: []byte("x")}
		e = e.WithExtension(events.ExtDoc, events.DocMeta{ExpiresAt: events.TimestampOf(begin)}.String())
		if _, err := l.Append(ctx, events.Document("", "doc", id), log.Any, e); err != nil {
			t.Fatal(err)
		}
	}
	due := func(s *daemon.Scan) []daemon.Due {
		list, err := s.Due(ctx, projector.DueDocument, begin, 100)
		if err != nil {
			list, err = s.Due(ctx, projector.DueDocument, begin, 100)
		}
		if err != nil {
			t.Error(err)
		}
		return list
	}
	for n := range 12 {
		reads := n
		src := failing{l, &reads}
		s := daemon.NewScan(src, &projector.Loader{Source: src})
		for round := range 2 {
			write(fmt.Sprint(n, " ", round, " a"))
			write(fmt.Sprint(n, " ", round, " b"))
			have, want := due(s), due(daemon.NewScan(l, &projector.Loader{Source: l}))
			if diff := cmp.Diff(want, have); diff != "" {
				t.Fatalf("read %d failed (-want +got):\n%s", n, diff)
			}
		}
	}
}
