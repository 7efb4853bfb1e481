package ingest

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// follow follows the folder until the test ends.
func (r *rig) follow(t *testing.T, change func(*Options)) *Ingester {
	t.Helper()
	if err := os.MkdirAll(r.dir, 0o700); err != nil { // otherwise it is looked for only every few seconds
		t.Fatal(err)
	}
	l := r.open()
	o := r.options(l)
	o.Once = false
	change(&o)
	in, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { in.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		run.Wait()
		if err := errors.Join(in.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	return in
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 3000 {
		if is() {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatalf("timeout: got no %s", what)
}

// waits returns the number of bytes that wait for a cwd.
func (in *Ingester) waits() int64 { return in.Status().undecided }

// Lines without a folder wait for one that names it. If none arrives for long enough, they go to the default namespace.
// A message does not wait.
func TestNamespaceLive(t *testing.T) {
	r := newRig(t, t.TempDir(), ofClaude)
	r.namespaces = byFolder
	now := time.Now()
	var mu sync.Mutex
	in := r.follow(t, func(o *Options) {
		o.now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		}
	})
	lines := func(n int) func() bool { return func() bool { return in.Status().Lines == n } }
	r.write("-p/s.jsonl", snapshot)
	await(t, "a line that waits", func() bool { return in.waits() == int64(len(snapshot)) })
	r.grow("-p/s.jsonl", snapshot)
	await(t, "another one", func() bool { return in.waits() == 2*int64(len(snapshot)) })
	r.mustBeIn("without a folder", map[string]string{})
	r.grow("-p/s.jsonl", promptsIn("/shop", 0, 1))
	await(t, "all lines", lines(3))
	r.mustBeIn("with a folder", map[string]string{"claude/-p/s": "shop"})

	r.write("-p/t.jsonl", snapshot)
	await(t, "a line that waits", func() bool { return in.waits() == int64(len(snapshot)) })
	r.write("-p/t/subagents/agent-a.jsonl", sidechain("/mill", 0, 1)) // the subagent's line names the folder first
	await(t, "the lines of a session", lines(5))
	r.write("-p/u.jsonl", prompts(0, 1)) // no folder, but a message
	await(t, "a message", lines(6))

	r.write("-p/v.jsonl", snapshot)
	await(t, "a line that waits", func() bool { return in.waits() == int64(len(snapshot)) })
	mu.Lock()
	now = now.Add(time.Minute + time.Second)
	mu.Unlock()
	r.grow("-p/u.jsonl", prompts(1, 1)) // triggers a look at the clock
	await(t, "what waited for long enough", lines(8))
	r.grow("-p/v.jsonl", promptsIn("/shop", 0, 1))
	await(t, "a line behind it", lines(9))
	r.mustBeIn("at the end", map[string]string{"claude/-p/s": "shop", "claude/-p/t": "mill", "claude/-p/u": "default", "claude/-p/v": "default"})
	if got := r.of("mill").given()["-p/t.jsonl"]; got != snapshot || in.waits() != 0 {
		t.Errorf("the restored files are %q; %d bytes wait", got, in.waits())
	}
}

// Gemini CLI may never name its folder and does not wait. Lines above the memory bound do not wait either.
func TestNamespaceLiveBounds(t *testing.T) {
	r := newRig(t, t.TempDir(), ofGemini)
	r.namespaces = byFolder
	in := r.follow(t, func(o *Options) { o.Quiet = time.Hour })
	r.write("pier/chats/session-2026-01-02T03-04-5a5a5a5a.jsonl", `{"sessionId":"5a5a5a5a-0000-4000-8000-000000000000","projectHash":"00","startTime":"2026-01-02T03:04:05.006Z"}`+"\n"+
		`{"id":"a","timestamp":"2026-01-02T03:04:06.006Z","type":"user","content":[{"text":"x"}]}`+"\n")
	await(t, "a message of Gemini CLI's", func() bool { return in.Status().Lines == 2 })

	c := newRig(t, t.TempDir(), ofClaude)
	c.namespaces = byFolder
	in = c.follow(t, func(o *Options) { o.Quiet = time.Hour })
	c.write("-p/s.jsonl", strings.Repeat(snapshot, 2*fileLinesOfTail))
	await(t, "more lines than may wait", func() bool { return in.Status().Lines == 2*fileLinesOfTail })
	c.mustBeIn("too many lines", map[string]string{"claude/-p/s": "default"})
}

// fileLinesOfTail is the number of a file's lines that are delivered before an acknowledgement.
const fileLinesOfTail = 512

// Waiting lines are not acknowledged: after a crash they are delivered again.
func TestNamespaceWaitsAgain(t *testing.T) {
	r := newRig(t, t.TempDir(), ofClaude)
	r.namespaces = byFolder
	t.Run("killed", func(t *testing.T) {
		r.write("-p/s.jsonl", snapshot)
		in := r.follow(t, func(o *Options) { o.Quiet = time.Hour })
		await(t, "a line that waits", func() bool { return in.waits() > 0 })
	})
	r.grow("-p/s.jsonl", promptsIn("/shop", 0, 1))
	r.run()
	r.mustBeIn("after it", map[string]string{"claude/-p/s": "shop"})
	r.of("shop").mustGive("after it", r.files())
}
