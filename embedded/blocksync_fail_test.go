//go:build linux

package embedded

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// After a failed sync, no record that it had to cover is acknowledged until it was written again. Then every record is
// stored once.
func TestSyncThatFailed(t *testing.T) {
	dir := t.TempDir()
	s, err := Start(t.Context(), ServerOptions{Dir: dir, Private: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	testkit.Needs(t, s.blocks != nil, "a file system whose group sync is proven")
	sub := events.Session("", "s")
	event := func(i int) events.Event {
		return events.Event{ID: fmt.Sprint(i), Source: "test://sync", Type: "com.example.x", ContentType: "text/plain", Data: []byte("x")}
	}
	if _, err := s.Log().Append(t.Context(), sub, log.Any, event(0)); err != nil {
		t.Fatal(err)
	}
	var failures atomic.Int32
	failures.Store(1)
	s.blocks.fdatasync = func(f *os.File) error {
		if failures.Add(-1) >= 0 {
			return errors.New("input/output error")
		}
		return unix.Fdatasync(int(f.Fd()))
	}
	if _, err := s.Log().Append(t.Context(), sub, log.Any, event(1)); !errors.Is(err, log.ErrUnknown) {
		t.Errorf("an append whose sync failed: got %v", err)
	}
	deadline := time.Now().Add(testkit.Patience(time.Minute))
	for i := 1; i < 5; i++ {
		_, err := s.Log().Append(t.Context(), sub, log.Any, event(i))
		for err != nil && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond)
			_, err = s.Log().Append(t.Context(), sub, log.Any, event(i))
		}
		if err != nil {
			t.Fatalf("append %d: %v", i, err)
		}
	}
	n := 0
	for rec, err := range s.Log().Read(t.Context(), events.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.ID != fmt.Sprint(n) {
			t.Errorf("record %d: got %s", n, rec.ID)
		}
		n++
	}
	if n != 5 {
		t.Errorf("got %d records", n)
	}
}
