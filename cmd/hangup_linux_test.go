package cmd_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/internal/testkit"
)

// soon bounds each wait, with room for a loaded machine.
const soon = 2 * time.Minute

// endures lists commands that run until they are stopped.
var endures = []string{"watch", "daemon run", "inbox run ci --open -- true", "queue work q -- true", "show s -f", "log s -f", "log --all-sessions -f", "doc watch", "inbox ls ci -f"}

// If its terminal is closed, each command that runs until it is stopped ends as with SIGTERM: with the same exit code,
// and without an owner file.
func TestHangup(t *testing.T) {
	testkit.Long(t)
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored here, as below nohup, and so in every program that the test starts")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*within)
	defer cancel()
	t.Run("B-08 long commands end", func(t *testing.T) {
		for i, args := range endures {
			if !testkit.Plays(i, 6) {
				continue
			}
			term, _ := signalled(t, ctx, args, syscall.SIGTERM)
			hup, said := signalled(t, ctx, args, syscall.SIGHUP)
			if term == 143 {
				term = 129
			}
			if hup != term || strings.Contains(said, "goroutine") {
				t.Errorf("%s: got exit code %d, want %d:\n%s", args, hup, term, said)
			}
		}
	})
	t.Run("B-08 serve reads its settings again", func(t *testing.T) { rereads(t, ctx) })
	t.Run("B-08 serve ends with its terminal", func(t *testing.T) { loses(t, ctx) })
}

// loses ends the shell whose terminal an owner has.
func loses(t *testing.T, ctx context.Context) {
	term, store := newTerminal(t, 80, 24), filepath.Join(t.TempDir(), "store")
	ended, holds, err := os.Pipe() // the owner, which is not the test's child, holds the other end until it ends
	if err != nil {
		t.Fatal(err)
	}
	defer ended.Close()
	c := command(ctx, store, "tally", "serve")
	c.Args = append([]string{"sh", "-c", `"$@"; :`, "sh"}, c.Args...)
	c.Path = "/bin/sh"
	c.Stdin, c.Stdout, c.Stderr = term.slave, term.slave, term.slave
	c.ExtraFiles = []*os.File{holds}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = c.Start()
	holds.Close()
	if err != nil {
		t.Fatal(err)
	}
	term.slave.Close()
	owns := filepath.Join(store, "owner.json")
	for _, there := range []bool{true, false} { // at the end the owner file is gone
		for deadline := time.Now().Add(soon); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(owns); (err == nil) == there {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the store did not reach this state in time: an owner exists: %v", there)
			}
		}
		if there {
			c.Process.Kill()
			c.Wait()
		}
	}
	ended.SetReadDeadline(time.Now().Add(soon))
	if _, err := ended.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("wait until the owner has ended: %v", err)
	}
	output(t, nil, store, "tally", "ls")
}

// signalled runs a command that owns a store until it gets a signal, and returns its exit code.
func signalled(t *testing.T, ctx context.Context, args string, sig syscall.Signal) (code int, said string) {
	t.Helper()
	store := filepath.Join(t.TempDir(), "store")
	output(t, strings.NewReader(`{"n":1}`), store, "tally", "append", "s")
	output(t, strings.NewReader(""), store, "tally", "queue", "add", "q")
	if strings.HasPrefix(args, "inbox") {
		runTo(t, store, "inbox", "run", "ci", "--open", "--until-empty", "--", "true")
	}
	c := command(ctx, store, "tally", strings.Fields(args)...)
	var errw bytes.Buffer
	c.Args = c.Args[:len(c.Args)-2] // the last arguments may belong to a command
	c.Env, c.Dir, c.Stderr = append(c.Environ(), "TALLY_STORE="+store), filepath.Dir(store), &errw
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { c.Wait(); close(ended) }()
	owns := filepath.Join(store, "owner.json")
	for deadline := time.Now().Add(soon); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(owns); err == nil {
			break
		}
		select {
		case <-ended:
			t.Fatalf("%s has ended:\n%s", args, &errw)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not own the store", args)
		}
	}
	c.Process.Signal(sig)
	select {
	case <-ended:
	case <-time.After(soon):
		c.Process.Kill()
		t.Fatalf("%s still runs after %v", args, sig)
	}
	if _, err := os.Stat(owns); err == nil {
		t.Errorf("%s, %v: the owner file is still there", args, sig)
	}
	return c.ProcessState.ExitCode(), errw.String()
}

// toldText is a writer with a method that waits for a text.
type toldText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *toldText) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *toldText) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// await waits for a text, and drops the output up to it.
func (w *toldText) await(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(soon); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		said := w.text.String()
		if strings.Contains(said, want) && strings.HasSuffix(said, "\n") {
			w.text.Reset()
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("got no %q in time, got %q", want, said)
		}
	}
}

