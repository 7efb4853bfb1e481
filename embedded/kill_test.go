package embedded_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
)

// These variables tell the test binary, when a test runs it again, to own a directory with segments of some bytes, and
// to append for ever, or a number of bytes.
const (
	childDir     = "TALLY_TEST_CHILD_DIR"
	childSegment = "TALLY_TEST_CHILD_SEGMENT"
	childFill    = "TALLY_TEST_CHILD_FILL"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if f := os.Getenv(childForget); f != "" {
			forgetChild(dir, f)
		}
		child(dir)
	}
	if conf := os.Getenv(childNode); conf != "" {
		serveNode(conf)
	}
	testkit.CollectLess()
	done := storetest.Alone()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) { done(); os.Exit(code) }))
}

// child runs until it is killed.
func child(dir string) {
	segment, err := strconv.ParseUint(os.Getenv(childSegment), 10, 64)
	exitOn(err)
	fill, err := strconv.ParseInt(os.Getenv(childFill), 10, 64)
	exitOn(err)
	srv, err := embedded.Start(context.Background(), embedded.ServerOptions{Dir: dir, SegmentBytes: segment})
	exitOn(err)
	if fill > 0 {
		appendMuch(srv, fill)
	}
	appendForever(srv)
}

// exitOn ends the child if there is an error.
func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// appendMuch appends a number of bytes as fast as it can, prints a line, and waits.
func appendMuch(srv *embedded.Server, bytes int64) {
	text := strings.Repeat("x", 4000)
	for i := int64(0); i < bytes; {
		evs := make([]events.Event, 100)
		for n := range evs {
			evs[n] = turn("", text)
			i += int64(len(text))
		}
		_, err := srv.Log().Append(context.Background(), events.Session("", fmt.Sprint(i%97)), log.Any, evs...)
		exitOn(err)
	}
	head, err := srv.Log().Head(context.Background())
	exitOn(err)
	fmt.Println(uint64(head))
	select {}
}

// appendForever prints each acknowledged id until it is killed.
func appendForever(srv *embedded.Server) {
	round := strconv.FormatInt(time.Now().UnixNano(), 36)
	for i := 0; ; i++ {
		id, other := fmt.Sprint(round, ":", i), fmt.Sprint(round, "+", i)
		evs := []events.Event{turn(id, "x")}
		if i%5 == 0 {
			evs = append(evs, turn(other, "x"))
		}
		if _, err := srv.Log().Append(context.Background(), events.Session("", "s"), log.Any, evs...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for _, e := range evs {
			fmt.Println(e.ID)
		}
	}
}

// The owner is killed in the middle of appends, again and again, also while it begins segments. Every acknowledged
// event is stored.
func TestKilledOwner(t *testing.T) {
	testkit.Long(t)
	testkit.NotUnderRace(t) // a killed process reports no race
	t.Parallel()
	for name, o := range map[string]embedded.ServerOptions{
		"one segment":   {},
		"many segments": {SegmentBytes: 1 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			o.Dir = t.TempDir()
			var acked []string
			for round := range max(testkit.Times(4), 2) {
				acked = append(acked, runAndKill(t, o, 40+30*round)...)
			}
			checkKilled(t, o, acked)
		})
	}
}

// checkKilled checks that every acknowledged event is stored, in order and once, and every append is whole.
func checkKilled(t *testing.T, o embedded.ServerOptions, acked []string) {
	t.Helper()
	srv := mustStart(t, o)
	seen, next := make(map[string]int), 0
	batch := ""
	for i, id := range mustRead(t, srv.Log(), events.Range{Subject: events.Session("", "s")}) {
		if _, twice := seen[id]; twice {
			t.Fatalf("%s is stored twice", id)
		}
		seen[id] = i
		if next < len(acked) && acked[next] == id {
			next++
		}
		if batch != "" && id != batch {
			t.Fatalf("got %s after a partial append, want %s", id, batch)
		}
		batch = ""
		if round, n, ok := strings.Cut(id, ":"); ok {
			if i, _ := strconv.Atoi(n); i%5 == 0 {
				batch = round + "+" + n
			}
		}
	}
	if next != len(acked) || batch != "" {
		t.Fatalf("%d acknowledged events: got %d in order, the next one missing is %v; open: %q", len(acked), next, acked[next:min(next+1, len(acked))], batch)
	}
	if extra := len(seen) - len(acked); extra > 2*4 {
		t.Fatalf("got %d unacknowledged events, want at most two for each kill", extra)
	}
}

