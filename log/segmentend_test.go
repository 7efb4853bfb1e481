package log_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/segindex"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// A full segment ends where the next one begins, also if its last records are lost, or all of them: the next owner
// accepts its index, and readers go on to the next segment.
func TestFullSegmentEndsWhereTheNextBegins(t *testing.T) {
	const above = 10
	for _, kept := range []int{0, 3} {
		s, index := mustServe(t, t.TempDir(), nil), t.TempDir()
		sub := events.Session("", "s")
		l := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Owner: true}})
		want := []string{fmt.Sprint(above + 1)}
		for i := range kept {
			mustAppend(t, l, sub, note(fmt.Sprint("e", i), "x"))
			want = slices.Insert(want, i, fmt.Sprint(i+1))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Owner: true, Segments: log.Segments{Bytes: 1 << 20, Dir: index, Above: above}}})
		mustAppend(t, l, sub, note("next", "x"))

		ctx, stop := context.WithTimeout(t.Context(), testkit.Patience(time.Minute))
		defer stop()
		var got []string
		for rec, err := range l.Follow(ctx, events.Range{Subject: sub, Limit: kept + 1}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(uint64(rec.Offset)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d records kept: a follower got %v, want %v", kept, got, want)
		}
		if err := acceptIndex(ctx, mustDial(t, s), filepath.Join(index, "TALLY_1.index"), above); err != nil {
			t.Errorf("%d records kept: the next owner makes the index again: %v", kept, err)
		}
	}
}

// acceptIndex opens the index of the first segment as an owner that starts, once it is there.
func acceptIndex(ctx context.Context, nc *nats.Conn, path string, last uint64) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	stream, err := js.Stream(ctx, "TALLY_1")
	if err != nil {
		return err
	}
	of := segindex.Segment{Name: "TALLY_1", Made: stream.CachedInfo().Created.UnixNano(), First: 1, Last: last}
	for {
		x, err := segindex.Open(path, of)
		if err == nil {
			return x.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}
