package embedded_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

func turn(id, text string) events.Event {
	return events.Event{
		ID: id, Source: "test://embedded", Type: events.TypeTurnAppended,
		Data: []byte(`{"entries":[{"thread":"main","turn":` + strconv.Quote(text) + `}]}`),
	}
}

func mustStart(t *testing.T, o embedded.ServerOptions) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func mustClose(t *testing.T, s *embedded.Server) {
	t.Helper()
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// appender is a log or a store.
type appender interface {
	Append(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, error)
}

func mustAppend(t *testing.T, l appender, sub events.Subject, evs ...events.Event) log.Ack {
	t.Helper()
	ack, err := l.Append(t.Context(), sub, log.Any, evs...)
	if err != nil {
		t.Fatal(err)
	}
	return ack
}

func mustRead(t *testing.T, l projector.Source, r events.Range) (ids []string) {
	t.Helper()
	for rec, err := range l.Read(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, rec.ID)
	}
	return ids
}

func TestReopenKeepsEverything(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := events.Session("", "s")
	var want []string
	for round := range 3 {
		srv := mustStart(t, embedded.ServerOptions{Dir: dir})
		for i := range 5 {
			id := fmt.Sprint(round, "-", i)
			ack := mustAppend(t, srv.Log(), s, turn(id, "x"))
			if ack.Durability != log.Durable {
				t.Fatalf("got durability %v, want durable", ack.Durability)
			}
			want = append(want, id)
		}
		if got := mustRead(t, srv.Log(), events.Range{}); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("round %d: got %v, want %v", round, got, want)
		}
		if again := mustAppend(t, srv.Log(), s, turn("0-0", "x")); !again.Duplicate || again.Last != 1 {
			t.Fatalf("round %d: the first event again: got %+v, want a duplicate", round, again)
		}
		mustClose(t, srv)
		if _, err := os.Stat(filepath.Join(dir, "owner.json")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("owner.json after a clean stop: got %v, want none", err)
		}
	}
}

func TestOneOwner(t *testing.T) {
	dir := t.TempDir()
	first := mustStart(t, embedded.ServerOptions{Dir: dir, NoSync: true})
	_, err := embedded.Start(t.Context(), embedded.ServerOptions{Dir: dir, NoSync: true})
	owned, ok := errors.AsType[*embedded.OwnedError](err)
	if !ok || owned.PID != os.Getpid() || owned.URL != first.URL() {
		t.Fatalf("a second owner: got %v, want an OwnedError with %d and %s", err, os.Getpid(), first.URL())
	}
	mustAppend(t, first.Log(), events.Session("", "s"), turn("", "still serving"))
	mustClose(t, first)
	mustStart(t, embedded.ServerOptions{Dir: dir, NoSync: true})
}

func TestStartNeedsADirectory(t *testing.T) {
	if _, err := embedded.Start(t.Context(), embedded.ServerOptions{}); err == nil {
		t.Fatal("no directory: got no error")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Start(t.Context(), embedded.ServerOptions{Dir: file}); err == nil {
		t.Fatal("a file as the directory: got no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := embedded.Start(ctx, embedded.ServerOptions{Dir: t.TempDir()}); err == nil {
		s.Close() // the start was faster than the check of the context
	}
}

func TestAttach(t *testing.T) {
	dir := t.TempDir()
	if _, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: dir}); !isNoOwner(err) {
		t.Fatalf("without an owner: got %v", err)
	}
	srv := mustStart(t, embedded.ServerOptions{Dir: dir})
	a, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s := events.Session("", "s")
	mustAppend(t, srv.Log(), s, turn("by the owner", "x"))
	ack := mustAppend(t, a.Log(), s, turn("by the other", "x"))
	if ack.Last != 2 || ack.Durability != log.Durable || a.OwnerPID() != os.Getpid() || a.URL() != srv.URL() {
		t.Fatalf("attached: got %+v of %d at %s", ack, a.OwnerPID(), a.URL())
	}
	for _, l := range []*log.Log{srv.Log(), a.Log()} {
		if got := fmt.Sprint(mustRead(t, l, events.Range{Subject: s})); got != "[by the owner by the other]" {
			t.Fatalf("got %s", got)
		}
	}
	mustClose(t, srv)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := a.Log().Append(ctx, s, log.Any, turn("", "x")); !errors.Is(err, log.ErrUnavailable) && !errors.Is(err, log.ErrUnknown) {
		t.Fatalf("after the owner's end: got %v", err)
	}
	if _, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: dir}); !isNoOwner(err) {
		t.Fatalf("after the owner's end: got %v", err)
	}
}

func isNoOwner(err error) bool {
	_, ok := errors.AsType[*embedded.NoOwnerError](err)
	return ok
}

