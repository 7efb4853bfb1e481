//go:build unix

package cmd_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
)

// doneLine is a line of queue work or inbox run.
type doneLine struct {
	ID, Outcome  string
	Attempt      int
	Fence, Stale uint64
}

// itemLine is an item as queue ls prints it.
type itemLine struct {
	ID, State, Worker string
	Attempts          int
	History           []struct {
		Attempt                int
		Worker, Outcome, Error string
		Result                 any
		Stale                  []struct {
			Outcome string
			Result  any
		}
	}
}

// doer is a process that runs a command for items or messages.
type doer struct {
	*exec.Cmd
	lines chan doneLine // lines as they arrive; closed at the end
	errw  *bytes.Buffer
}

// doing starts queue work or inbox run with JSON lines.
func doing(t *testing.T, store string, args ...string) *doer {
	t.Helper()
	verb, rest := args[0], args[1:]
	d := &doer{Cmd: command(t.Context(), store, "tally"), lines: make(chan doneLine, 1000), errw: new(bytes.Buffer)}
	d.Args = slices.Concat([]string{d.Args[0], verb, "--store", store, "-o", "jsonl", "--log-level", "error"}, rest)
	d.Stderr = d.errw
	out, err := d.StdoutPipe()
	if err == nil {
		err = d.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.lines)
		for in := bufio.NewReader(out); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			for _, l := range jsonLines[doneLine](t, strings.NewReader(line)) {
				d.lines <- l
			}
		}
	}()
	t.Cleanup(func() { _ = d.Process.Kill() })
	return d
}

// runTo runs a verb with a command after -- to its end.
func runTo(t *testing.T, store, verb string, args ...string) {
	t.Helper()
	d := doing(t, store, append([]string{verb}, args...)...)
	for range d.lines {
	}
	if err := d.Wait(); err != nil {
		t.Fatalf("%s %v: %v\n%s", verb, args, err, d.errw)
	}
}

// next waits for the next line.
func (d *doer) next(t *testing.T) doneLine {
	t.Helper()
	select {
	case l, ok := <-d.lines:
		if !ok {
			t.Fatalf("the process has ended:\n%s", d.errw)
		}
		return l
	case <-time.After(within):
		t.Fatalf("timeout: no line:\n%s", d.errw)
		panic("unreachable")
	}
}

// end sends a signal, and returns the exit code.
func (d *doer) end(t *testing.T, sig syscall.Signal) int {
	t.Helper()
	if err := d.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	for range d.lines {
	}
	_ = d.Wait()
	return d.ProcessState.ExitCode()
}

func mustAppear(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("timeout: no file %s", path)
		}
	}
}

// enqueue adds an item to a queue.
func enqueue(t *testing.T, store, queue string, args ...string) {
	t.Helper()
	output(t, strings.NewReader("x\n"), store, "tally", append([]string{"queue", "add", queue, "--whole"}, args...)...)
}

func itemOf(t *testing.T, store, queue, id string) itemLine {
	t.Helper()
	list := jsonLines[itemLine](t, strings.NewReader(output(t, nil, store, "tally", "queue", "show", queue, id, "-o", "jsonl")))
	if len(list) != 1 {
		t.Fatalf("got %d items %s", len(list), id)
	}
	return list[0]
}

// waits returns a shell command that creates a file when it begins, and ends when another file exists: both begin with
// a path and end with the item's id. It also ends when their folder is removed.
func waits(path, then string) string {
	return fmt.Sprintf(`echo $$ > %[1]s.part.$TALLY_ITEM; mv %[1]s.part.$TALLY_ITEM %[1]s.begun.$TALLY_ITEM
		until test -e %[1]s.go.$TALLY_ITEM; do test -d %[3]s || exit 1; sleep 0.01; done; %[2]s`, path, then, filepath.Dir(path))
}

