//go:build unix

package cmd_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
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

// told is a line of watch -o jsonl.
type told struct {
	Event, Session string
	New, Missing   bool
	Lines          int
	Events         int
}

// watch is a process that follows the agents of the home folder beside a store.
type watch struct {
	t    *testing.T
	cmd  *exec.Cmd
	said chan told
}

// mustWatch starts a watch. The caller must read its lines.
func mustWatch(t *testing.T, store string, args ...string) *watch {
	t.Helper()
	c := command(t.Context(), store, "tally", append([]string{"watch", "-o", "jsonl", "--progress", "none"}, args...)...)
	c.Env = agentEnv(c.Env)
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{t, c, make(chan told, 10_000)}
	go func() {
		defer close(w.said)
		for in := bufio.NewScanner(out); in.Scan(); {
			var line told
			if err := json.Unmarshal(in.Bytes(), &line); err != nil {
				t.Errorf("%q: %v", in.Text(), err)
			}
			w.said <- line
		}
	}()
	t.Cleanup(func() { c.Process.Kill() })
	return w
}

// agentEnv returns an environment in which agents search for sessions in the home folder.
func agentEnv(env []string) []string {
	return append(env, "CLAUDE_CONFIG_DIR=", "CODEX_HOME=", "GEMINI_CLI_HOME=", "PI_CODING_AGENT_DIR=", "PI_CODING_AGENT_SESSION_DIR=", "XDG_STATE_HOME=")
}

// await waits for a line that is accepts.
func (w *watch) await(what string, is func(told) bool) told {
	w.t.Helper()
	late := time.After(within)
	for {
		select {
		case line, ok := <-w.said:
			if !ok {
				w.t.Fatalf("the watch ended before: %s", what)
			}
			if is(line) {
				return line
			}
		case <-late:
			w.t.Fatalf("timeout: no line: %s", what)
		}
	}
}

func is(event string) func(told) bool { return func(l told) bool { return l.Event == event } }

// lines waits until a number of lines were appended.
func (w *watch) lines(n int) {
	w.t.Helper()
	w.await(fmt.Sprintf("%d lines", n), func(l told) bool {
		if l.Event == "session" {
			n -= l.Lines
		}
		return n <= 0
	})
}

// kill kills the watch.
func (w *watch) kill() {
	w.cmd.Process.Kill()
	for range w.said {
	}
	w.cmd.Wait()
}

// stop ends the watch with Ctrl-C, which is not an error.
func (w *watch) stop() {
	w.t.Helper()
	w.cmd.Process.Signal(os.Interrupt)
	for range w.said {
	}
	if err := w.cmd.Wait(); err != nil {
		w.t.Errorf("stop: got %v", err)
	}
}

// transcripts are sessions that grow, as Claude Code writes them.
type transcripts struct {
	t     *testing.T
	dir   string
	mu    sync.Mutex
	count []int // number of lines, by session
}

func newTranscripts(t *testing.T, store string, sessions int) *transcripts {
	t.Helper()
	dir := filepath.Join(store+"-home", ".claude", "projects", "-home-me-shop")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return &transcripts{t: t, dir: dir, count: make([]int, sessions)}
}

// grow appends lines to a session, in pieces that do not end at the ends of lines.
func (w *transcripts) grow(session, lines int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var text strings.Builder
	for range lines {
		n := w.count[session]
		w.count[session]++
		parent := "null"
		if n > 0 {
			parent = fmt.Sprintf(`"u-%d-%d"`, session, n-1)
		}
		fmt.Fprintf(&text, `{"parentUuid":%s,"cwd":"/home/me/shop","sessionId":"s%d","version":"2.1.0","type":"user","message":{"role":"user","content":"line %d"},"uuid":"u-%d-%d","timestamp":"2026-01-02T10:00:00.000Z"}`+"\n",
			parent, session, n, session, n)
	}
	f, err := os.OpenFile(w.path(session), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Error(err)
		return
	}
	defer f.Close()
	for rest := text.String(); rest != ""; {
		n := min(len(rest), 1+testkit.Random(w.t).IntN(2000))
		if _, err := f.WriteString(rest[:n]); err != nil {
			w.t.Error(err)
		}
		rest = rest[n:]
	}
}

func (w *transcripts) path(session int) string {
	return filepath.Join(w.dir, fmt.Sprintf("s%d.jsonl", session))
}