// runAndKill starts a process that appends, and kills it after n lines of output.
func runAndKill(t *testing.T, o embedded.ServerOptions, n int) (acked []string) {
	t.Helper()
	return runChild(t, o, 0, n)
}

func runChild(t *testing.T, o embedded.ServerOptions, fill int64, n int) (acked []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+o.Dir, childSegment+"="+strconv.FormatUint(o.SegmentBytes, 10), childFill+"="+strconv.FormatInt(fill, 10))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		acked = append(acked, lines.Text())
		if len(acked) == n {
			cmd.Process.Kill()
		}
	}
	cmd.Wait()
	if len(acked) < n {
		t.Fatalf("the owner exited after %d appends", len(acked))
	}
	return acked
}

// After a crash the server reads only a few segments again, however large the log is. It has an index of the others.
func TestStartAfterAKillIsBounded(t *testing.T) {
	testkit.OnlyFull(t, "TestKilledOwner opens a store after a kill")
	testkit.NotUnderRace(t)
	sizes, segment := []int64{10 << 20, 40 << 20}, uint64(4<<20)
	if testkit.Soak() {
		sizes, segment = []int64{1 << 30, 10 << 30}, 256<<20 // as in production
	}
	var took []time.Duration // medians
	for _, size := range sizes {
		o := embedded.ServerOptions{Dir: t.TempDir(), SegmentBytes: segment}
		var opened []time.Duration
		// The last segment is full to a random degree when the owner is killed, so the test repeats the measurement.
		for _, more := range []int64{size, int64(segment) / 3, int64(segment) / 3} {
			head, err := strconv.ParseUint(runChild(t, o, more, 1)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			opened = append(opened, openAfterKill(t, o, events.Offset(head)))
		}
		slices.Sort(opened)
		took = append(took, opened[1])
		t.Logf("%d MiB: opened in %v", size>>20, opened)
		os.RemoveAll(o.Dir)
	}
	t.Logf("%.2f times as long for %d times as many bytes", took[1].Seconds()/took[0].Seconds(), sizes[1]/sizes[0])
}

// openAfterKill opens a store whose owner was killed, checks that every record is stored, and returns the time that
// the opening took.
func openAfterKill(t *testing.T, o embedded.ServerOptions, head events.Offset) time.Duration {
	t.Helper()
	all, without := segments(t, o.Dir), 0
	for _, s := range all {
		if !hasServerIndex(t, s) {
			without++
		}
	}
	if without > 3 {
		t.Errorf("got %d of %d segments without the server's index", without, len(all))
	}
	began := time.Now()
	s := mustStart(t, o)
	took := time.Since(began)
	if have, err := s.Log().Head(t.Context()); err != nil || have < head {
		t.Errorf("got head %v, %v, want %v", have, err, head)
	}
	mustClose(t, s)
	return took
}

// hasServerIndex reports whether a stream's index was written after its blocks.
func hasServerIndex(t *testing.T, stream string) bool {
	t.Helper()
	index, err := os.Stat(filepath.Join(stream, "msgs", "index.db"))
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := filepath.Glob(filepath.Join(stream, "msgs", "*.blk"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		if info, err := os.Stat(b); err != nil || info.ModTime().After(index.ModTime()) {
			return false
		}
	}
	return true
}
