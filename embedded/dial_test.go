package embedded_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/log"
)

// mustServe runs a NATS server, as another operator would.
func mustServe(t *testing.T, conf string) *server.Server {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "nats.conf")
	text := "listen: 127.0.0.1:-1\nmax_payload: 16MB\njetstream { store_dir: \"" + dir + "\"" + conf
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		t.Fatal(err)
	}
	opts.NoLog, opts.NoSigs = true, true
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

// home sets a home directory without settings, except those of the nats command.
func home(t *testing.T, contexts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range config.Variables() {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	where := filepath.Join(dir, "config", "nats", "context")
	if err := os.MkdirAll(where, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range contexts {
		if err := os.WriteFile(filepath.Join(where, name+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func mustOpen(t *testing.T, o embedded.Options) *tally.Store {
	t.Helper()
	if o.ConfigDir == "" {
		o.ConfigDir = t.TempDir()
	}
	st, err := embedded.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

const accounts = `
accounts {
  APP { jetstream: enabled, users: [{user: app, password: a}] }
  SYS { users: [{user: sys, password: s}] }
}
system_account: SYS
`

// With a server that others run, an acknowledgement promises what the server's settings show. A store that promises less
// than requested is refused.
func TestDurabilityOfForeignServer(t *testing.T) {
	contexts := map[string]string{"app": `{"user":"app","password":"a"}`, "sys": `{"user":"sys","password":"s"}`}
	for name, c := range map[string]struct {
		conf, project string
		want          log.Durability
		why           string // why the durability is not higher; empty: it is the highest
	}{
		"syncs on a timer": {conf: "}" + accounts, project: "system_context = \"sys\"\n", want: log.Buffered, why: "acknowledges before it syncs"},
		"does not say":     {conf: ", sync_interval: always }" + accounts, want: log.Buffered, why: "does not tell this user"},
		"syncs always":     {conf: ", sync_interval: always }" + accounts, project: "system_context = \"sys\"\n", want: log.Durable},
	} {
		t.Run(name, func(t *testing.T) {
			home(t, contexts)
			s := mustServe(t, c.conf)
			dir := t.TempDir()
			text := "[store]\nbackend = \"nats\"\n[nats]\nurl = \"" + s.ClientURL() + "\"\ncontext = \"app\"\n" + c.project
			if err := os.WriteFile(filepath.Join(dir, "tally.toml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			st := mustOpen(t, embedded.Options{ConfigDir: dir})
			ack := mustAppend(t, st.Log, events.Session("", "s"), turn("a", "x"))
			if ack.Durability != c.want || st.Log.Durability() != c.want {
				t.Errorf("got acknowledgement %v and log %v, want %v", ack.Durability, st.Log.Durability(), c.want)
			}
			other, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: dir, MinDurability: "durable"})
			if c.want == log.Durable {
				if err != nil {
					t.Fatal(err)
				}
				other.Close()
				return
			}
			less, ok := errors.AsType[*log.DurabilityError](err)
			if !ok || less.Want != log.Durable || less.Have != c.want || !strings.Contains(less.Why, c.why) {
				t.Errorf("got %v, want an error that says that the server %s", err, c.why)
			}
		})
	}
}

// The memory and the local backend also refuse a durability that they do not have.
func TestMinDurability(t *testing.T) {
	home(t, nil)
	for backend, most := range map[string]log.Durability{"memory": log.Buffered, "local": log.Durable} {
		for _, want := range []log.Durability{log.Buffered, log.Durable, log.Replicated} {
			st, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: t.TempDir(), Backend: backend, Store: t.TempDir(), MinDurability: want.String()})
			if err == nil {
				err = st.Close()
			}
			less, refused := errors.AsType[*log.DurabilityError](err)
			if refused != (want > most) || refused && (less.Have != most || less.Why == "") || err != nil && !refused {
				t.Errorf("%s, at least %v: %v", backend, want, err)
			}
		}
	}
	if _, err := embedded.Open(t.Context(), embedded.Options{MinDurability: "safe"}); err == nil {
		t.Error("an unknown durability is accepted")
	}
}

// Opening refuses a stream that could lose records, and names the field. Wrong credentials make the store unreachable,
// and the error does not contain the password.
func TestForeignServerIsRefused(t *testing.T) {
	home(t, nil)
	s := mustServe(t, "}\nauthorization { user: u, password: secret }\n")
	nc, err := nats.Connect(s.ClientURL(), nats.UserInfo("u", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "TALLY_1", Subjects: []string{events.SubjectFilter}, MaxAge: time.Hour, Discard: jetstream.DiscardNew}); err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(s.ClientURL(), "nats://", "nats://u:secret@", 1)
	_, err = embedded.Open(t.Context(), embedded.Options{URL: url})
	if wrong, ok := errors.AsType[*log.ConfigError](err); !ok || wrong.Stream != "TALLY_1" || wrong.Field != "max_age" {
		t.Errorf("got %v, want a refusal of max_age", err)
	}
	_, err = embedded.Open(t.Context(), embedded.Options{URL: strings.Replace(url, "secret", "guess", 1)})
	if !errors.Is(err, log.ErrUnavailable) || strings.Contains(err.Error(), "guess") {
		t.Errorf("wrong credentials: got %v", err)
	}
}
