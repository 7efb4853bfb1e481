// Package agentstest compares sessions in tally with the agents' own data: lines with events, files with exported
// files, forks and rewinds with the positions that the agent names, turns in effect with the agent's screen, costs with
// the agent's sums.
//
// The comparisons use recorded sessions and, with make agents, sessions of the real programs, which come from npm.
// Their models are played here on the loopback interface.
package agentstest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
)

// programs is the variable with the folder into which make agents installs the real programs, each in a folder of its
// own.
const programs = "TALLY_AGENTS"

// tally is the path of the program, built once.
var tally string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	defer storetest.Alone()()
	if !testkit.Full() && os.Getenv(programs) == "" {
		return m.Run() // all tests are skipped
	}
	dir, err := os.MkdirTemp("", "tally-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	tally = filepath.Join(dir, "tally")
	if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", tally, "../tally").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// installed returns the path of a real program: pi in folder pi-0.73. Without the variable, the
// test is skipped.
func installed(t *testing.T, folder, name string) string {
	t.Helper()
	dir := os.Getenv(programs)
	if dir == "" {
		t.Skipf("make agents runs this test with the real programs, in %s", programs)
	}
	path := filepath.Join(dir, folder, "node_modules", ".bin", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// within is the time limit of a test with a real program.
const within = time.Minute

// A machine is the environment of an agent: a home, a project and a store of its own.
type machine struct {
	t                 *testing.T
	ctx               context.Context
	home, work, store string
	env               []string // besides HOME
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	t.Cleanup(cancel)
	m := &machine{t: t, ctx: ctx, home: filepath.Join(dir, "home"), work: filepath.Join(dir, "demo"), store: filepath.Join(dir, "store")}
	for _, name := range []string{m.home, m.work} {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// newMachineOf returns the same machine for another user with the same store.
func newMachineOf(m *machine, name string) *machine {
	m.t.Helper()
	other := *m
	other.home = filepath.Join(filepath.Dir(m.home), name)
	if err := os.Mkdir(other.home, 0o700); err != nil {
		m.t.Fatal(err)
	}
	return &other
}

// command prepares a program in the project. It ends with the test.
func (m *machine) command(name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(m.ctx, name, args...)
	c.Dir, c.WaitDelay = m.work, time.Second
	c.Env = append(append(os.Environ(), "HOME="+m.home), m.env...)
	return c
}

// run runs a program and returns its output.
func (m *machine) run(name string, args ...string) string {
	m.t.Helper()
	c := m.command(name, args...)
	var out, errw bytes.Buffer
	c.Stdout, c.Stderr = &out, &errw
	if err := c.Run(); err != nil {
		m.t.Fatalf("%s %q: %v\n%s%s", filepath.Base(name), args, err, errw.Bytes(), out.Bytes())
	}
	return out.String()
}

// tally runs tally on the store.
func (m *machine) tally(args ...string) string {
	m.t.Helper()
	return m.run(tally, append(args, "--store", m.store)...)
}

// watch follows an agent until stop is called.
func (m *machine) watch(agent string) (stop func()) {
	m.t.Helper()
	c := m.command(tally, "watch", agent, "--redact", "off", "--store", m.store)
	said := filepath.Join(filepath.Dir(m.store), "said")
	out, err := os.Create(said)
	if err != nil {
		m.t.Fatal(err)
	}
	c.Stdout, c.Stderr = out, out
	if err := errors.Join(c.Start(), out.Close()); err != nil {
		m.t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		_ = c.Process.Signal(os.Interrupt) // it may have ended already
		_ = c.Wait()                       // killed by the signal
	})
	m.t.Cleanup(func() {
		end()
		if text, _ := os.ReadFile(said); m.t.Failed() {
			m.t.Logf("watch printed:\n%s", text)
		}
	})
	return func() {
		m.t.Helper()
		end()
		if code := c.ProcessState.ExitCode(); code != 0 && code != 130 {
			m.t.Errorf("watch ended with %d", code)
		}
	}
}

// write writes a file below the home.
func (m *machine) write(name, content string) {
	m.t.Helper()
	path := filepath.Join(m.home, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// parsed decodes JSON and fails the test if it is invalid.
func parsed[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %.500s", err, text)
	}
	return v
}

// parsedLines decodes JSON, one value for each line.
func parsedLines[T any](t *testing.T, text string) (list []T) {
	t.Helper()
	for line := range strings.Lines(text) {
		list = append(list, parsed[T](t, line))
	}
	return list
}