func TestOnlyThisUserOnThisMachine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	srv := mustStart(t, embedded.ServerOptions{Dir: dir, NoSync: true})
	host, port, err := net.SplitHostPort(strings.TrimPrefix(srv.URL(), "nats://"))
	if err != nil || host != "127.0.0.1" {
		t.Fatalf("got server address %q (%v)", srv.URL(), err)
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		ip, ok := a.(*net.IPNet)
		if !ok || ip.IP.IsLoopback() || ip.IP.To4() == nil {
			continue
		}
		if c, err := net.DialTimeout("tcp", net.JoinHostPort(ip.IP.String(), port), time.Second); err == nil {
			c.Close()
			t.Fatalf("the server listens at %v, want no answer", ip.IP)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	for name, want := range map[string]fs.FileMode{"": 0o700, "owner.json": 0o600, "lock": 0o600, "mark": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Fatalf("%q: got mode %v (%v), want %v", name, info.Mode().Perm(), err, want)
		}
	}
	var o struct{ Token string }
	text, err := os.ReadFile(filepath.Join(dir, "owner.json"))
	if err != nil || json.Unmarshal(text, &o) != nil || len(o.Token) < 16 {
		t.Fatalf("got owner.json %s (%v)", text, err)
	}
	wrong := strings.Replace(string(text), o.Token, strings.Repeat("x", len(o.Token)), 1)
	if err := os.WriteFile(filepath.Join(dir, "owner.json"), []byte(wrong), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: dir}); !isNoOwner(err) {
		t.Fatalf("with a wrong token: got %v", err)
	}
}

func TestPrivateServerDoesNotListen(t *testing.T) {
	dir := t.TempDir()
	srv := mustStart(t, embedded.ServerOptions{Dir: dir, NoSync: true, Private: true})
	mustAppend(t, srv.Log(), events.Session("", "s"), turn("", "x"))
	if _, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: dir}); srv.URL() != "" || !isNoOwner(err) {
		t.Fatalf("a private server: got address %q, %v", srv.URL(), err)
	}
}

// If the description of a stream is damaged, or was being changed at a kill, the server drops the stream. A start
// restores the description from a copy.
func TestDescriptionOfAStreamIsMended(t *testing.T) {
	for name, damage := range map[string]func(meta, sum string) error{
		"a bit":                   func(meta, _ string) error { return flip(meta) },
		"a bit of the checksum":   func(_, sum string) error { return flip(sum) },
		"changed, not yet summed": func(meta, _ string) error { return replaceIn(meta, `"sealed":false`, `"sealed":true`) },
		"no checksum":             func(_, sum string) error { return os.Remove(sum) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			srv := mustStart(t, embedded.ServerOptions{Dir: dir})
			mustAppend(t, srv.Log(), events.Session("", "s"), turn("first", "x"))
			mustClose(t, srv)
			stream := filepath.Join(dir, "jetstream", "$G", "streams", "TALLY_1")
			if err := damage(filepath.Join(stream, "meta.inf"), filepath.Join(stream, "meta.sum")); err != nil {
				t.Fatal(err)
			}
			srv = mustStart(t, embedded.ServerOptions{Dir: dir})
			if ack := mustAppend(t, srv.Log(), events.Session("", "s"), turn("second", "x")); ack.Last != 2 {
				t.Errorf("got offset %v", ack.Last)
			}
			if got := mustRead(t, srv.Log(), events.Range{}); fmt.Sprint(got) != "[first second]" {
				t.Errorf("got %v", got)
			}
		})
	}
}

// After a power cut, a stream that was just created may consist of empty files. A start removes it and reports no
// loss.
func TestEmptyStreamFiles(t *testing.T) {
	dir := t.TempDir()
	srv := mustStart(t, embedded.ServerOptions{Dir: dir})
	mustAppend(t, srv.Log(), events.Session("", "s"), turn("first", "x"))
	mustClose(t, srv)
	withServer(t, dir, func(js jetstream.JetStream) { closeStream(t, js, lastStream(t, js)) })
	unborn := filepath.Join(dir, "jetstream", "$G", "streams", "TALLY_2")
	if err := errors.Join(os.MkdirAll(filepath.Join(unborn, "msgs"), 0o700), os.WriteFile(filepath.Join(unborn, "meta.inf"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	srv = mustStart(t, embedded.ServerOptions{Dir: dir})
	if ack := mustAppend(t, srv.Log(), events.Session("", "s"), turn("second", "x")); ack.Last != 2 {
		t.Errorf("got offset %v", ack.Last)
	}
}

// flip flips a bit in the middle of a file.
func flip(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text[len(text)/2] ^= 1
	return os.WriteFile(path, text, 0o600)
}

func replaceIn(path, from, to string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), from) {
		return fmt.Errorf("%s: no %s in %s", path, from, text)
	}
	return os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o600)
}

func TestLostStreamIsRefused(t *testing.T) {
	meta := filepath.Join("jetstream", "$G", "streams", "TALLY_1", "meta.inf")
	for name, damage := range map[string]func(dir string) error{
		"corrupt meta.inf": func(dir string) error {
			text, err := os.ReadFile(filepath.Join(dir, meta))
			if err != nil {
				return err
			}
			text[len(text)/2] ^= 1
			return errors.Join(os.WriteFile(filepath.Join(dir, meta), text, 0o600), os.RemoveAll(filepath.Join(dir, "segments")))
		},
		"no folder": func(dir string) error { return os.RemoveAll(filepath.Join(dir, "jetstream")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			srv := mustStart(t, embedded.ServerOptions{Dir: dir, NoSync: true})
			mustAppend(t, srv.Log(), events.Session("", "s"), turn("", "x"))
			mustClose(t, srv)
			if err := damage(dir); err != nil {
				t.Fatal(err)
			}
			for range 2 { // a refused start changes nothing
				_, err := embedded.Start(t.Context(), embedded.ServerOptions{Dir: dir, NoSync: true})
				lost, ok := errors.AsType[*embedded.LostStreamError](err)
				if !ok || fmt.Sprint(lost.Streams) != "[TALLY_1]" {
					t.Fatalf("got %v, want a LostStreamError that names TALLY_1", err)
				}
			}
		})
	}
}
