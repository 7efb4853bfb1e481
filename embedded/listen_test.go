package embedded_test

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// mustCertificate writes cert.pem, a certificate that is its own authority, and key.pem.
func mustCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := testkit.WriteCertificate(cert, key); err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func mustTLS(t *testing.T, cert, key, authorities string) *tls.Config {
	t.Helper()
	c, err := embedded.LoadTLS(cert, key, authorities)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// An address beyond this machine requires TLS and users.
func TestListenIsRefused(t *testing.T) {
	cert, key := mustCertificate(t)
	safe, users := mustTLS(t, cert, key, ""), []embedded.Account{{Name: "ann", Password: "p"}}
	for name, c := range map[string]struct {
		l  embedded.Listen
		ok bool
	}{
		"this machine":            {embedded.Listen{Address: "127.0.0.1:4222"}, true},
		"this machine, by name":   {embedded.Listen{Address: "localhost:0"}, true},
		"this machine, version 6": {embedded.Listen{Address: "[::1]:4222"}, true},
		"all, with both":          {embedded.Listen{Address: "0.0.0.0:4222", TLS: safe, Users: users}, true},
		"all":                     {embedded.Listen{Address: "0.0.0.0:4222"}, false},
		"all, without a host":     {embedded.Listen{Address: ":4222"}, false},
		"all, version 6":          {embedded.Listen{Address: "[::]:4222", TLS: safe}, false},
		"a name, without TLS":     {embedded.Listen{Address: "example.com:4222", Users: users}, false},
		"all, without users":      {embedded.Listen{Address: "0.0.0.0:4222", TLS: safe}, false},
		"no port":                 {embedded.Listen{Address: "127.0.0.1"}, false},
		"no such port":            {embedded.Listen{Address: "127.0.0.1:x"}, false},
		"the owner's name":        {embedded.Listen{Address: "127.0.0.1:1", Users: []embedded.Account{{Name: "owner", Password: "p"}}}, false},
	} {
		err := c.l.Check()
		if refused, ok := errors.AsType[*embedded.ListenError](err); (err == nil) != c.ok || err != nil && (!ok || refused.Reason == "") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := embedded.Start(t.Context(), embedded.ServerOptions{Dir: t.TempDir(), Listen: &embedded.Listen{Address: ":0"}}); err == nil {
		t.Error("a server was started")
	}
}

func TestReadUsers(t *testing.T) {
	for text, want := range map[string]string{
		"# who may\n\nann:secret\nbob : with: colons\n": "ann=secret bob = with: colons",
		"":           "",
		"ann\n":      "!:1:",
		"a:b\n:c\n":  "!:2:",
		"a:b\na:c\n": "!:2: duplicate",
	} {
		path := filepath.Join(t.TempDir(), "users")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		users, err := embedded.ReadUsers(path)
		var got []string
		for _, u := range users {
			got = append(got, u.Name+"="+u.Password)
		}
		if problem, fails := strings.CutPrefix(want, "!"); fails {
			if err == nil || !strings.Contains(err.Error(), problem) {
				t.Errorf("%q: %v", text, err)
			}
		} else if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte("ann:secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.ReadUsers(path); err == nil || !strings.Contains(err.Error(), "others can read it") {
		t.Errorf("a file that others can read: got %v", err)
	}
}

// listening starts an owner that listens with TLS, and returns the URL for a user.
func listening(t *testing.T, dir, authorities string) (s *embedded.Server, url, cert, key string) {
	t.Helper()
	cert, key = mustCertificate(t)
	if authorities == "itself" {
		authorities = cert
	}
	l := &embedded.Listen{Address: "127.0.0.1:0", TLS: mustTLS(t, cert, key, authorities), Users: []embedded.Account{{Name: "ann", Password: "secret"}}}
	l.Ready = func(at string) { url = at }
	s = mustStart(t, embedded.ServerOptions{Dir: dir, Listen: l})
	if !strings.HasPrefix(url, "tls://127.0.0.1:") {
		t.Fatalf("got the address %q", url)
	}
	return s, url, cert, key
}

func as(url, user string) string { return strings.Replace(url, "://", "://"+user+"@", 1) }

// A client on another machine finds the store's owner, appends through it, and reads the durable offset and the lost
// records. A process of this user attaches as before.
func TestRemoteClientAppendsThroughTheOwner(t *testing.T) {
	home(t, nil)
	dir := t.TempDir()
	s, url, cert, _ := listening(t, dir, "")
	t.Setenv("NATS_CA", cert)
	st := mustOpen(t, embedded.Options{URL: as(url, "ann:secret"), MinDurability: "durable"})
	sub := events.Session("", "s")
	if ack := mustAppend(t, st.Log, sub, turn("a", "x")); ack.First != 1 || ack.Durability != log.Durable {
		t.Errorf("got %+v", ack)
	}
	if ack := mustAppend(t, st.Log, sub, turn("a", "x")); !ack.Duplicate {
		t.Errorf("the same event again: got %+v", ack)
	}
	a, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	mustAppend(t, a.Log(), sub, turn("b", "y"))
	if at, err := st.Log.Durable(t.Context()); err != nil || at != 2 {
		t.Errorf("got durable %v, %v", at, err)
	}
	if ids := mustRead(t, st.Log, events.Range{}); strings.Join(ids, " ") != "a b" {
		t.Errorf("read: got %v", ids)
	}
	if _, err := st.Log.Append(t.Context(), sub, log.At(1), turn("c", "z")); !errors.Is(err, log.ErrConflict) {
		t.Errorf("a conflict: got %v", err)
	}
	if s.URL() == url {
		t.Errorf("owner.json sends processes of this machine to %s", url)
	}
}

// A client is refused if it has no certificate of the server's authority, no password, a wrong password, or the name
// of one of this machine's own users.
func TestRemoteClientIsRefused(t *testing.T) {
	home(t, nil)
	dir := t.TempDir()
	_, url, cert, key := listening(t, dir, "itself")
	_, token := mustReadToken(t, dir)
	for name, c := range map[string]struct {
		user string
		opts []nats.Option
		ok   bool
	}{
		"with all":            {"ann:secret", []nats.Option{nats.RootCAs(cert), nats.ClientCert(cert, key)}, true},
		"unknown authority":   {"ann:secret", []nats.Option{nats.ClientCert(cert, key)}, false},
		"without certificate": {"ann:secret", []nats.Option{nats.RootCAs(cert)}, false},
		"wrong password":      {"ann:guess", []nats.Option{nats.RootCAs(cert), nats.ClientCert(cert, key)}, false},
		"no user":             {"", []nats.Option{nats.RootCAs(cert), nats.ClientCert(cert, key)}, false},
		"a user of this host": {"attached:" + token, []nats.Option{nats.RootCAs(cert), nats.ClientCert(cert, key)}, false},
	} {
		at := url
		if c.user != "" {
			at = as(url, c.user)
		}
		nc, err := nats.Connect(at, c.opts...)
		if err == nil {
			nc.Close()
		}
		if (err == nil) != c.ok {
			t.Errorf("%s: got %v", name, err)
		}
	}
	t.Setenv("NATS_CA", cert)
	t.Setenv("NATS_CERT", cert)
	t.Setenv("NATS_KEY", key)
	if _, err := embedded.Open(t.Context(), embedded.Options{URL: as(url, "ann:guess")}); !errors.Is(err, log.ErrUnavailable) {
		t.Errorf("wrong password: got %v", err)
	}
	mustOpen(t, embedded.Options{URL: as(url, "ann:secret")})
}

// Only the owner writes to the log's subjects, removes records, publishes the durable offset, and answers requests.
func TestNobodySpeaksAsTheOwner(t *testing.T) {
	dir := t.TempDir()
	s, url, cert, _ := listening(t, dir, "")
	user, password := mustReadToken(t, dir)
	for name, at := range map[string]string{"remote": as(url, "ann:secret"), "attached": as(s.URL(), user+":"+password)} {
		t.Run(name, func(t *testing.T) {
			denied := make(chan error, 10)
			opts := []nats.Option{nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err })}
			if name == "remote" {
				opts = append(opts, nats.RootCAs(cert))
			}
			nc, err := nats.Connect(at, opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			must := func(what string, err error) {
				t.Helper()
				if err := errors.Join(err, nc.Flush()); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				select {
				case err := <-denied:
					if !errors.Is(err, nats.ErrPermissionViolation) {
						t.Errorf("%s: got %v", what, err)
					}
				case <-time.After(testkit.Patience(time.Minute)):
					t.Errorf("%s: got no error, want a denied permission", what)
				}
			}
			for _, subject := range []string{"tally.v1.00.default.session.x", "tally.api.v1.watermark.moved", "tally.api.v1.segments",
				"$JS.API.STREAM.DELETE.TALLY_1", "$JS.API.STREAM.PURGE.TALLY_1", "$JS.API.STREAM.UPDATE.TALLY_1", "$JS.API.STREAM.MSG.DELETE.TALLY_1"} {
				must(subject, nc.Publish(subject, []byte("{}")))
			}
			for _, subject := range []string{"tally.api.v1.append", "tally.api.v1.watermark", "$SRV.INFO.tally"} {
				_, err := nc.QueueSubscribe(subject, "q", func(*nats.Msg) {})
				must("to answer "+subject, err)
			}
			if head, err := s.Log().Head(t.Context()); err != nil || head != 0 {
				t.Errorf("got head %v, %v", head, err)
			}
		})
	}
}
