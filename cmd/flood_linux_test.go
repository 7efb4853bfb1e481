package cmd_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
)

// limited runs a program with a limit of descriptors.
func limited(ctx context.Context, store string, descriptors int, args ...string) *exec.Cmd {
	c := command(ctx, store, "tally", args...)
	c.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$@"`, descriptors), "sh"}, c.Args...)
	c.Path = "/bin/sh"
	return c
}

// flooded is an owner with few descriptors.
type flooded struct {
	t       *testing.T
	ctx     context.Context
	store   string
	process *exec.Cmd
	errw    *toldText
	listen  string // the URL for other users
	env     []string
}

func mustFlood(t *testing.T, ctx context.Context, descriptors int, args ...string) *flooded {
	t.Helper()
	f := &flooded{t: t, ctx: ctx, store: filepath.Join(t.TempDir(), "store"), errw: new(toldText)}
	f.process = limited(ctx, f.store, descriptors, append([]string{"serve", "-o", "json"}, args...)...)
	f.process.Stderr = f.errw
	out, err := f.process.StdoutPipe()
	if err == nil {
		err = f.process.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.process.Process.Kill(); f.process.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("the owner does not start: %v\n%s", err, f.errw)
	}
	var said struct{ Listen string }
	if err := json.Unmarshal(line, &said); err != nil {
		t.Fatal(err)
	}
	f.listen = said.Listen
	return f
}

// stop ends the owner as a supervisor does.
func (f *flooded) stop() {
	f.t.Helper()
	if err := f.process.Process.Signal(syscall.SIGTERM); err != nil {
		f.t.Fatal(err)
	}
	if err := f.process.Wait(); err != nil {
		f.t.Errorf("the owner: got %v:\n%s", err, f.errw)
	}
}

// sockets counts the connections that the owner holds, and its other descriptors.
func (f *flooded) sockets() (held, others int) {
	dir := fmt.Sprintf("/proc/%d/fd", f.process.Process.Pid)
	list, err := os.ReadDir(dir)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, e := range list {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			held++
		}
	}
	return held, len(list) - held
}

// appender is a process that appends line by line.
type appender struct {
	t     *testing.T
	who   string
	in    io.WriteCloser
	acks  chan ackLine
	ended chan error
	errw  *bytes.Buffer
	acked []uint64
}

func (f *flooded) appender(session string, args ...string) *appender {
	f.t.Helper()
	a := &appender{t: f.t, who: session, acks: make(chan ackLine), ended: make(chan error, 1), errw: new(bytes.Buffer)}
	c := command(f.ctx, f.store, "tally", append([]string{"append", session, "-o", "jsonl"}, args...)...)
	if len(args) > 0 { // as from another machine
		c.Args = c.Args[:len(c.Args)-2]
	}
	c.Env, c.Stderr = append(c.Environ(), f.env...), a.errw
	var err error
	if a.in, err = c.StdinPipe(); err != nil {
		f.t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var ack ackLine
			if json.Unmarshal(lines.Bytes(), &ack) == nil {
				a.acks <- ack
			}
		}
		close(a.acks)
		a.ended <- c.Wait()
	}()
	return a
}

// append appends a turn and waits for its acknowledgement.
func (a *appender) append() {
	a.t.Helper()
	if _, err := fmt.Fprintf(a.in, `{"n":%d}`+"\n", len(a.acked)); err != nil {
		a.t.Fatalf("%s: %v\n%s", a.who, err, a.errw)
	}
	select {
	case ack, ok := <-a.acks:
		if !ok {
			a.t.Fatalf("%s has ended:\n%s", a.who, a.errw)
		}
		a.acked = append(a.acked, ack.Offset)
	case <-time.After(within):
		a.t.Fatalf("%s got no acknowledgement %d in time", a.who, len(a.acked))
	}
}

func (a *appender) close() {
	a.t.Helper()
	a.in.Close()
	for range a.acks {
	}
	if err := <-a.ended; err != nil {
		a.t.Errorf("%s: got %v:\n%s", a.who, err, a.errw)
	}
}

