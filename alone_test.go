package tally_test

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/testkit"
)

// canary is a user's store, and a server whose visitors are counted.
func canary(t *testing.T) (store, url string, visits *atomic.Int64) {
	t.Helper()
	store = filepath.Join(t.TempDir(), "store")
	st, err := embedded.Open(t.Context(), embedded.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Session("mine").AppendTurns(t.Context(), events.MainThread, []byte(`"mine"`)); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	visits = new(atomic.Int64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			visits.Add(1)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return store, "nats://" + l.Addr().String(), visits
}

// The tests of a package use neither the store that the user's variables name, nor the server, nor the home directory.
func TestUserIsLeftAlone(t *testing.T) {
	testkit.OnlyFull(t, "it builds a test program and runs it three times")
	testkit.NotUnderRace(t)
	store, url, visits := canary(t)
	user := t.TempDir()
	before := contents(t, store) + contents(t, user)
	bin := filepath.Join(t.TempDir(), "evals.test")
	build := exec.Command("go", "test", "-c", "-o", bin, "./stores/evals")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for variables, values := range map[string]map[string]string{
		"a store":     {"TALLY_STORE": store, "TALLY_BACKEND": "local", "TALLY_NAMESPACE": "mine", "TALLY_MIN_DURABILITY": "durable", "TALLY_STORAGE_PATH": user},
		"a server":    {"TALLY_SERVER": url, "NATS_URL": url, "NATS_USER": "me", "NATS_PASSWORD": "secret"},
		"all of them": {"TALLY_STORE": store, "TALLY_SERVER": url, "NATS_URL": url, "TALLY_STORAGE_PATH": user},
	} {
		t.Run(variables, func(t *testing.T) {
			test := exec.Command(bin, "-test.timeout=90s", "-test.run=^(TestConversation|ExampleList)$")
			test.Dir = filepath.Join("stores", "evals")
			test.Env = []string{"HOME=" + user, "XDG_DATA_HOME=" + user, "XDG_CONFIG_HOME=" + user, "XDG_CACHE_HOME=" + user}
			for _, name := range []string{"PATH", "TMPDIR"} {
				if value, ok := os.LookupEnv(name); ok {
					test.Env = append(test.Env, name+"="+value)
				}
			}
			for _, name := range config.Variables() {
				if value := values[name]; value != "" {
					test.Env = append(test.Env, name+"="+value)
				}
			}
			if out, err := test.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if now := contents(t, store) + contents(t, user); now != before {
				t.Errorf("the user's files changed from\n%s\nto\n%s", before, now)
			}
			if n := visits.Load(); n > 0 {
				t.Errorf("the user's server got %d connections", n)
			}
		})
	}
}

// contents lists the files of a folder, with sizes and times.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == "telemetry" { // of the go command
			return fs.SkipDir
		}
		info, err := d.Info()
		if err == nil && !d.IsDir() {
			fmt.Fprintln(&b, path, info.Size(), info.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
