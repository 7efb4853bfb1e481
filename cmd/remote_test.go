package cmd_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/internal/testkit"
)

// If the owner of a store dies, a producer that knows only a server's address continues with the next owner.
func TestKillOwnerUnderARemoteProducer(t *testing.T) {
	testkit.OnlyFull(t, "TestKillAppend kills a process")
	t.Parallel()
	const total = 3000
	dir := t.TempDir()
	store, users, address := filepath.Join(dir, "store"), filepath.Join(dir, "users"), freeAddress(t)
	if err := os.WriteFile(users, []byte("ann:secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	serve := func() served {
		t.Helper()
		c := command(ctx, store, "tally", "serve", "-o", "json", "--listen", address, "--users", users)
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, "nats://"+address) {
			t.Fatalf("got %q, %v", line, err)
		}
		return served{kill: func() {
			c.Process.Kill()
			c.Wait()
		}}
	}
	owner := serve()

	acked, order := make(map[string]uint64), make(map[string][]string)
	input, lines := io.Pipe()
	for i := range total {
		order["session/s"] = append(order["session/s"], fmt.Sprint("e", i))
	}
	go func() {
		defer lines.Close()
		for i, id := range order["session/s"] {
			if i%100 == 0 {
				time.Sleep(30 * time.Millisecond) // so that owners die while the producer appends
			}
			fmt.Fprintf(lines, `{"specversion":"1.0","id":"%s","source":"urn:test:remote","type":"tally.turn.appended.v1","subject":"session/s","data":{"entries":[{"thread":"main","turn":{"n":%d}}]}}`+"\n", id, i)
		}
	}()
	producer := remote(ctx, dir, "tally", "append", "-o", "jsonl", "--log-level", "error", "--server", "nats://"+address)
	out := awaited{begun: make(chan struct{})}
	var errw bytes.Buffer
	producer.Stdin, producer.Stdout, producer.Stderr = input, &out, &errw
	if err := producer.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-out.begun: // a producer ends if it cannot open the store
	case <-ctx.Done():
		t.Fatalf("the producer got no acknowledgement\n%.2000s", errw.String())
	}
	for k := range 2 {
		time.Sleep(time.Duration(150+100*k) * time.Millisecond)
		owner.kill()
		owner = serve()
	}
	if err := producer.Wait(); err != nil {
		t.Fatalf("%v\n%.2000s", err, errw.String())
	}
	owner.kill()
	for _, ack := range jsonLines[ackLine](t, &out.text) {
		if ack.Durability != "durable" {
			t.Errorf("%s: got durability %s", ack.ID, ack.Durability)
		}
		acked[ack.ID] = ack.Offset
	}
	if len(acked) != total {
		t.Errorf("got %d acknowledged events, want %d", len(acked), total)
	}
	mustHold(t, store, acked, order, true)
}

// awaited keeps what a command prints, and tells of the beginning.
type awaited struct {
	text  bytes.Buffer
	begun chan struct{}
}

func (a *awaited) Write(p []byte) (int, error) {
	if a.text.Len() == 0 && len(p) > 0 {
		close(a.begun)
	}
	return a.text.Write(p)
}

// remote prepares a run of tally by a user without a store, as one of the server's users.
func remote(ctx context.Context, home, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(bin, name), args...)
	c.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME=", "XDG_CACHE_HOME=", "NATS_USER=ann", "NATS_PASSWORD=secret")
	return c
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