// growUntil appends to all sessions until stop is closed.
func (w *transcripts) growUntil(pause time.Duration) (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(pause):
				w.grow(testkit.Random(w.t).IntN(len(w.count)), 1+testkit.Random(w.t).IntN(5))
			}
		}
	})
	stop = sync.OnceFunc(func() { close(done); running.Wait() })
	w.t.Cleanup(stop)
	return stop
}

// mustHold expects each line in the log once, in the order of its file, and a store without findings.
func (w *transcripts) mustHold(store string) {
	w.t.Helper()
	w.mustHaveLines(store)
	output(w.t, nil, store, "tally", "verify")
}

// mustHaveLines expects each line in the log once, in the order of its file.
func (w *transcripts) mustHaveLines(store string, args ...string) {
	w.t.Helper()
	once := command(w.t.Context(), store, "tally", append([]string{"watch", "--once"}, args...)...)
	once.Env = agentEnv(once.Env)
	if out, err := once.CombinedOutput(); err != nil {
		w.t.Fatalf("watch --once: %v\n%s", err, out)
	}
	next := make(map[string]int)
	for _, l := range jsonLines[logLine](w.t, strings.NewReader(output(w.t, nil, store, "tally", "log", "--all-sessions", "-o", "jsonl"))) {
		if l.Event.Source != "urn:tally:agent:claude" {
			continue
		}
		session := l.Event.Subject[strings.LastIndexByte(l.Event.Subject, 's')+1:]
		if want := fmt.Sprintf("u-%s-%d", session, next[session]); l.Event.ID != want {
			w.t.Fatalf("got %s at %d, want %s", l.Event.ID, l.Offset, want)
		}
		next[session]++
	}
	for i, n := range w.count {
		if got := next[fmt.Sprint(i)]; got != n {
			w.t.Errorf("session %d: got %d lines, want %d", i, got, n)
		}
	}
}

// Written lines are recorded, a torn line waits for its end, and a removed file is reported. Ctrl-C stops the watch.
func TestWatch(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "store")
	files := newTranscripts(t, store, 2)
	files.grow(0, 3)
	w := mustWatch(t, store)
	w.await("what is followed", is("watching"))
	if l := w.await("the session that was there", is("session")); l.Session != "claude/-home-me-shop/s0" || !l.New || l.Lines != 3 {
		t.Errorf("got %+v", l)
	}
	w.await("that it caught up", is("caughtUp"))
	files.grow(1, 1)
	if l := w.await("a new session", is("session")); l.Session != "claude/-home-me-shop/s1" || !l.New || l.Lines != 1 {
		t.Errorf("got %+v", l)
	}
	files.grow(0, 1)
	if l := w.await("a session that goes on", is("session")); l.Session != "claude/-home-me-shop/s0" || l.New || l.Lines != 1 {
		t.Errorf("got %+v", l)
	}
	if err := os.Remove(files.path(0)); err != nil {
		t.Fatal(err)
	}
	if l := w.await("that a file is gone", is("session")); l.Session != "claude/-home-me-shop/s0" || l.Lines != 0 || l.Events != 1 {
		t.Errorf("got %+v", l)
	}
	w.stop()
	if out := output(t, nil, store, "tally", "log", "claude/-home-me-shop/s0", "-o", "jsonl"); !strings.Contains(out, `"sourceGone":true`) {
		t.Error("the log does not report the removed file")
	}
	files.mustHold(store)
	left, err := filepath.Glob(filepath.Join(store+"-home", ".local", "state", "tally", "kick-*"))
	if len(left) > 0 || err != nil {
		t.Errorf("got files left %v (%v)", left, err)
	}
}

// A watch waits for a folder that does not exist yet: that of a named agent, and all others if no agent's folder
// exists.
func TestWatchWaits(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"named": {"claude"}, "nothing": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := filepath.Join(t.TempDir(), "store")
			w := mustWatch(t, store, args...)
			w.await("that there is no folder yet", func(l told) bool { return l.Event == "watching" && l.Missing })
			newTranscripts(t, store, 1).grow(0, 2)
			if l := w.await("a session", is("session")); l.Session != "claude/-home-me-shop/s0" || l.Lines != 2 {
				t.Errorf("got %+v", l)
			}
			w.stop()
		})
	}
}