// D-18: if a worker is killed, another one gets its item when the lease is over, and the attempt counts. If a worker
// is interrupted, its item is released at once without counting an attempt, and its command is ended.
func TestKillWorker(t *testing.T) {
	testkit.OnlyFull(t, "TestKillAppend kills a process")
	t.Parallel()
	store, path := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "w")
	owner(t, store)
	output(t, nil, store, "tally", "queue", "add", "q", "--configure", "--lease", "2s")
	enqueue(t, store, "q", "--id", "killed")
	w := doing(t, store, "queue", "work", "q", "--worker", "first", "--", "sh", "-c", waits(path, "echo late"))
	mustAppear(t, path+".begun.killed")
	if item := itemOf(t, store, "q", "killed"); item.State != "claimed" || item.Worker != "first" {
		t.Errorf("during the work: got %+v", item)
	}
	w.end(t, syscall.SIGKILL)
	other := doing(t, store, "queue", "work", "q", "--worker", "second", "--", "sh", "-c", `test $TALLY_ITEM != killed || { echo done; exit; }; `+waits(path, "echo done"))
	if l := other.next(t); l.ID != "killed" || l.Outcome != "completed" || l.Attempt != 2 {
		t.Errorf("the second worker: got %+v", l)
	}
	if err := os.WriteFile(path+".go.killed", nil, 0o600); err != nil { // ends the first worker's command, which is still running
		t.Fatal(err)
	}
	item := itemOf(t, store, "q", "killed")
	if item.State != "done" || len(item.History) != 2 || item.History[0].Outcome != "lost" || item.History[1].Result != "done" {
		t.Errorf("got the item %+v", item)
	}

	enqueue(t, store, "q", "--id", "interrupted")
	mustAppear(t, path+".begun.interrupted")
	child, err := os.ReadFile(path + ".begun.interrupted")
	if err != nil {
		t.Fatal(err)
	}
	if code := other.end(t, syscall.SIGINT); code != 130 {
		t.Errorf("an interrupted worker: got exit code %d:\n%s", code, other.errw)
	}
	if item := itemOf(t, store, "q", "interrupted"); item.State != "ready" || item.Attempts != 0 || item.History[0].Outcome != "released" {
		t.Errorf("the item of an interrupted worker: got %+v", item)
	}
	var pid int
	if _, err := fmt.Sscan(string(child), &pid); err != nil || syscall.Kill(pid, 0) == nil {
		t.Errorf("its command %d still runs, %v", pid, err)
	}
}

// D-59: a worker that was stopped for longer than its lease is refused. Its result is kept as stale, and the item has
// the other worker's result.
func TestKillStoppedWorker(t *testing.T) {
	testkit.OnlyFull(t, "TestKillAppend kills a process")
	t.Parallel()
	trials := 3
	if testkit.Soak() {
		trials = 1000
	}
	store, path := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "w")
	owner(t, store)
	output(t, nil, store, "tally", "queue", "add", "q", "--configure", "--lease", "300ms")
	slow := doing(t, store, "queue", "work", "q", "--worker", "slow", "--", "sh", "-c", waits(path, "echo slow"))
	for n := range trials {
		id := fmt.Sprint("i", n)
		enqueue(t, store, "q", "--id", id)
		mustAppear(t, path+".begun."+id)
		if err := slow.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".go."+id, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		runTo(t, store, "queue", "work", "q", "--once", "--worker", "fast", "--", "echo", "fast")
		if err := slow.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if l := slow.next(t); l.ID != id || l.Outcome != "stale" || l.Stale == 0 {
			t.Fatalf("trial %d: the slow worker: got %+v", n, l)
		}
		item := itemOf(t, store, "q", id)
		if item.State != "done" || len(item.History) != 2 || item.History[1].Worker != "fast" || item.History[1].Result != "fast" ||
			len(item.History[0].Stale) != 1 || item.History[0].Stale[0].Result != "slow" {
			t.Fatalf("trial %d: got the item %+v", n, item)
		}
	}
	slow.end(t, syscall.SIGINT)
}

