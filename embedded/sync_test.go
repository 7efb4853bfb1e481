package embedded

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/log"
)

// badDisk makes every sync of a whole directory fail while the result is true, until the test ends. Servers start
// after it and close before.
func badDisk(t *testing.T) *atomic.Bool {
	bad := new(atomic.Bool)
	wholeTree = func(dir string) error {
		if bad.Load() {
			return errors.New("input/output error")
		}
		return syncTree(dir)
	}
	t.Cleanup(func() { wholeTree = syncTree })
	return bad
}

func syncedStarts(t *testing.T, do func(t *testing.T, o ServerOptions)) {
	t.Helper()
	for name, o := range map[string]ServerOptions{"each": {SyncEach: true}, "as it is": {}} {
		t.Run(name, func(t *testing.T) {
			o.Private, o.Dir = true, t.TempDir()
			do(t, o)
		})
	}
}

func appendOne(t *testing.T, s *Server, id string) log.Ack {
	t.Helper()
	ack, err := s.Log().Append(t.Context(), events.Session("", "s"), log.Any,
		events.Event{ID: id, Source: "test://sync", Type: "com.example.x", ContentType: "text/plain", Data: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	return ack
}

// A start makes durable what an earlier owner left, before it acknowledges anything. If that fails, the store does not
// start.
func TestStartSyncsWhatWasLeft(t *testing.T) {
	syncedStarts(t, func(t *testing.T, o ServerOptions) {
		badDisk(t).Store(true)
		if s, err := Start(t.Context(), o); err == nil {
			s.Close()
			t.Error("start with a failed sync: got no error")
		}
	})
}

// The last sync follows the end of the server. If it fails, the stop reports an error, and the next start checks
// everything.
func TestStopAfterAnErrorIsNotClean(t *testing.T) {
	syncedStarts(t, func(t *testing.T, o ServerOptions) {
		bad := badDisk(t)
		s, err := Start(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		appendOne(t, s, "1")
		bad.Store(true)
		if err := s.Close(); err == nil {
			t.Error("stop with a failed sync: got no error")
		}
		bad.Store(false)
		if m, err := s.readMark(); err != nil || m.Clean {
			t.Errorf("got mark %+v, %v", m, err)
		}
		if s, err = Start(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if m, err := s.readMark(); err != nil || !m.Clean {
			t.Errorf("after a clean stop: got mark %+v, %v", m, err)
		}
	})
}

// The server syncs each message if the options say so, or if one sync for many messages is not known to suffice.
func TestSyncEach(t *testing.T) {
	syncedStarts(t, func(t *testing.T, o ServerOptions) {
		s, err := Start(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if got, want := SyncsAlways(s), o.SyncEach || !storedir.GroupSyncs(o.Dir); got != want || want != (s.blocks == nil) {
			t.Errorf("got a sync for each message %v, want %v", got, want)
		}
	})
}

// The watermark includes every acknowledged record, also after a kill at this point.
func TestWatermarkHasWhatWasAcknowledged(t *testing.T) {
	syncedStarts(t, func(t *testing.T, o ServerOptions) {
		s, err := Start(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, id := range []string{"1", "2", "3"} {
			ack := appendOne(t, s, id)
			copied := t.TempDir()
			text, err := os.ReadFile(filepath.Join(o.Dir, storedir.WatermarkFile))
			if err == nil {
				err = os.WriteFile(filepath.Join(copied, storedir.WatermarkFile), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			w, err := openWatermark(copied)
			if err != nil {
				t.Fatal(err)
			}
			if w.get() < ack.Last || ack.Durability != log.Durable {
				t.Errorf("%v was acknowledged as %v: got watermark %v", ack.Last, ack.Durability, w.get())
			}
			w.close()
		}
	})
}

// After a failed write or sync, a store accepts no append until it is repaired.
func TestFailedStoreRefusesAppends(t *testing.T) {
	h := newHealth(&room{dir: t.TempDir(), reserve: 1})
	if err := h.check(); err != nil {
		t.Fatal(err)
	}
	h.heard("JetStream failed to store a msg on stream '$G > TALLY_1': no space left on device")
	for range 2 {
		if err := h.check(); !errors.Is(err, log.ErrUnavailable) {
			t.Errorf("after a failed write: got %v", err)
		}
	}
	select {
	case <-h.kick:
	default:
		t.Error("after a failed write: got no repair")
	}
	h.mended(h.failures())
	if err := h.check(); err != nil {
		t.Error(err)
	}
	h.fail(errors.New("input/output error"))
	if err := h.check(); !errors.Is(err, log.ErrUnavailable) {
		t.Errorf("after a failed sync: got %v", err)
	}

	// An append is refused before any part of it is stored.
	s, err := Start(t.Context(), ServerOptions{Dir: t.TempDir(), Private: true, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.unwatch() // no repair from here on
	s.watching.Wait()
	s.health.fail(errors.New("input/output error"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := s.Log().Append(ctx, events.Session("", "s"), log.Any, events.Event{Source: "test://sync", Type: "com.example.x", Data: []byte("1")}); !errors.Is(err, log.ErrUnavailable) {
		t.Errorf("append: got %v", err)
	}
	if head, err := s.Log().Head(t.Context()); err != nil || head != 0 {
		t.Errorf("got head %v, %v", head, err)
	}
}
