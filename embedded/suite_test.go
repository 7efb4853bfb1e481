package embedded_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/logtest"
)

// The owner's log keeps every promise while one sync covers many appends.
func TestOwnerKeepsThePromises(t *testing.T) {
	logtest.Run(t, func(t *testing.T) *log.Log {
		return mustStart(t, embedded.ServerOptions{Dir: t.TempDir()}).Log()
	})
}

// So does the log of a process that appends through the owner.
func TestAttachedKeepsThePromises(t *testing.T) {
	logtest.Run(t, func(t *testing.T) *log.Log {
		dir := t.TempDir()
		mustStart(t, embedded.ServerOptions{Dir: dir})
		a, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.Close() })
		return a.Log()
	})
}

// Both do so while segments are begun all the time.
func TestSegmentsKeepThePromises(t *testing.T) {
	logtest.Run(t, func(t *testing.T) *log.Log {
		return mustStart(t, tiny(t.TempDir())).Log()
	})
}

func TestAttachedToSegmentsKeepsThePromises(t *testing.T) {
	logtest.Run(t, func(t *testing.T) *log.Log {
		dir := t.TempDir()
		mustStart(t, tiny(dir))
		a, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.Close() })
		return a.Log()
	})
}

// tiny are the options of a store that begins a segment every few appends, and opens
// its server's streams anew nearly as often.
func tiny(dir string) embedded.ServerOptions {
	return embedded.ServerOptions{Dir: dir, SegmentBytes: 2 << 10}
}

// What the owner's server does not allow others: to write around the owner, and to
// take records away.
func TestAttachedMayNotWriteAroundTheOwner(t *testing.T) {
	dir := t.TempDir()
	s := mustStart(t, embedded.ServerOptions{Dir: dir})
	user, password := mustReadToken(t, dir)
	denied := make(chan error, 10)
	nc, err := nats.Connect(s.URL(), nats.UserInfo(user, password), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, subject := range []string{"tally.v1.00.default.session.x", "$JS.API.STREAM.DELETE.TALLY_1", "$JS.API.STREAM.PURGE.TALLY_1", "$JS.API.STREAM.UPDATE.TALLY_1", "$JS.API.STREAM.MSG.DELETE.TALLY_1"} {
		if err := errors.Join(nc.Publish(subject, []byte("{}")), nc.Flush()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-denied:
			if !errors.Is(err, nats.ErrPermissionViolation) {
				t.Errorf("%s: %v", subject, err)
			}
		case <-t.Context().Done():
			t.Fatalf("%s was let through", subject)
		}
	}
	if head, err := s.Log().Head(t.Context()); err != nil || head != 0 {
		t.Errorf("head is %v, %v", head, err)
	}
}

// mustReadToken reads what owner.json tells other processes of this user.
func mustReadToken(t *testing.T, dir string) (user, password string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "owner.json"))
	if err != nil {
		t.Fatal(err)
	}
	var o struct{ User, Token string }
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatal(err)
	}
	return o.User, o.Token
}