// D-17: if the owner of the store is killed under workers, each item is done once, no worker ends, and messages are
// delivered in order without gaps.
func TestKillOwnerUnderWork(t *testing.T) {
	testkit.OnlyFull(t, "TestKillAppend kills a process")
	t.Parallel()
	kills, each := 3, 40
	if testkit.Soak() {
		kills, each = 30, 400
	}
	ctx, cancel := context.WithTimeout(t.Context(), within*2)
	defer cancel()
	store, path := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "ran")
	first := mustServe(t, ctx, store)
	output(t, nil, store, "tally", "queue", "add", "q", "--configure", "--lease", "2s", "--max-attempts", "100")
	runTo(t, store, "inbox", "run", "ci", "--open", "--until-empty", "--", "true")
	for n := range each {
		if n%4 == 0 {
			output(t, strings.NewReader(fmt.Sprint(n)), store, "tally", "inbox", "send", "ci")
		}
	}
	output(t, strings.NewReader(strings.Repeat("x\n", each)), store, "tally", "queue", "add", "q", "--id", "i")
	var doers []*doer
	for n := range 3 {
		doers = append(doers, doing(t, store, "queue", "work", "q", "--jobs", "2", "--worker", fmt.Sprint("w", n), "--", "sh", "-c", "sleep 0.05"))
	}
	attends := doing(t, store, "inbox", "run", "ci", "--", "sh", "-c", "sleep 0.05; cat >> "+path+"; echo >> "+path)
	owner := first
	var killing sync.WaitGroup
	killing.Go(func() {
		for k := range kills {
			time.Sleep(time.Duration(150+50*k) * time.Millisecond)
			owner.kill()
			owner = mustServe(t, ctx, store)
		}
	})
	completed := make(map[string]int)
	for len(completed) < each {
		for _, d := range doers {
			select {
			case l, ok := <-d.lines:
				if !ok {
					t.Fatalf("a worker has ended:\n%s", d.errw)
				}
				if l.Outcome == "completed" {
					completed[l.ID]++
				} else if l.Outcome != "stale" && l.Outcome != "lost" {
					t.Errorf("got the item %+v", l)
				}
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("got %d of %d items done:\n%s", len(completed), each, doers[0].errw)
			}
		}
	}
	for id, n := range completed {
		if n != 1 {
			t.Errorf("%s: got %d completions", id, n)
		}
	}
	for seen := 0; seen < (each+3)/4; {
		if l := attends.next(t); l.Outcome == "seen" {
			seen++
		}
	}
	killing.Wait()
	for _, d := range append(doers, attends) {
		if code := d.end(t, syscall.SIGTERM); code != 143 {
			t.Errorf("a worker: got exit code %d:\n%s", code, d.errw)
		}
	}
	mustBeInOrder(t, path, each)
	owner.kill()
	if list := jsonLines[itemLine](t, strings.NewReader(output(t, nil, store, "tally", "queue", "ls", "q", "--state", "done", "-o", "jsonl"))); len(list) != each {
		t.Errorf("got %d items done, want %d", len(list), each)
	}
	output(t, nil, store, "tally", "verify")
}