// A watch that is killed at any moment loses no line and stores none twice, also if its state is lost, or a line was
// torn.
func TestKillWatch(t *testing.T) {
	t.Run("A13 killed at random moments, state lost", func(t *testing.T) {
		testkit.Long(t)
		t.Parallel()
		kills := 12
		switch {
		case testkit.Soak():
			kills = 200
		case !testkit.Full():
			kills = 2
		}
		store := filepath.Join(t.TempDir(), "store")
		files := newTranscripts(t, store, 5)
		for i := range files.count {
			files.grow(i, 100)
		}
		stop := files.growUntil(5 * time.Millisecond)
		for i := range kills {
			w := mustWatch(t, store)
			w.lines(1 + testkit.Random(t).IntN(100))
			w.kill()
			if i%4 == 3 {
				if err := os.RemoveAll(filepath.Join(store+"-home", ".local", "state")); err != nil {
					t.Fatal(err)
				}
			}
		}
		stop()
		files.mustHold(store)
	})
}

// If the owner of the store dies under a watch, again and again, the watch finds the next owner or becomes it. No line
// is lost or stored twice.
func TestKillOwnerUnderWatch(t *testing.T) {
	t.Run("A13 the owner of the store killed", func(t *testing.T) {
		testkit.Long(t)
		testkit.OnlyFull(t, "TestKillWatch kills a watch that owns the store")
		t.Parallel()
		kills := 3
		if testkit.Soak() {
			kills = 30
		}
		store := filepath.Join(t.TempDir(), "store")
		files := newTranscripts(t, store, 3)
		files.grow(0, 1)
		owner := mustServe(t, t.Context(), store)
		w := mustWatch(t, store)
		w.lines(1)
		stop := files.growUntil(5 * time.Millisecond)
		for i := range kills {
			w.lines(1 + testkit.Random(t).IntN(100))
			owner.kill()
			if i%2 == 0 {
				w.lines(200) // the watch owns the store now, or the next server does
			}
			owner = mustServe(t, t.Context(), store)
		}
		w.lines(100)
		stop()
		w.stop()
		owner.kill()
		files.mustHold(store)
	})
}

// Of two watches one waits, and takes over when the other is killed.
func TestSpareWatch(t *testing.T) {
	t.Run("A13 two at once, one of them killed", func(t *testing.T) {
		testkit.Long(t)
		t.Parallel()
		store := filepath.Join(t.TempDir(), "store")
		files := newTranscripts(t, store, 1)
		files.grow(0, 10)
		first := mustWatch(t, store)
		first.lines(10)
		second := mustWatch(t, store)
		second.await("that it waits", is("spare"))
		files.grow(0, 10)
		first.lines(10)
		select {
		case l := <-second.said:
			t.Errorf("the second watch: got %+v", l)
		default:
		}
		first.kill()
		files.grow(0, 10)
		second.lines(10)
		second.stop()
		files.mustHold(store)
	})
}

// A hook ends soon without an answer, for any input. It prints nothing, and its exit code is 0. BenchmarkHook measures
// its running time.
func TestHook(t *testing.T) {
	t.Run("A13 a hook, whatever it is given and whoever does not answer", func(t *testing.T) {
		t.Parallel()
		store := filepath.Join(t.TempDir(), "store")
		files := newTranscripts(t, store, 1)
		files.grow(0, 1)
		w := mustWatch(t, store)
		w.lines(1)
		whole := fmt.Sprintf(`{"session_id":"s0","transcript_path":%q,"tool_response":"%s"}`, files.path(0), strings.Repeat("x", 10<<20))
		run := func(what, in string, isOpen bool) {
			t.Helper()
			c := command(t.Context(), store, "tally", "hook", "claude")
			c.Env = agentEnv(c.Env)
			stdin, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			c.Stdout, c.Stderr = &said, &said
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			go func() {
				_, _ = stdin.Write([]byte(in)) // the hook may not read it all
				if !isOpen {
					stdin.Close()
				}
			}()
			time.AfterFunc(within, func() { c.Process.Kill() })
			state, err := c.Process.Wait()
			stdin.Close()
			c.Wait()
			if err != nil || !state.Success() || said.Len() > 0 {
				t.Errorf("%s: got %v, %v, output %q", what, state, err, said.String())
			}
		}
		all := func(when string) {
			t.Helper()
			run(when+": whole", whole[:200]+`"}`, false)
			run(when+": 10 MB", whole, false)
			run(when+": broken", whole[:50], false)
			run(when+": nothing", "", false)
			run(when+": never closed", whole[:200], true)
			run(when+": no JSON", strings.Repeat("[", 1<<16), false)
		}
		all("a watch runs")
		if err := w.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		for range 400 { // more than a socket's buffer holds
			run("a watch that stands still", whole[:200], false)
			if !testkit.Full() {
				break
			}
		}
		all("a watch that stands still")
		if err := w.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		for range w.said {
		}
		w.cmd.Wait()
		all("a watch that was killed")
	})
}
