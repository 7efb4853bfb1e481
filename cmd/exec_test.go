//go:build unix

package cmd_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents/stream"
	"github.com/tallylog/tally/internal/ingest"
	"github.com/tallylog/tally/internal/testkit"
)

// executed runs tally exec with a command, without a terminal.
func executed(t *testing.T, store string, args ...string) (c *exec.Cmd, errw *bytes.Buffer) {
	t.Helper()
	c = command(t.Context(), store, "tally", "exec")
	c.Args = append(c.Args, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.Env = append(c.Env, "XDG_STATE_HOME="+store+"-state")
	errw = new(bytes.Buffer)
	c.Stderr = errw
	return c, errw
}

// recordings returns the recorded outputs in the store, without the recorder's own lines.
func recordings(t *testing.T, store string) []string {
	t.Helper()
	st, err := embedded.Open(t.Context(), embedded.Options{Backend: "local", Store: store})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var list []string
	for info, err := range st.Subjects(t.Context(), events.KindSession) {
		if err != nil {
			t.Fatal(err)
		}
		files, err := ingest.Files(t.Context(), st.Log, stream.Agent{}, info.Subject)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			var b bytes.Buffer
			if err := f.Write(t.Context(), &b); err != nil || f.Missing != 0 {
				t.Fatalf("%s: %v, %d bytes are missing", f.Name, err, f.Missing)
			}
			_, rest, _ := strings.Cut(b.String(), "\n")
			rest = strings.TrimSuffix(rest, "\n")
			cut := strings.LastIndexByte(rest, '\n') + 1
			end, printed := rest[cut:], rest[:cut]
			if !stream.IsEnd([]byte(end)) {
				t.Fatalf("%s ends with %.200q", f.Name, end)
			}
			if strings.Contains(end, `"torn":true`) {
				printed = strings.TrimSuffix(printed, "\n")
			}
			list = append(list, printed)
		}
	}
	return list
}