// strangers hold a number of sockets at addresses. Each is open until the other side closes it, and then opened again.
// They send nothing, noise, or half of a TLS handshake.
func strangers(n int, addresses ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for ctx.Err() == nil {
				c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addresses[i%len(addresses)])
				if err == nil {
					release := context.AfterFunc(ctx, func() { c.Close() })
					switch i / len(addresses) % 4 {
					case 1:
						_, _ = c.Write(bytes.Repeat([]byte("noise "), 100))
					case 2: // the beginning of a hello
						_, _ = c.Write([]byte{0x16, 3, 1, 1, 0, 1, 0, 0, 0xfc, 3, 3})
					case 3:
						_, _ = c.Write([]byte(`CONNECT {"user":"ann","pass":"guess"}` + "\r\nPING\r\n"))
					}
					_, _ = io.Copy(io.Discard, c)
					release()
					c.Close()
				}
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

func hostOf(t *testing.T, at string) string {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// localURL returns the address for processes of the owner's user.
func (f *flooded) localURL() string {
	f.t.Helper()
	var said struct{ URL string }
	text, err := os.ReadFile(filepath.Join(f.store, "owner.json"))
	if err == nil {
		err = json.Unmarshal(text, &said)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return said.URL
}

// Connections of strangers take nothing from an owner and from permitted processes, neither from those that are
// connected nor from new ones.
func TestFlood(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*within)
	defer cancel()
	t.Run("B-03 strangers hold connections", func(t *testing.T) { floodListener(t, ctx) })
	t.Run("B-03 more processes than descriptors", func(t *testing.T) {
		testkit.OnlyFull(t, "the subtest before takes the descriptors of an owner")
		floodOwner(t, ctx)
	})
}

func floodListener(t *testing.T, ctx context.Context) {
	dir := t.TempDir()
	cert, key, users := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "users")
	if err := testkit.WriteCertificate(cert, key); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(users, []byte("ann:secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := mustFlood(t, ctx, 128, "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--users", users)
	f.env = []string{"NATS_CA=" + cert, "NATS_USER=ann", "NATS_PASSWORD=secret"}
	away, here := f.appender("away", "--server", f.listen), f.appender("here")
	away.append()
	here.append()
	stop := strangers(300, hostOf(t, f.listen), hostOf(t, f.localURL()))
	held, others := 0, 0
	lasts := time.Second
	if testkit.Full() {
		lasts = 3 * time.Second
	}
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		away.append()
		here.append()
		h, o := f.sockets()
		held, others = max(held, h), max(others, o)
	}
	t.Logf("the owner held %d connections and %d other descriptors, with %d appends", held, others, len(away.acked)+len(here.acked))
	if held > 80 || held < 10 { // 64 connections, and two listeners
		t.Errorf("got %d connections of 128 descriptors", held)
	}
	late, lateHere := f.appender("late", "--server", f.listen), f.appender("late-here")
	late.append()
	lateHere.append()
	stop()
	again := f.appender("again", "--server", f.listen)
	for _, a := range []*appender{away, here, late, lateHere, again} {
		a.append()
		a.close()
		got := output(t, nil, f.store, "tally", "log", a.who, "-o", "jsonl")
		if n := len(jsonLines[logLine](t, strings.NewReader(got))); n != len(a.acked) {
			t.Errorf("%s: got %d events, want %d", a.who, n, len(a.acked))
		}
	}
	f.stop()
	if n := strings.Count(f.errw.String(), "\n"); n > 4 || !strings.Contains(f.errw.String(), "connections were rejected") {
		t.Errorf("the owner: got %d lines:\n%s", n, f.errw)
	}
	output(t, nil, f.store, "tally", "verify")
}

// If more processes connect than the owner has descriptors, some wait. No process is refused for good, and the owner
// keeps running.
func floodOwner(t *testing.T, ctx context.Context) {
	f := mustFlood(t, ctx, 64)
	var all []*appender
	for i := range 40 {
		all = append(all, f.appender(fmt.Sprintf("s%d", i)))
	}
	var appending sync.WaitGroup
	end := time.Now().Add(3 * time.Second)
	for _, a := range all {
		appending.Go(func() {
			for time.Now().Before(end) {
				if _, err := fmt.Fprintln(a.in, `{"n":1}`); err != nil {
					break
				}
				if ack, ok := <-a.acks; ok {
					a.acked = append(a.acked, ack.Offset)
				}
				time.Sleep(100 * time.Millisecond)
			}
			a.in.Close()
			for ack := range a.acks {
				a.acked = append(a.acked, ack.Offset)
			}
			if err := <-a.ended; err != nil && !strings.Contains(a.errw.String(), "has reached its limit of connections") {
				t.Errorf("%s: got %v:\n%s", a.who, err, a.errw)
			}
		})
	}
	appending.Wait()
	done, came := 0, 0
	for _, a := range all {
		done += len(a.acked)
		came += min(1, len(a.acked))
	}
	t.Logf("%d of 40 processes appended %d turns", came, done)
	after := f.appender("after")
	after.append()
	after.close()
	f.stop()
	if n := strings.Count(output(t, nil, f.store, "tally", "log", "-o", "jsonl", "--all-sessions"), "\n"); n != done+1 {
		t.Errorf("got %d stored events, want %d", n, done+1)
	}
	output(t, nil, f.store, "tally", "verify")
}
