package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
)

// logLines is a handler that keeps the log lines of every level.
type logLines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (*logLines) Enabled(context.Context, slog.Level) bool { return true }

func (l *logLines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprint(&l.all, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprint(&l.all, " ", a)
		return true
	})
	l.all.WriteByte('\n')
	return nil
}

func (l *logLines) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *logLines) WithGroup(string) slog.Handler      { return l }

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// collected has weak pointers to the parts of a store that was opened, used and closed.
type collected struct {
	store  weak.Pointer[embedded.Server]
	server weak.Pointer[server.Server]
	logger weak.Pointer[logLines]
}

// openedOnce opens a store, uses and closes it.
func openedOnce(t *testing.T) collected {
	t.Helper()
	said := new(logLines)
	s, err := embedded.Start(t.Context(), embedded.ServerOptions{Dir: t.TempDir(), Logger: slog.New(said)})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s.Log(), events.Session("", "s"), turn("a", "x"))
	mustRead(t, s.Log(), events.Range{})
	o := collected{weak.Make(s), weak.Make(embedded.NATS(s)), weak.Make(said)}
	mustClose(t, s)
	return o
}

// The server of a closed store is collected as soon as it forgets its requests.
func TestClosedServerIsCollected(t *testing.T) {
	embedded.SetForgetAnswers(t, 500*time.Millisecond)
	o := openedOnce(t)
	mustCollect(t, "the server of a closed store", func() bool { return o.server.Value() == nil })
}

// While the server still remembers requests, it refers neither to tally's store nor to the program's logger.
func TestClosedStoreIsCollectedAtOnce(t *testing.T) {
	embedded.SetForgetAnswers(t, time.Hour)
	o := openedOnce(t)
	mustCollect(t, "a closed store", func() bool { return o.store.Value() == nil })
	mustCollect(t, "the logger of a closed store", func() bool { return o.logger.Value() == nil })
}

func mustCollect(t *testing.T, what string, gone func() bool) {
	t.Helper()
	eventually(t, func() error {
		dropStoppedTimers()
		if runtime.GC(); !gone() {
			return errors.New(what + " is in memory")
		}
		return nil
	})
}

// dropStoppedTimers makes the runtime release stopped timers. It releases them when they are a quarter of a
// processor's timers (timers.check in runtime/time.go, Go 1.26). A stopped server with few timers could stay in memory
// until they would have fired.
func dropStoppedTimers() {
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			var timers [1000]*time.Timer
			for i := range timers {
				timers[i] = time.AfterFunc(time.Hour, func() {})
			}
			for _, timer := range timers {
				timer.Stop()
			}
		})
	}
	wg.Wait()
}

// The server does not warn about its settings, and its log contains no secret.
func TestDebugLogHasNoSecrets(t *testing.T) {
	dir, said := t.TempDir(), new(logLines)
	listen := &embedded.Listen{Address: "127.0.0.1:0", Users: []embedded.Account{{Name: "ann", Password: "plain-secret"}}}
	s := mustStart(t, embedded.ServerOptions{Dir: dir, Logger: slog.New(said), Listen: listen})
	_, token := mustReadToken(t, dir)
	mustAppend(t, s.Log(), events.Session("", "s"), turn("a", "the content"))
	mustClose(t, s)
	text := said.String()
	if !strings.Contains(text, "Server is ready") {
		t.Errorf("the log lacks the server's lines:\n%s", text)
	}
	for _, word := range []string{"Plaintext", "plain-secret", token, "the content"} {
		if strings.Contains(text, word) {
			t.Errorf("the log contains %q:\n%s", word, text)
		}
	}
}
