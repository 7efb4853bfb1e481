package cmd_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
)

type ackLine struct {
	ID         string
	Offset     uint64
	Durability string
	Duplicate  bool
}

type logLine struct {
	Offset uint64
	Event  struct {
		ID, Subject, Source string
	}
}

// input returns a stream of CloudEvents for several sessions.
func input(sessions, each int) (text string, order map[string][]string) {
	var b strings.Builder
	order = make(map[string][]string)
	for i := range each {
		for s := range sessions {
			sub, id := fmt.Sprintf("session/s%d", s), fmt.Sprintf("e-%d-%d", s, i)
			b.WriteString(turnLine(sub, id, i))
			order[sub] = append(order[sub], id)
		}
	}
	return b.String(), order
}

// turnLine is an event that appends a turn.
func turnLine(sub, id string, n int) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"%s","source":"urn:test:kill","type":"tally.turn.appended.v1","subject":"%s","datacontenttype":"application/json","data":{"entries":[{"thread":"main","turn":{"n":%d}}]}}`+"\n", id, sub, n)
}

// noteAcks adds the acknowledgements of a process to acked, and checks those that have been there before.
func noteAcks(t *testing.T, acked map[string]uint64, out *bytes.Buffer) {
	t.Helper()
	for _, ack := range jsonLines[ackLine](t, out) {
		if at, seen := acked[ack.ID]; seen && (at != ack.Offset || !ack.Duplicate) {
			t.Fatalf("%s was acknowledged at %d: got %d again, duplicate %v", ack.ID, at, ack.Offset, ack.Duplicate)
		}
		if ack.Durability != "durable" {
			t.Fatalf("%s: got durability %s", ack.ID, ack.Durability)
		}
		acked[ack.ID] = ack.Offset
	}
}

// A process that is killed at any moment loses no acknowledged event, stores no event twice and keeps the order of
// each session. Repeating the input adds only the missing events.
func TestKillAppend(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	kills, each := testkit.Times(8), 1000
	if testkit.Soak() {
		kills, each = 500, 2000
	}
	ctx, cancel := context.WithTimeout(t.Context(), within*time.Duration(1+kills/50))
	defer cancel()
	store := filepath.Join(t.TempDir(), "store")
	text, order := input(5, each)
	acked := make(map[string]uint64)
	killed := 0
	for range kills {
		c := command(ctx, store, "tally", "append", "-o", "jsonl")
		var out, errw bytes.Buffer
		c.Stdin, c.Stderr = strings.NewReader(text), &errw
		// The process is killed a number of acknowledgements after the first new one: however slow the machine is, it
		// is killed while it appends, and further on each time.
		c.Stdout = &killer{out: &out, after: 1 + testkit.Random(t).IntN(3*each/kills), kill: func() { c.Process.Signal(os.Kill) }}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err != nil {
			killed++
		}
		before := len(acked)
		if strings.Contains(errw.String(), "line ") {
			t.Fatalf("a line was refused:\n%s", errw.String())
		}
		noteAcks(t, acked, &out)
		if len(acked) == before && len(acked) < len(order)*each {
			t.Errorf("a process was killed before a new acknowledgement: got %d", before)
		}
		mustHold(t, store, acked, order, false)
	}
	if killed == 0 || len(acked) == 0 {
		t.Fatalf("got %d processes that were killed before their end, with %d acknowledged events: the test showed nothing", killed, len(acked))
	}
	last := output(t, strings.NewReader(text), store, "tally", "append", "-o", "jsonl")
	for _, ack := range jsonLines[ackLine](t, strings.NewReader(last)) {
		if at, seen := acked[ack.ID]; seen && at != ack.Offset {
			t.Fatalf("%s: got offset %d, want %d", ack.ID, ack.Offset, at)
		}
		acked[ack.ID] = ack.Offset
	}
	mustHold(t, store, acked, order, true)
	output(t, nil, store, "tally", "verify")
	t.Logf("%d of %d runs were killed before their end", killed, kills)
}

// The same while every second event begins a session. A process gets the last lines of the one before again, and then
// new ones.
func TestKillNewSessions(t *testing.T) {
	testkit.Long(t)
	testkit.OnlyFull(t, "TestKillAppend does the same with few sessions")
	t.Parallel()
	const repeated, most = 500, 1000 // lines that a process gets again, and new ones that it has acknowledged at most
	kills, whole := testkit.Times(8), 4
	if testkit.Soak() {
		kills, whole = 500, 50
	}
	store := filepath.Join(t.TempDir(), "store")
	acked, order := make(map[string]uint64), make(map[string][]string)
	var ran time.Duration
	for i := range kills {
		var text strings.Builder
		next := len(acked)
		for n := max(0, next-repeated); n < next+3*most; n++ {
			sub, id := fmt.Sprintf("session/n%d", n/2), fmt.Sprintf("e-%d", n)
			text.WriteString(turnLine(sub, id, n))
			if n%2 >= len(order[sub]) {
				order[sub] = append(order[sub], id)
			}
		}
		c := command(t.Context(), store, "tally", "append", "-o", "jsonl")
		var out, errw bytes.Buffer
		c.Stdin, c.Stderr = strings.NewReader(text.String()), &errw
		c.Stdout = &killer{out: &out, after: 1 + testkit.Random(t).IntN(most), kill: func() { c.Process.Signal(os.Kill) }}
		begun := time.Now()
		if err := c.Run(); err == nil {
			t.Fatal("a process was not killed")
		}
		ran += time.Since(begun)
		if strings.Contains(errw.String(), "line ") {
			t.Fatalf("a line was refused:\n%s", errw.String())
		}
		noteAcks(t, acked, &out)
		if len(acked) == next {
			t.Fatalf("a process was killed before a new acknowledgement: got %d", next)
		}
		if i%whole == whole-1 || i == kills-1 {
			mustHold(t, store, acked, order, false)
		}
	}
	output(t, nil, store, "tally", "verify")
	t.Logf("%d kills, %d events of new sessions were acknowledged: %.0f new sessions a minute", kills, len(acked), float64(len(acked))/2/ran.Minutes())
}

// killer is the output of a process. It kills the process after a number of new acknowledgements.
type killer struct {
	out   *bytes.Buffer
	after int
	kill  func()
}

func (k *killer) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) { // of a line in two parts, at most one counts
		if bytes.Contains(line, []byte(`"duplicate":false`)) {
			if k.after--; k.after == 0 {
				k.kill()
			}
		}
	}
	return k.out.Write(p)
}

// mustHold compares the log with the acknowledged events.
func mustHold(t *testing.T, store string, acked map[string]uint64, order map[string][]string, whole bool) {
	t.Helper()
	found := make(map[string]uint64)
	next := make(map[string]int)
	for _, line := range jsonLines[logLine](t, strings.NewReader(output(t, nil, store, "tally", "log", "--all-sessions", "-o", "jsonl"))) {
		id, sub := line.Event.ID, line.Event.Subject
		if at, twice := found[id]; twice {
			t.Fatalf("%s: got offsets %d and %d", id, at, line.Offset)
		}
		found[id] = line.Offset
		if want := order[sub][next[sub]]; id != want {
			t.Fatalf("%s: got %s, want %s", sub, id, want)
		}
		next[sub]++
	}
	for id, at := range acked {
		if found[id] != at {
			t.Fatalf("%s was acknowledged at %d: got %d in the log", id, at, found[id])
		}
	}
	for sub, ids := range order {
		if whole && next[sub] != len(ids) {
			t.Fatalf("%s: got %d events, want %d", sub, next[sub], len(ids))
		}
	}
}
