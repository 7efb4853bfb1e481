//go:build linux

package cmd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// In a large store, most sessions are short-lived, a tenth of the events belong to sessions that are spread over the
// whole log, and a tenth to one session. The views are built in bounded memory and equal a fold of the log. Running
// times are logged.
func TestViewsOfLargeStore(t *testing.T) {
	testkit.OnlyFull(t, "it takes a store of many records")
	t.Parallel()
	count, sessions := 30_000, 300
	if testkit.Soak() {
		count, sessions = 10_000_000, 100_000
	}
	store := filepath.Join(t.TempDir(), "store")
	fillStore(t, store, count, sessions)
	server := peakMemory(t, command(t.Context(), store, "tally", "status"))

	began := time.Now()
	c := command(t.Context(), store, "tally", "daemon", "views", "--once", "--progress", "none")
	used := peakMemory(t, c)
	t.Logf("%d events: both views in %v; peak memory %d MB, of a process that only opens the store %d MB",
		count, time.Since(began).Round(time.Millisecond), used>>20, server>>20)
	if used-server > 200<<20 {
		t.Errorf("got %d MB for the views beyond the server's %d MB", (used-server)>>20, server>>20)
	}
	for _, name := range []string{"views.db", "search.db"} {
		info, err := os.Stat(filepath.Join(store, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s has %.1f bytes for each event", name, float64(info.Size())/float64(count))
	}
	t.Logf("ls --limit 50: %v", timesOf(t, 9, func(int) { output(t, nil, store, "tally", "ls", "--limit", "50") }))
	t.Logf("ls --sort cost --limit 50: %v", timesOf(t, 9, func(int) { output(t, nil, store, "tally", "ls", "--sort", "cost", "--limit", "50") }))
	t.Logf("search: %v", timesOf(t, 40, func(i int) {
		output(t, nil, store, "tally", "search", scaleWords[i%len(scaleWords)], scaleWords[(i/7)%len(scaleWords)])
	}))
	showsTail(t, store)
	mustVerify(t, command(t.Context(), store, "tally", "verify"))
}

// Turns of many sessions, in turn, are appended in bounded memory: the process keeps little for each session.
func TestMemoryOfManySessions(t *testing.T) {
	testkit.OnlyFull(t, "TestIndexCountsItsMemory and TestCatalogCountsItsMemory bound what a session takes")
	t.Parallel()
	const most = 350 << 20
	sessions := 20_000
	if testkit.Soak() {
		sessions = 100_000
	}
	c := command(t.Context(), filepath.Join(t.TempDir(), "store"), "tally", "append", "-o", "jsonl")
	c.Stdin = turnsInTurn(sessions, 2*sessions)
	used := peakMemory(t, c)
	t.Logf("%d sessions: peak memory %d MB", sessions, used>>20)
	if used > most {
		t.Errorf("%d sessions: got a peak of %d MB, want at most %d", sessions, used>>20, most>>20)
	}
}

// turnsInTurn returns lines for tally append: turns of sessions in turn.
func turnsInTurn(sessions, count int) *bytes.Buffer {
	var lines bytes.Buffer
	for i := range count {
		fmt.Fprintf(&lines, `{"specversion":"1.0","source":"urn:test","type":"tally.turn.appended.v1","subject":"session/s%d","id":"%d","data":{"entries":[{"thread":"main","turn":{"role":"user","content":"%s"}}]}}`+"\n",
			i%sessions, i, strings.Join(scaleWords, " "))
	}
	return &lines
}

// BenchmarkSessionsInTurn reports the processor time of an event that tally append stores in a new store with all its
// views: turns of 50 sessions and of 20,000 sessions, and the ratio of both. It should be at most 1.5.
func BenchmarkSessionsInTurn(b *testing.B) {
	const count = 40_000
	took := make(map[int]time.Duration)
	for b.Loop() {
		for _, sessions := range []int{50, 20_000} {
			c := command(b.Context(), filepath.Join(b.TempDir(), "store"), "tally", "append", "-o", "jsonl")
			c.Stdin = turnsInTurn(sessions, count)
			if out, err := c.Output(); err != nil || bytes.Count(out, []byte("\n")) != count {
				b.Fatalf("%d sessions: %d acknowledgements, %v", sessions, bytes.Count(out, []byte("\n")), err)
			}
			took[sessions] += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
		}
	}
	for sessions, d := range took {
		b.ReportMetric(float64(d.Microseconds())/float64(b.N)/count, fmt.Sprint("µs-of-", sessions))
	}
	b.ReportMetric(took[20_000].Seconds()/took[50].Seconds(), "x-50-sessions")
}

// showsTail shows the last turns of the largest session, in a process that attaches to an owner, and those of a small
// one: the bytes read do not grow with the session.
func showsTail(t *testing.T, store string) {
	t.Helper()
	owner := command(t.Context(), store, "tally", "serve", "-o", "json")
	out, err := owner.StdoutPipe()
	if err == nil {
		err = owner.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { owner.Process.Signal(os.Interrupt); owner.Wait() }()
	var serving struct{ Store string }
	if err := json.NewDecoder(out).Decode(&serving); err != nil {
		t.Fatal(err)
	}
	sub := filepath.Join(store, "snapshots", "default", "session", "large")
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) { // the projector may write some snapshots later
		if kept, err := filepath.Glob(filepath.Join(sub, "session.*")); err == nil && len(kept) > 0 {
			break
		}
		if time.Since(began) > 5*time.Minute {
			t.Fatal("the largest session has no snapshot")
		}
	}
	used := make(map[string]int64)
	for _, id := range []string{"short-1", "large"} {
		t.Logf("show %s --last 50: %v", id, timesOf(t, 9, func(int) {
			used[id] = max(used[id], peakMemory(t, command(t.Context(), store, "tally", "show", id, "--last", "50")))
		}))
	}
	t.Logf("peak memory of that: %d MB and %d MB", used["short-1"]>>20, used["large"]>>20)
	if more := used["large"] - used["short-1"]; more > 50<<20 {
		t.Errorf("the last turns of the largest session: got %d MB more than those of a small one", more>>20)
	}
}

// spread is the median of a measurement and its 95th percentile.
type spread struct{ median, p95 time.Duration }

func (s spread) String() string {
	return fmt.Sprintf("median %v, p95 %v", s.median.Round(100*time.Microsecond), s.p95.Round(100*time.Microsecond))
}

func timesOf(t *testing.T, n int, do func(int)) spread {
	t.Helper()
	var list []time.Duration
	for i := range n {
		began := time.Now()
		do(i)
		list = append(list, time.Since(began))
	}
	slices.Sort(list)
	return spread{list[n/2], list[n*95/100]}
}

var scaleWords = strings.Fields("flour butter sugar berry lemon sponge order table window answer tomorrow quietly under river morning letter machine garden paper silver")

// fillStore appends turns, and a cost for every tenth.
func fillStore(t *testing.T, store string, count, sessions int) {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.ServerOptions{Dir: store, Private: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := rand.New(rand.NewPCG(1, 1))
	var pending []*log.Pending
	for i := range count {
		id := fmt.Sprintf("short-%d", i*sessions/count)
		switch r.IntN(10) {
		case 0:
			id = fmt.Sprintf("spread-%d", r.IntN(sessions/10))
		case 1:
			id = "large"
		}
		var p events.Payload = &events.CostAccrued{Model: "m", USD: "0.0125", Purpose: "run", Source: "reported"}
		if i%10 != 0 {
			var words []string
			for range 5 + r.IntN(60) {
				words = append(words, scaleWords[r.IntN(len(scaleWords))])
			}
			p = &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: events.Raw(fmt.Sprintf(`{"role":"user","content":"%s %d"}`, strings.Join(words, " "), i))}}}
		}
		e, err := events.New("urn:test", events.Session("", id), p)
		if err != nil {
			t.Fatal(err)
		}
		if pending = append(pending, s.Log().AppendAsync(t.Context(), e.Subject, log.Any, e)); len(pending) == 2000 {
			mustAck(t, pending)
			pending = pending[:0]
		}
	}
	mustAck(t, pending)
}

func mustAck(t *testing.T, pending []*log.Pending) {
	t.Helper()
	for _, p := range pending {
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
