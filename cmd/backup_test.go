package cmd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// acked are the acknowledged events, by id.
type acked struct {
	sync.Map
	n atomic.Int64
}

// produce64 starts 64 producers that append to a store that another process serves, until they are stopped.
func produce64(t *testing.T, store string) (a *acked, stop func()) {
	t.Helper()
	at, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: store})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	a = new(acked)
	var done sync.WaitGroup
	for p := range 64 {
		done.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				e := events.Event{ID: fmt.Sprint(p, "-", i), Source: "urn:test:backup", Type: events.TypeTurnAppended,
					Data: []byte(`{"entries":[{"thread":"main","turn":"` + strings.Repeat("x", 500) + `"}]}`)}
				ack, err := at.Log().Append(ctx, events.Session("", fmt.Sprint("p", p)), log.Any, e)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				a.Store(e.ID, ack.Last)
				a.n.Add(1)
			}
		})
	}
	return a, func() { cancel(); done.Wait(); at.Close() }
}

// await waits until a number of further events are acknowledged.
func (a *acked) await(t *testing.T, more int64) {
	t.Helper()
	want, giveUp := a.n.Load()+more, time.Now().Add(within)
	for a.n.Load() < want {
		if time.Now().After(giveUp) {
			t.Fatalf("got %d acknowledged events, want %d", a.n.Load(), want)
		}
		time.Sleep(time.Millisecond)
	}
}

// now returns the acknowledged events.
func (a *acked) now() map[string]events.Offset {
	m := make(map[string]events.Offset)
	a.Range(func(id, at any) bool { m[id.(string)] = at.(events.Offset); return true })
	return m
}

type backupLine struct {
	Backup   string
	Durable  events.Offset
	Bytes    int64
	NewBytes int64
}

func mustBackup(t *testing.T, store, dir string) (b backupLine) {
	t.Helper()
	if err := json.Unmarshal([]byte(output(t, nil, store, "tally", "backup", dir, "-o", "json")), &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// A store is copied twice while 64 producers append through its owner. Each copy has all events that were acknowledged
// before it, and verifies. The second copies only new data.
func TestBackupWhileManyAppend(t *testing.T) {
	testkit.OnlyFull(t, "it takes a store of many records")
	root := t.TempDir()
	store, dir := filepath.Join(root, "store"), filepath.Join(root, "backups")
	owner(t, store, "TALLY_SEGMENT=1MiB")
	a, stop := produce64(t, store)
	var before []map[string]events.Offset
	var backups []backupLine
	for range 2 {
		a.await(t, 3000)
		before = append(before, a.now())
		backups = append(backups, mustBackup(t, store, dir))
	}
	a.await(t, 100)
	stop()

	first, second := backups[0], backups[1]
	const small = 10_000 // the mark, the watermark, descriptions of streams
	if first.NewBytes != first.Bytes {
		t.Errorf("the first backup: got %d new bytes of %d", first.NewBytes, first.Bytes)
	}
	// Between the backups one or two indexes of segments appear, and the index of no stream changes.
	if grown := second.Bytes - first.Bytes; second.NewBytes > grown+small || grown <= 0 {
		t.Errorf("the second backup, %d bytes larger: got %d new bytes", grown, second.NewBytes)
	}
	if n := cmdutil.DiskUse(filepath.Join(dir, "objects")); n != first.NewBytes+second.NewBytes {
		t.Errorf("the folder: got %d bytes, want %d and %d", n, first.NewBytes, second.NewBytes)
	}
	output(t, nil, store, "tally", "backup", "--verify", dir)
	for i, b := range backups {
		copied := filepath.Join(root, b.Backup)
		output(t, nil, copied, "tally", "restore", dir, "--at", b.Backup)
		found := make(map[string]events.Offset)
		n := 0
		for _, line := range jsonLines[logLine](t, strings.NewReader(output(t, nil, copied, "tally", "log", "--all-sessions", "-o", "jsonl"))) {
			found[line.Event.ID] = events.Offset(line.Offset)
			n++
		}
		if n != int(b.Durable) || len(found) != n {
			t.Errorf("backup %d: got %d records, %d ids, want %v", i, n, len(found), b.Durable)
		}
		for id, at := range before[i] {
			if found[id] != at {
				t.Fatalf("backup %d: %s was acknowledged at %v before the backup: got %v", i, id, at, found[id])
			}
		}
		output(t, nil, copied, "tally", "verify")
	}
}

// A backup by a process that is killed at any moment does not count and blocks no other: the next backup is complete,
// and so is an earlier one of the killed process.
func TestKillBackup(t *testing.T) {
	testkit.OnlyFull(t, "TestKillAppend kills a process")
	root := t.TempDir()
	store, dir := filepath.Join(root, "store"), filepath.Join(root, "backups")
	text, _ := input(5, 400)
	output(t, strings.NewReader(text), store, "tally", "append", "-o", "jsonl")
	mustBackup(t, store, dir)
	kills := 0
	for i := range 5 {
		more, _ := input(5, 400+100*(i+1))
		output(t, strings.NewReader(more), store, "tally", "append", "-o", "jsonl")
		c := command(t.Context(), store, "tally", "backup", dir)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(20+20*i) * time.Millisecond) // at any point of the backup
		c.Process.Kill()
		if c.Wait() != nil {
			kills++
		}
		output(t, nil, store, "tally", "backup", "--verify", dir)
	}
	if kills == 0 {
		t.Error("no backup was killed: the test shows nothing")
	}
	last := mustBackup(t, store, dir)
	copied := filepath.Join(root, "copied")
	var r struct{ Head events.Offset }
	if err := json.Unmarshal([]byte(output(t, nil, copied, "tally", "restore", dir, "-o", "json")), &r); err != nil || r.Head != last.Durable || r.Head != 5*900 {
		t.Errorf("restore: got head %v, want %v (%v)", r.Head, last.Durable, err)
	}
	output(t, nil, copied, "tally", "verify")
	if _, err := os.Lstat(filepath.Join(copied, "owner.json")); !errors.Is(err, os.ErrNotExist) {
		t.Error("the copy has an owner file")
	}
}
