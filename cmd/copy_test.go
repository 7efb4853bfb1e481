package cmd_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// copying prepares a run of copy.
func copying(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	home := t.TempDir()
	c := exec.CommandContext(ctx, filepath.Join(bin, "tally"), append([]string{"copy"}, args...)...)
	c.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
	return c
}

// mustCopy runs a copy that must succeed, and returns its output.
func mustCopy(t *testing.T, args ...string) string {
	t.Helper()
	out, err := copying(t.Context(), t, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("copy %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// A copy that is killed at any moment goes on, and has the same log at the end.
func TestKillCopy(t *testing.T) {
	testkit.OnlyFull(t, "TestCopy of package storecopy interrupts copies")
	t.Parallel()
	t.Run("X-24 kills", func(t *testing.T) {
		kills, each := 3, 300
		if testkit.Soak() {
			kills, each = 50, 2000
		}
		dir := t.TempDir()
		from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
		text, _ := input(5, each)
		output(t, strings.NewReader(text), from, "tally", "append")
		output(t, nil, from, "tally", "rewind", "s0", "--to", "#3", "-y")
		began := time.Now()
		mustCopy(t, from, filepath.Join(dir, "whole"))
		whole := time.Since(began)
		killed := 0
		for range kills {
			c := copying(t.Context(), t, from, to)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(testkit.Random(t).Int64N(int64(whole))))
			_ = c.Process.Kill() // or it has ended
			if c.Wait() != nil {
				killed++
			}
		}
		mustCopy(t, from, to)
		t.Logf("killed %d of %d copies", killed, kills)
		want, have := output(t, nil, from, "tally", "log", "--all-sessions", "-o", "jsonl"), output(t, nil, to, "tally", "log", "--all-sessions", "-o", "jsonl")
		if want != have {
			t.Errorf("the logs differ:\n%.500s\n%.500s", want, have)
		}
		output(t, nil, to, "tally", "verify")
	})
}

// A copy follows producers. Then the store is moved: nothing is missing, and the old place names the new one.
func TestFollowAndMove(t *testing.T) {
	testkit.OnlyFull(t, "TestFollow of package storecopy follows, and the script X-27-X-28-copy moves a store")
	t.Parallel()
	t.Run("X-29 16 producers, then a move", func(t *testing.T) {
		lasting := 2 * time.Second
		if testkit.Soak() {
			lasting = time.Minute
		}
		dir := t.TempDir()
		from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
		serving := owner(t, from)
		at, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: from})
		if err != nil {
			t.Fatal(err)
		}
		follow := copying(t.Context(), t, from, to, "--follow")
		var said bytes.Buffer
		follow.Stdout, follow.Stderr = &said, &said
		if err := follow.Start(); err != nil {
			t.Fatal(err)
		}
		acked, stop := appendFrom(t, at.Log(), 16)
		time.Sleep(lasting)
		stop()
		if err := at.Close(); err != nil {
			t.Error(err)
		}
		if err := follow.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := follow.Wait(); err != nil {
			t.Fatalf("copy --follow: %v\n%s", err, said.String())
		}
		if err := serving.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = serving.Wait()
		began := time.Now()
		out := mustCopy(t, from, to, "--move")
		t.Logf("%d events; moved in %v: %s", len(acked), time.Since(began), out)
		srv, err := embedded.Start(t.Context(), embedded.ServerOptions{Dir: to, Private: true})
		if err != nil {
			t.Fatal(err)
		}
		defer srv.Close()
		for id, offset := range acked {
			if rec, err := srv.Log().Record(t.Context(), offset); err != nil || rec.ID != id {
				t.Fatalf("%v: got %s, want %s: %v", offset, rec.ID, id, err)
			}
		}
		if a := ask(t, `{"role":"user","content":"x"}`, from, "append", "s"); a.code != 7 || !strings.Contains(a.err, "the store was moved to "+to) {
			t.Errorf("append to the old place: %v", a)
		}
	})
}

// appendFrom starts producers on a log until they are stopped, and returns the acknowledged events.
func appendFrom(t *testing.T, l *log.Log, n int) (acked map[string]events.Offset, stop func()) {
	type ack struct {
		id string
		at events.Offset
	}
	ctx, cancel := context.WithCancel(t.Context())
	acked = make(map[string]events.Offset)
	acks, over := make(chan ack, 1024), make(chan struct{})
	ended := make(chan struct{}, n)
	for p := range n {
		go func() {
			defer func() { ended <- struct{}{} }()
			for i := 0; ctx.Err() == nil; i++ {
				e := events.Event{ID: fmt.Sprint(p, "-", i), Source: "urn:test:copy", Type: "x.y", Data: []byte(`"` + strings.Repeat("x", 300) + `"`)}
				a, err := l.Append(t.Context(), events.Session("", fmt.Sprint("p", p)), log.Any, e)
				if err != nil {
					t.Error(err)
					return
				}
				acks <- ack{e.ID, a.Last}
			}
		}()
	}
	go func() {
		defer close(over)
		for a := range acks {
			acked[a.id] = a.at
		}
	}()
	return acked, func() {
		cancel()
		for range n {
			<-ended
		}
		close(acks)
		<-over
	}
}
