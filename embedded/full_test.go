//go:build linux

package embedded_test

import (
	"errors"
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

// mustMountSmall mounts a new file system of some megabytes.
func mustMountSmall(t *testing.T, megabytes int) string {
	t.Helper()
	testkit.Needs(t, os.Getuid() == 0, "root, to mount a file system")
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	for _, args := range [][]string{
		{"truncate", "-s", fmt.Sprintf("%dM", megabytes), image}, {"mkfs.ext4", "-q", "-F", "-m", "0", image}, {"mount", "-o", "loop", image, dir},
	} {
		_, err := exec.LookPath(args[0])
		testkit.Needs(t, err == nil, args[0])
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v\n%s", err, out)
		}
	})
	return dir
}

// On a disk that fills up, an append is refused at once with an error that says how much space is free. Reads
// continue, no acknowledged event is lost, and appends work again without a restart as soon as there is space.
func TestFullDisk(t *testing.T) {
	disk := mustMountSmall(t, 160)
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 60<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	s := mustStart(t, embedded.ServerOptions{Dir: filepath.Join(disk, "store")})
	l, sub := s.Log(), events.Session("", "s")
	acked := 0
	var full *log.FullError
	for full == nil {
		if acked > 1000 {
			t.Fatal("the disk does not fill up")
		}
		_, err := l.Append(t.Context(), sub, log.Any, turn("", strings.Repeat("x", 256<<10)))
		var ok bool
		if full, ok = errors.AsType[*log.FullError](err); !ok && err != nil {
			t.Fatalf("append %d: %v", acked, err)
		}
		if err == nil {
			acked++
		}
	}
	if !errors.Is(full, log.ErrFull) || full.Free >= full.Reserve || full.Free <= 0 {
		t.Errorf("got %+v", full)
	}
	began := time.Now()
	if _, err := l.Append(t.Context(), sub, log.Any, turn("", "small")); !errors.Is(err, log.ErrFull) {
		t.Errorf("a small append on a full disk: got %v, want ErrFull", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the refusal took %v", took)
	}
	if n := countEvents(t, l); n != acked {
		t.Errorf("got %d events, want %d", n, acked)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(testkit.Patience(time.Minute))
	for {
		_, err := l.Append(t.Context(), sub, log.Any, turn("", "again"))
		if err == nil {
			acked++
			break
		}
		if !errors.Is(err, log.ErrFull) || time.Now().After(deadline) {
			t.Fatalf("an append with free space again: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	mustClose(t, s)
	s = mustStart(t, embedded.ServerOptions{Dir: filepath.Join(disk, "store")})
	if n := countEvents(t, s.Log()); n != acked {
		t.Errorf("after a restart: got %d events, want %d", n, acked)
	}
	mustClose(t, s)
}

// If another program fills the disk, reserve included, the server's stream stops answering. Appends are refused within
// seconds, reads continue, and the store recovers when there is space again.
func TestDiskFilledByOthers(t *testing.T) {
	testkit.OnlyFull(t, "TestFullDisk fills a disk")
	testkit.NotUnderRace(t) // TestFullDisk runs the same code there
	disk := mustMountSmall(t, 96)
	dir := filepath.Join(disk, "store")
	s := mustStart(t, embedded.ServerOptions{Dir: dir, Reserve: 1})
	l, sub := s.Log(), events.Session("", "s")
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 40<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	acked, refused := 0, error(nil)
	for refused == nil {
		if acked > 1000 {
			t.Fatal("the disk does not fill up")
		}
		if _, refused = l.Append(t.Context(), sub, log.Any, turn(fmt.Sprint("first-", acked), strings.Repeat("x", 256<<10))); refused == nil {
			acked++
		}
	}
	t.Logf("after %d appends: %v", acked, refused)
	for range 3 {
		began := time.Now()
		_, err := l.Append(t.Context(), sub, log.Any, turn("", strings.Repeat("x", 256<<10)))
		if !errors.Is(err, log.ErrFull) && !errors.Is(err, log.ErrUnavailable) && !errors.Is(err, log.ErrUnknown) {
			t.Errorf("an append on a full disk: got %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the refusal took %v", took)
		}
	}
	if n := countEvents(t, l); n < acked {
		t.Errorf("got %d events, want %d", n, acked)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := l.Append(t.Context(), sub, log.Any, turn("again", "again"))
		return err
	})
	mustClose(t, s)
	s = mustStart(t, embedded.ServerOptions{Dir: dir})
	ids := mustRead(t, s.Log(), events.Range{})
	for i := range acked {
		if ids[i] != fmt.Sprint("first-", i) {
			t.Fatalf("event %d: got %s", i, ids[i])
		}
	}
	if ids[len(ids)-1] != "again" {
		t.Errorf("got the last event %s", ids[len(ids)-1])
	}
	mustClose(t, s)
}

func countEvents(t *testing.T, l *log.Log) int {
	t.Helper()
	n := 0
	for _, err := range l.Read(t.Context(), events.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}
