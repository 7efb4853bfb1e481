package log_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// If the contexts of appends end while a segment is begun, their messages are stored in the old segment or not at all:
// the log stays in order, and opens again.
func TestSegmentBeginsBehindGivenUpAppends(t *testing.T) {
	seed := testkit.Seed(t)
	for round := range testkit.Times(12) {
		s := mustServe(t, t.TempDir(), nil)
		conn, err := s.InProcessConn()
		if err != nil {
			t.Fatal(err)
		}
		host := log.Host{Owner: true, Appends: log.Login{Conn: conn}, Segments: log.Segments{Bytes: 4 << 10, Dir: filepath.Join(t.TempDir(), "index")}}
		l := mustOpen(t, mustDial(t, s), log.Config{Host: host})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for p := range 64 {
			random := rand.New(rand.NewPCG(seed+uint64(round), uint64(p)))
			running.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					once, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(600))*time.Microsecond)
					_, _ = l.Append(once, events.Session("", fmt.Sprint("s", p)), log.Any, note("", "some text"))
					cancel()
				}
			})
		}
		time.Sleep(150 * time.Millisecond)
		stop()
		running.Wait()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := log.Open(t.Context(), mustDial(t, s), log.Config{Host: log.Host{Owner: true, Segments: log.Segments{Bytes: 4 << 10}}})
		if err != nil {
			t.Fatalf("round %d: the log does not open again: %v", round, err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		mustStop(s)
	}
}
