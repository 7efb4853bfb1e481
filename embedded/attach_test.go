package embedded_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// If the owner ends while a process attaches, at any request, the process opens the store itself within seconds.
func TestOwnerEndsWhileAttachedTo(t *testing.T) {
	for requests := 1; ; requests++ {
		dir := t.TempDir()
		srv := mustStart(t, embedded.ServerOptions{Dir: dir, NoSync: true})
		ack := mustAppend(t, srv.Log(), events.Session("", "s"), turn("e", "x"))
		mortal := newMortal(t, srv, dir, requests)
		began := time.Now()
		st, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: dir, Store: dir, Wait: 30 * time.Second})
		if err != nil {
			t.Fatalf("owner ended at request %d: open: %v", requests, err)
		}
		// Attach waits up to 12 s for an owner that does not answer. A dead owner is noticed sooner.
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("owner ended at request %d: open took %v, want at most 8s", requests, took)
		}
		alive := mortal.alive()
		if !alive {
			again, err := st.Log.Append(t.Context(), events.Session("", "s"), log.Any, turn("e", "x"))
			if err != nil || !again.Duplicate || again.Last != ack.Last {
				t.Errorf("owner ended at request %d: got %+v, %v, want a duplicate", requests, again, err)
			}
		}
		st.Close()
		mortal.end()
		if alive {
			if requests < 3 {
				t.Errorf("attach took %d requests: the test showed nothing", requests-1)
			}
			return
		}
	}
}

// mortalProxy is a proxy between an owner and its clients. At the last of a number of requests it stops the owner, and
// answers nothing more.
type mortalProxy struct {
	listener net.Listener
	end      func() // stops the owner, once
	ended    chan struct{}

	mu    sync.Mutex
	left  int // requests until the owner ends
	conns []net.Conn
}

func newMortal(t *testing.T, srv *embedded.Server, dir string, requests int) *mortalProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mortalProxy{listener: l, left: requests, ended: make(chan struct{})}
	m.end = sync.OnceFunc(func() {
		defer close(m.ended)
		l.Close()
		m.mu.Lock()
		for _, c := range m.conns {
			c.Close()
		}
		m.mu.Unlock()
		srv.Close()
	})
	t.Cleanup(m.end)

	path, owner := filepath.Join(dir, "owner.json"), make(map[string]any)
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &owner)
	}
	if err != nil {
		t.Fatal(err)
	}
	to := strings.TrimPrefix(srv.URL(), "nats://")
	owner["url"] = "nats://" + l.Addr().String()
	if text, err = json.Marshal(owner); err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			m.mu.Lock()
			m.conns = append(m.conns, client, server)
			m.mu.Unlock()
			go io.Copy(client, server)
			go m.pass(server, client)
		}
	}()
	return m
}

// pass forwards the bytes of a client.
func (m *mortalProxy) pass(server, client net.Conn) {
	chunk := make([]byte, 64<<10)
	for {
		n, err := client.Read(chunk)
		if err != nil {
			return
		}
		m.mu.Lock()
		m.left -= bytes.Count(chunk[:n], []byte("PUB "))
		over := m.left <= 0
		m.mu.Unlock()
		if over {
			go m.end()
			return
		}
		if _, err := server.Write(chunk[:n]); err != nil {
			return
		}
	}
}

func (m *mortalProxy) alive() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.left > 0
}

// G20, G25: an attached process reports the durability that the owner's acknowledgements have.
func TestAttachedPromisesNoMoreThanTheOwner(t *testing.T) {
	for name, c := range map[string]struct {
		o    embedded.ServerOptions
		want log.Durability
	}{
		"synced":     {embedded.ServerOptions{}, log.Durable},
		"not synced": {embedded.ServerOptions{NoSync: true}, log.Buffered},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Dir = t.TempDir()
			mustStart(t, c.o)
			a, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: c.o.Dir})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			if got := a.Log().Durability(); got != c.want {
				t.Errorf("got durability %v", got)
			}
			for _, id := range []string{"a", "b", "a"} {
				if ack := mustAppend(t, a.Log(), events.Session("", "s"), turn(id, "x")); ack.Durability != c.want {
					t.Errorf("%s: %+v", id, ack)
				}
			}
		})
	}
}

// F-11: a call after the owner has ended fails with an error that names the next step.
func TestAttachedSaysThatTheOwnerIsGone(t *testing.T) {
	dir := t.TempDir()
	s := mustStart(t, embedded.ServerOptions{Dir: dir})
	a, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	sub := events.Session("", "s")
	mustAppend(t, a.Log(), sub, turn("a", "x"))
	mustClose(t, s)
	var readErr error
	for _, err := range a.Log().Read(t.Context(), events.Range{Subject: sub}) {
		readErr = err
	}
	_, lastErr := a.Log().Last(t.Context(), sub)
	_, appendErr := a.Log().Append(t.Context(), sub, log.Any, turn("b", "x"))
	for call, err := range map[string]error{"read": readErr, "last": lastErr, "append": appendErr} {
		if !errors.Is(err, log.ErrUnavailable) || !strings.Contains(err.Error(), "open the store again") {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// If the owner is gone, nobody waits for a view that the owner keeps.
func TestViewOfDeadOwner(t *testing.T) {
	dir := t.TempDir()
	s := mustStart(t, embedded.ServerOptions{Dir: dir})
	st, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: dir, Store: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience(time.Minute)) // enough on a slow machine
	defer cancel()
	waited := make(chan error, 1)
	go func() { waited <- st.Wait(ctx, "catalog", 1) }()
	mustClose(t, s)
	if err := <-waited; !errors.Is(err, log.ErrUnavailable) || !strings.Contains(err.Error(), "open the store again") {
		t.Error(err)
	}
}

// If a newer version wrote the list of lost records, attaching and taking an image return ErrNewer.
func TestNewerListOfDamage(t *testing.T) {
	dir := t.TempDir()
	mustStart(t, embedded.ServerOptions{Dir: dir})
	path := filepath.Join(dir, "damaged", "holes.json")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(`{"version":2}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: dir}); !errors.Is(err, log.ErrNewer) {
		t.Errorf("attached: %v", err)
	}
	if _, err := storedir.ImageOf(dir, func() (events.Offset, error) { return 0, nil }); !errors.Is(err, log.ErrNewer) {
		t.Errorf("image: %v", err)
	}
}