func rereads(t *testing.T, ctx context.Context) {
	dir := t.TempDir()
	cert, key, users := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "users")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(testkit.WriteCertificate(cert, key))
	must(os.WriteFile(users, []byte("ann:secret\nbob:other\ndee:same\n"), 0o600))
	f := mustFlood(t, ctx, 1024, "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--users", users)
	hangup := func(want string) {
		t.Helper()
		must(f.process.Process.Signal(syscall.SIGHUP))
		f.errw.await(t, want)
	}
	comes := func(user, password string) bool {
		c := command(ctx, f.store, "tally", "append", "x", "--server", f.listen)
		c.Args = c.Args[:len(c.Args)-2]
		c.Env, c.Stdin = append(c.Environ(), "NATS_CA="+cert, "NATS_USER="+user, "NATS_PASSWORD="+password), strings.NewReader(`{"n":1}`)
		out, err := c.CombinedOutput()
		if err != nil && c.ProcessState.ExitCode() != 7 {
			t.Fatalf("%v\n%s", err, out)
		}
		return err == nil
	}
	gone := make(chan string, 3)
	stays := func(user, password string) *nats.Conn {
		nc, err := nats.Connect(f.listen, nats.RootCAs(cert), nats.UserInfo(user, password), nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { gone <- user }))
		must(err)
		t.Cleanup(nc.Close)
		return nc
	}
	stays("ann", "secret")
	bob, dee := stays("bob", "other"), stays("dee", "same")
	first := leafOf(t, f.listen)

	// An invalid file changes nothing and is reported.
	must(os.WriteFile(users, []byte("ann:secret\n"), 0o644))
	must(os.Chmod(users, 0o644))
	hangup("settings were not reloaded: --users: " + users + ": others can read it")
	must(bob.Flush())
	must(os.Chmod(users, 0o600))
	must(os.WriteFile(key, []byte("none"), 0o600))
	hangup("settings were not reloaded: --tls-cert")
	must(bob.Flush())
	if !bytes.Equal(first, leafOf(t, f.listen)) {
		t.Error("the certificate was replaced by an invalid one")
	}

	// The new file has no Bob, another password for Ann, and a new certificate.
	must(testkit.WriteCertificate(cert, key))
	must(os.WriteFile(users, []byte("ann:changed\ncy:new\ndee:same\n"), 0o600))
	hangup("Users and certificates were reloaded.")
	if bytes.Equal(first, leafOf(t, f.listen)) {
		t.Error("got the old certificate")
	}
	for who, want := range map[string]bool{"ann:secret": false, "ann:changed": true, "bob:other": false, "cy:new": true} {
		user, password, _ := strings.Cut(who, ":")
		if comes(user, password) != want {
			t.Errorf("%s: got a login %v", who, !want)
		}
	}
	var cut []string
	for range 2 {
		select {
		case user := <-gone:
			cut = append(cut, user)
		case <-time.After(soon):
			t.Fatalf("got only %q disconnected, want ann and bob", cut)
		}
	}
	if slices.Sort(cut); strings.Join(cut, " ") != "ann bob" {
		t.Errorf("got %q disconnected", cut)
	}
	must(dee.Flush())

	// The daemons' settings are invalid first, and then changed.
	settings := filepath.Join(f.store+"-home", "tally", "config.toml")
	must(os.MkdirAll(filepath.Dir(settings), 0o700))
	must(os.WriteFile(settings, []byte("[daemons]\nrun = [\"none such\"]\n"), 0o600))
	hangup("settings were not reloaded: ")
	must(dee.Flush())
	must(os.WriteFile(settings, []byte("[daemons]\nrun = [\"janitor\"]\n"), 0o600))
	hangup("Settings, users and certificates were reloaded.")
	here := f.appender("here")
	here.append()
	here.close()
	if !comes("cy", "new") {
		t.Error("cy is refused after the change")
	}
	if said := output(t, nil, f.store, "tally", "status", "-o", "json"); strings.Contains(said, `"dispatch"`) {
		t.Errorf("got the old daemons:\n%s", said)
	}
	t.Run("W-06 SIGHUP under load", func(t *testing.T) {
		underLoad(t, f, func(user string) {
			must(os.WriteFile(users, []byte(user+":new\ndee:same\n"), 0o600))
		}, comes)
	})
	f.stop()
	output(t, nil, f.store, "tally", "verify")
}

// underLoad sends SIGHUP again and again while a process appends. Each time there is another user. No append is lost,
// and the last user gets in.
func underLoad(t *testing.T, f *flooded, renew func(user string), comes func(user, password string) bool) {
	rounds := 3
	if testkit.Soak() {
		rounds = 100
	}
	load, user := f.appender("load"), ""
	for i := range rounds {
		user = fmt.Sprintf("user%d", i)
		renew(user)
		if err := f.process.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		const done = "Users and certificates were reloaded.\n"
		for deadline := time.Now().Add(soon); !strings.Contains(f.errw.String(), done) && time.Now().Before(deadline); {
			load.append()
		}
		f.errw.await(t, done)
	}
	load.append()
	load.close()
	if !comes(user, "new") {
		t.Errorf("%s is refused after %d signals", user, rounds)
	}
	var kept []uint64
	for line := range strings.Lines(output(t, nil, f.store, "tally", "log", "load", "-o", "jsonl")) {
		var rec struct{ Offset uint64 }
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, rec.Offset)
	}
	if len(kept) > 0 && len(kept) == len(load.acked)+1 {
		kept = kept[1:] // the session's own first record
	}
	if !slices.Equal(kept, load.acked) {
		t.Errorf("acknowledged %v, kept %v", load.acked, kept)
	}
}

// leafOf returns the certificate that an address serves.
func leafOf(t *testing.T, at string) []byte {
	t.Helper()
	raw, err := net.Dial("tcp", hostOf(t, at))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(soon))
	for b := make([]byte, 1); b[0] != '\n'; { // INFO
		if _, err := raw.Read(b); err != nil {
			t.Fatal(err)
		}
	}
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	return c.ConnectionState().PeerCertificates[0].Raw
}
