package cmd_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
)

// If the owner of a store dies, as often as it happens, one of several producers or another server takes over. Every
// acknowledged event is stored once, in the order of its session, and all producers finish.
func TestKillOwnerUnderProducers(t *testing.T) {
	testkit.OnlyFull(t, "TestKillAppend kills a process")
	t.Parallel()
	kills, each := 3, 200
	if testkit.Soak() {
		kills, each = 20, 4000
	}
	const processes, sessions = 8, 8
	ctx, cancel := context.WithTimeout(t.Context(), within*2)
	defer cancel()
	store := filepath.Join(t.TempDir(), "store")

	var mu sync.Mutex
	acked := make(map[string]uint64)
	order := make(map[string][]string)
	first := mustServe(t, ctx, store)
	var all sync.WaitGroup
	for p := range processes {
		var text strings.Builder
		for i := range each {
			for s := range sessions {
				sub, id := fmt.Sprintf("session/p%d-s%d", p, s), fmt.Sprintf("e-%d-%d-%d", p, s, i)
				fmt.Fprintf(&text, `{"specversion":"1.0","id":"%s","source":"urn:test:ride","type":"tally.turn.appended.v1","subject":"%s","data":{"entries":[{"thread":"main","turn":{"n":%d}}]}}`+"\n", id, sub, i)
				order[sub] = append(order[sub], id)
			}
		}
		all.Go(func() {
			c := command(ctx, store, "tally", "append", "-o", "jsonl", "--log-level", "error")
			var out, errw bytes.Buffer
			c.Stdin, c.Stdout, c.Stderr = strings.NewReader(text.String()), &out, &errw
			if err := c.Run(); err != nil {
				t.Errorf("producer %d: got %v\n%.2000s", p, err, errw.String())
			}
			mu.Lock()
			defer mu.Unlock()
			for _, ack := range jsonLines[ackLine](t, &out) {
				if ack.Durability != "durable" {
					t.Errorf("%s: got durability %s", ack.ID, ack.Durability)
				}
				acked[ack.ID] = ack.Offset
			}
		})
	}
	// A producer becomes the owner, too, when one is killed. These servers start and are killed beside the producers.
	owner := first
	for k := range kills {
		time.Sleep(time.Duration(150+50*k) * time.Millisecond)
		owner.kill()
		owner = mustServe(t, ctx, store)
	}
	all.Wait()
	owner.kill()
	if len(acked) != processes*sessions*each {
		t.Errorf("got %d acknowledged events, want %d", len(acked), processes*sessions*each)
	}
	mustHold(t, store, acked, order, true)
	output(t, nil, store, "tally", "verify")
}

// served is a process that owns a store, or waits for that.
type served struct{ kill func() }

// mustServe starts a server. It owns the store at once, or after the present owner has ended.
func mustServe(t *testing.T, ctx context.Context, store string) served {
	t.Helper()
	c := command(ctx, store, "tally", "serve", "-o", "json", "--log-level", "error")
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		bufio.NewReader(out).ReadString('\n')
	}()
	select {
	case <-ready:
	case <-time.After(2 * time.Second): // a producer owns the store now
	}
	return served{kill: func() {
		c.Process.Kill()
		<-ready
		c.Wait()
	}}
}