// If the owner of the store is killed under senders and producers, each message and each item is stored once, under
// the printed id, and no command fails.
func TestKillOwnerUnderSends(t *testing.T) {
	testkit.OnlyFull(t, "TestKillAppend kills a process")
	t.Parallel()
	kills, messages, items := 3, 60, 120
	if testkit.Soak() {
		kills, messages, items = 30, 1000, 4000
	}
	ctx, cancel := context.WithTimeout(t.Context(), within*2)
	defer cancel()
	store := filepath.Join(t.TempDir(), "store")
	owner := mustServe(t, ctx, store)
	runTo(t, store, "inbox", "run", "ci", "--open", "--until-empty", "--", "true")
	said := func(stdin io.Reader, noun, verb, to string) (ids []string) {
		c := command(ctx, store, "tally", noun, verb, to, "-o", "jsonl", "--log-level", "error")
		var out, errw bytes.Buffer
		c.Stdin, c.Stdout, c.Stderr = stdin, &out, &errw
		if err := c.Run(); err != nil {
			t.Errorf("%s %s: %v\n%s", noun, verb, err, errw.String())
		}
		for _, l := range jsonLines[itemLine](t, &out) {
			ids = append(ids, l.ID)
		}
		return ids
	}
	var sent, put []string
	var all sync.WaitGroup
	var mu sync.Mutex // guards sent
	progress := make(chan struct{}, messages)
	for w := range 3 {
		all.Go(func() {
			for n := w; n < messages; n += 3 {
				ids := said(strings.NewReader(fmt.Sprint(n)), "inbox", "send", "ci")
				mu.Lock()
				sent = append(sent, ids...)
				mu.Unlock()
				progress <- struct{}{}
			}
		})
	}
	in, lines := io.Pipe()
	all.Go(func() {
		defer in.Close()
		put = said(in, "queue", "add", "q")
	})
	for n := range messages {
		<-progress
		fmt.Fprint(lines, strings.Repeat("x\n", items/messages))
		if n%(messages/kills) == 0 {
			owner.kill()
			owner = mustServe(t, ctx, store)
		}
	}
	lines.Close()
	all.Wait()
	owner.kill()
	listed := func(args ...string) (ids []string) {
		for _, l := range jsonLines[itemLine](t, strings.NewReader(output(t, nil, store, "tally", append(args, "-o", "jsonl")...))) {
			ids = append(ids, l.ID)
		}
		return ids
	}
	if got := listed("queue", "ls", "q"); len(put) != items || !slices.Equal(got, put) {
		t.Errorf("got %d items, want %d; %d were printed", len(got), items, len(put))
	}
	got := listed("inbox", "ls", "ci", "--limit", fmt.Sprint(2*messages))
	slices.Sort(got)
	if slices.Sort(sent); len(sent) != messages || !slices.Equal(got, sent) {
		t.Errorf("got %d messages, want %d; %d were printed", len(got), messages, len(sent))
	}
	output(t, nil, store, "tally", "verify")
}

// mustBeInOrder expects every fourth number in a file, in order. A number twice in a row is a second delivery.
func mustBeInOrder(t *testing.T, path string, upto int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := slices.Compact(strings.Fields(string(data)))
	var want []string
	for n := 0; n < upto; n += 4 {
		want = append(want, fmt.Sprint(n))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got messages %v, want %v", got, want)
	}
}

// BenchmarkWork measures the time from an acknowledged queue add to the start of a process, with a waiting worker on
// the same machine.
func BenchmarkWork(b *testing.B) {
	dir := b.TempDir()
	store, fifo := filepath.Join(dir, "store"), filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	begun, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer begun.Close()
	w := command(ctx, store, "tally")
	w.Args = []string{w.Args[0], "queue", "work", "--store", store, "q", "--", "sh", "-c", "echo x > " + fifo}
	put := command(ctx, store, "tally", "queue", "add", "q", "-o", "jsonl")
	in, err := put.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := put.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []*exec.Cmd{w, put} {
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
	}
	acks, one := bufio.NewReader(out), make([]byte, 2)
	dispatch := func() time.Duration {
		if _, err := io.WriteString(in, "item\n"); err != nil {
			b.Fatal(err)
		}
		if _, err := acks.ReadString('\n'); err != nil {
			b.Fatal(err)
		}
		acked := time.Now()
		if _, err := io.ReadFull(begun, one); err != nil {
			b.Fatal(err)
		}
		return time.Since(acked)
	}
	for range 5 {
		dispatch()
	}
	var took []time.Duration
	for b.Loop() {
		took = append(took, dispatch())
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