// left lists the recordings that are not in a store.
func left(t *testing.T, store string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(store+"-state", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasSuffix(path, ".lock") {
			if info, err := d.Info(); err == nil && info.Size() > 0 {
				list = append(list, path)
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// The output of a command is passed on and recorded byte for byte: lines of any length, a line without an end, bytes
// that are not text.
func TestExecKeepsBytes(t *testing.T) {
	noise := make([]byte, 30_000)
	for i := range noise {
		noise[i] = "\x00\n\r\xff\x1b{}\" a"[testkit.Random(t).IntN(10)]
	}
	for name, printed := range map[string][]byte{
		"noise": noise, "nothing": {}, "no end": []byte("a\nb"), "ends": []byte("\n\r\n\n \n"), "NUL": []byte("a\x00b\n\x00"),
		"a long line": bytes.Repeat([]byte("0123456789"), 1<<18), "a line that is too long": append(bytes.Repeat([]byte("0123456789\xff"), 1600<<10), "\nx\n"...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "noise" && name != "a long line" {
				testkit.OnlyFull(t, "TestLongLine reads lines that are too long, and other subtests keep bytes")
			}
			store := filepath.Join(t.TempDir(), "store")
			c, errw := executed(t, store, "--linger", "1m", "--", "cat")
			var out bytes.Buffer
			c.Stdin, c.Stdout = bytes.NewReader(printed), &out
			if err := c.Run(); err != nil {
				t.Fatalf("%v\n%s", err, errw)
			}
			if !bytes.Equal(out.Bytes(), printed) {
				t.Errorf("passed on: got %d bytes, want %d", out.Len(), len(printed))
			}
			if got := recordings(t, store); len(got) != 1 || got[0] != string(printed) {
				t.Errorf("want %d bytes, %x, got %d recorded, %x\n%s", len(printed), sha256.Sum256(printed), len(strings.Join(got, "")), sha256.Sum256([]byte(strings.Join(got, ""))), errw)
			}
			if list := left(t, store); len(list) > 0 {
				t.Errorf("got recordings left %q", list)
			}
		})
	}
}

// counting counts signals. It prints outside of its trap: dash 0.5.12 loses the output of a trap that exits while it
// interrupts itself (3 of 18,000 on a loaded machine, without tally).
const counting = `n=0; m=0; trap 'n=$((n+1))' %d; echo ready
while test $m != 3; do sleep 0.01; while test $m != $n; do m=$((m+1)); echo got $m; done; done; exit 9`

// Each signal to exec reaches the command, as often as it arrives. The exit code of exec is the command's.
func TestExecPassesSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1} {
		if signal.Ignored(sig) {
			continue // as under nohup: no shell can trap the signal then
		}
		store := filepath.Join(t.TempDir(), "store")
		c, errw := executed(t, store, "--", "sh", "-c", fmt.Sprintf(counting, int(sig)))
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(out)
		for _, want := range []string{"ready", "got 1", "got 2", "got 3"} {
			if line, err := in.ReadString('\n'); err != nil || line != want+"\n" {
				c.Process.Kill() // the code shows whether it had ended
				t.Fatalf("%v: got %q, %v, want %q, exit code %d\n%s", sig, line, err, want, codeOf(t, c.Wait()), errw)
			}
			if want != "got 3" {
				c.Process.Signal(sig)
			}
		}
		if code := codeOf(t, c.Wait()); code != 9 {
			t.Errorf("%v: got exit code %d\n%s", sig, code, errw)
		}
		if got := recordings(t, store); len(got) != 1 || got[0] != "ready\ngot 1\ngot 2\ngot 3\n" {
			t.Errorf("%v: got recorded %q", sig, got)
		}
	}
}

// Processes that a command leaves do not block exec for ever. A reader that closes the pipe ends the command as it
// would without exec.
func TestExecEnds(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	c, errw := executed(t, store, "--linger", "200ms", "--", "sh", "-c", "sleep 60 2>&- & echo one")
	began := time.Now()
	if out, err := c.Output(); err != nil || string(out) != "one\n" || time.Since(began) > 30*time.Second {
		t.Errorf("got %q, %v, after %v\n%s", out, err, time.Since(began), errw)
	}

	c, errw = executed(t, store, "--linger", "200ms", "--", "yes")
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if code := codeOf(t, c.Wait()); code != 128+int(syscall.SIGPIPE) {
		t.Errorf("got exit code %d\n%s", code, errw)
	}
}

// While the owner of the store is stopped, no command has to wait. Its output reaches the store later, once.
func TestExecWithoutOwner(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	output(t, strings.NewReader(`{"role":"user","content":"hello"}`), store, "tally", "append", "s")
	owner := owner(t, store)
	if err := owner.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c, errw := executed(t, store, "--linger", "100ms", "--", "sh", "-c", "echo one; echo two")
	out, err := c.Output()
	if err != nil || string(out) != "one\ntwo\n" || !strings.Contains(errw.String(), "not in the store yet") {
		t.Errorf("got %q, %v\n%s", out, err, errw)
	}
	if list := left(t, store); len(list) != 1 {
		t.Errorf("got recordings left %q", list)
	}
	if err := owner.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c, errw = executed(t, store, "--linger", "1m", "--", "echo", "three")
	if _, err := c.Output(); err != nil || !strings.Contains(errw.String(), "took up 1 recording") {
		t.Errorf("%v\n%s", err, errw)
	}
	if got := recordings(t, store); strings.Join(got, "|") != "three\n|one\ntwo\n" && strings.Join(got, "|") != "one\ntwo\n|three\n" {
		t.Errorf("got recorded %q", got)
	}
	if list := left(t, store); len(list) > 0 {
		t.Errorf("got recordings left %q", list)
	}
}

// A killed recorder loses no line that it had written down. The next recorder stores each of them once, whether the
// store had it before or not.
func TestExecIsKilled(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	kills := testkit.Times(4)
	for i := range kills {
		c, errw := executed(t, store, "--", "sh", "-c", fmt.Sprintf(`i=0; while :; do echo run %d line $i; i=$((i+1)); done`, i))
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(out)
		for range 200 + testkit.Random(t).IntN(2_000) {
			if _, err := in.ReadString('\n'); err != nil {
				t.Fatalf("%v\n%s", err, errw)
			}
		}
		for giveUp := time.Now().Add(within); len(left(t, store)) <= i; time.Sleep(time.Millisecond) {
			if time.Now().After(giveUp) {
				t.Fatalf("got nothing written down\n%s", errw)
			}
		}
		c.Process.Kill()
		c.Wait()
	}
	c, errw := executed(t, store, "--linger", "1m", "--", "echo", "last")
	if _, err := c.Output(); err != nil {
		t.Fatalf("%v\n%s", err, errw)
	}
	got := recordings(t, store)
	if len(got) != kills+1 {
		t.Fatalf("got %d recordings, want %d\n%s", len(got), kills+1, errw)
	}
	for _, printed := range got {
		if printed == "last\n" {
			continue
		}
		lines := strings.SplitAfter(strings.TrimSuffix(printed, "\n"), "\n")
		run := strings.Fields(lines[0])[1]
		for i, line := range lines[:len(lines)-1] {
			if want := fmt.Sprintf("run %s line %d\n", run, i); line != want {
				t.Fatalf("line %d: got %q, want %q", i, line, want)
			}
		}
	}
	if list := left(t, store); len(list) > 0 {
		t.Errorf("got recordings left %q", list)
	}
}

// On a full disk the command continues, and the lines written before are recorded.
func TestExecOnFullDisk(t *testing.T) {
	testkit.Needs(t, os.Getuid() == 0, "root, to mount a file system")
	root := t.TempDir()
	image := filepath.Join(root, "image")
	mustRun(t, "truncate", "-s", "2M", image)
	mustRun(t, "mkfs.ext4", "-q", "-F", "-m", "0", image)
	disk, unmount := mount(t, image)
	defer unmount()
	store := filepath.Join(root, "store")
	c, errw := executed(t, store, "--linger", "1m", "--", "sh", "-c", "yes $(printf %01000d 0) | head -n 5000")
	c.Env = append(c.Env, "XDG_STATE_HOME="+disk)
	out, err := c.Output()
	if err != nil || bytes.Count(out, []byte("\n")) != 5000 || !strings.Contains(errw.String(), "not all was recorded: ") {
		t.Errorf("got %d bytes, %v\n%s", len(out), err, errw)
	}
	got := recordings(t, store)
	if len(got) != 1 || len(got[0]) < 100_000 || !bytes.HasPrefix(out, []byte(got[0])) {
		t.Errorf("got %d recorded lines of %d bytes", len(got), len(strings.Join(got, "")))
	}
}
