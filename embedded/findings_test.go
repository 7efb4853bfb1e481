package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// refusals refuses writes of some files below a folder until the test ends.
type refusals struct {
	mu    sync.Mutex
	names []string
}

func newRefusals(t *testing.T, dir string) *refusals {
	r := new(refusals)
	t.Cleanup(durable.Guard(func(path string) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if strings.HasPrefix(path, dir) && slices.Contains(r.names, filepath.Base(path)) {
			return syscall.EIO
		}
		return nil
	}))
	return r
}

// set names the files that cannot be written.
func (r *refusals) set(names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = names
}

// Lost records that are found at any time, by several goroutines, are in the list when its files can be written again,
// and at the latest after a close without an error.
func TestFindings(t *testing.T) {
	t.Run("net D1 findings are stored in the end", func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 1))
		dir := t.TempDir()
		r := newRefusals(t, dir)
		for i := range testkit.Times(60) {
			dir := filepath.Join(dir, fmt.Sprint(i))
			if err := os.MkdirAll(storedir.DamagedDir(dir), 0o700); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) { playFindings(t, random, r, dir) })
		}
	})
}

func playFindings(t *testing.T, random *rand.Rand, r *refusals, dir string) {
	var said bytes.Buffer
	f := &findings{dir: dir, logger: slog.New(slog.NewTextHandler(&said, nil))}
	var mu sync.Mutex
	told := make(map[events.Offset]bool)
	tell := func(lost []log.Hole) {
		mu.Lock()
		defer mu.Unlock()
		for _, h := range lost {
			told[h.Offset] = true
		}
	}
	files := []string{"holes.json", "holes.copy.json"}
	var want []log.Hole
	isBroken, steps := false, ""
	for range 1 + random.IntN(8) {
		switch step := random.IntN(6); step {
		case 0, 1, 2: // several at once
			var all sync.WaitGroup
			for range 1 + random.IntN(3) {
				h := log.Hole{Offset: events.Offset(len(want) + 1)}
				if step > 0 {
					h.Subject = fmt.Sprint("tally.", h.Offset)
				}
				want = append(want, h)
				all.Go(func() {
					if step == 0 {
						f.add(h.Offset)
					} else if err := f.store([]log.Hole{h}); (err != nil) != isBroken {
						t.Errorf("%s: store: got error %v", steps, err)
					}
				})
			}
			all.Wait()
			steps += fmt.Sprint(" find up to ", len(want))
		case 3:
			isBroken = true
			r.set(files[random.IntN(2)])
			steps += " break"
		case 4:
			isBroken = false
			r.set()
			steps += " mend"
		case 5:
			mu.Lock()
			f.mu.Lock()
			f.tell = tell // the log is open
			f.mu.Unlock()
			mu.Unlock()
			if err := f.now(); (err != nil) && !isBroken {
				t.Errorf("%s: now: %v", steps, err)
			}
			steps += " open"
		}
		time.Sleep(time.Duration(random.IntN(3)) * storePause)
	}
	if isMended := random.IntN(2) == 0; isMended {
		isBroken = false
		r.set()
		if f.tell != nil {
			time.Sleep(2 * storePause)
			steps += " mend and wait"
			mustList(t, dir, want, steps)
		}
	}
	err := f.close()
	if err != nil && !isBroken {
		t.Errorf("%s: close: %v", steps, err)
	}
	if err == nil {
		mustList(t, dir, want, steps)
	}
	r.set()
	if err != nil && !strings.Contains(said.String(), syscall.EIO.Error()) {
		t.Errorf("%s: %v was not logged", steps, err)
	}
	if err := f.close(); err != nil {
		t.Errorf("%s: close again: %v", steps, err)
	}
	mustList(t, dir, want, steps)
	time.Sleep(10 * storePause) // nothing may be pending when the bubble ends
}

// mustList fails unless both files of the list have these records.
func mustList(t *testing.T, dir string, want []log.Hole, steps string) {
	t.Helper()
	got, err := storedir.ReadHoles(dir)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("%s: the list has %v, %v, want %v", steps, got, err, want)
	}
	if len(want) == 0 {
		return
	}
	main, err := os.ReadFile(filepath.Join(storedir.DamagedDir(dir), "holes.json"))
	copied, copyErr := os.ReadFile(filepath.Join(storedir.DamagedDir(dir), "holes.copy.json"))
	if err := errors.Join(err, copyErr); err != nil || !bytes.Equal(main, copied) {
		t.Errorf("%s: the copy of the list is %s, %v, want %s", steps, copied, err, main)
	}
}

// A block that is kept aside is there byte for byte, and no other copy is lost for it.
func TestKeptBlocks(t *testing.T) {
	t.Run("net D2 every content that was found is kept", func(t *testing.T) {
		random := rand.New(rand.NewPCG(2, 2))
		root := t.TempDir()
		r := newRefusals(t, root)
		for i := range testkit.Times(40) {
			x := &examination{dir: filepath.Join(root, fmt.Sprint(i))}
			if err := os.MkdirAll(storedir.DamagedDir(x.dir), 0o700); err != nil {
				t.Fatal(err)
			}
			kept := make(map[string]bool) // content with its block
			for range 1 + random.IntN(8) {
				number := 1 + random.IntN(2)
				content := strings.Repeat(fmt.Sprint(random.IntN(3)), 1+random.IntN(2))
				r.set()
				if random.IntN(4) == 0 {
					r.set("S-1.blk", "S-2.blk.1")
				}
				b := &examined{name: "S", number: number, data: []byte(content)}
				if x.keep(b) == nil {
					kept[fmt.Sprint(number, content)] = true
				}
				if string(b.data) != content {
					t.Fatalf("keep changed the block to %q", b.data)
				}
				there := make(map[string]bool)
				for number := 1; number <= 2; number++ {
					paths, err := filepath.Glob(filepath.Join(storedir.DamagedDir(x.dir), fmt.Sprintf("S-%d.blk*", number)))
					if err != nil {
						t.Fatal(err)
					}
					for _, path := range paths {
						text, err := os.ReadFile(path)
						if err != nil {
							t.Fatal(err)
						}
						there[fmt.Sprint(number, string(text))] = true
					}
				}
				for c := range kept {
					if !there[c] {
						t.Fatalf("block and content %q was kept, and there are only %v", c, there)
					}
				}
			}
		}
	})
}

// An error of any part of a stop, before the mark is written, leaves a mark that is not clean.
func TestStopThatFails(t *testing.T) {
	t.Run("net D3 a stop with an error is not clean", func(t *testing.T) {
		failed := errors.New("a part of the stop failed")
		dir := t.TempDir()
		for i, n := 0, 1; i < n; i++ {
			s, err := Start(t.Context(), ServerOptions{Dir: dir, NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			n = len(s.ends)
			appendOne(t, s, fmt.Sprint(i))
			end, isWritten := s.ends[i], false
			s.ends[i] = func() error {
				err := end()
				m, _ := s.readMark()
				isWritten = m.Clean
				return errors.Join(err, failed)
			}
			if err := s.Close(); !errors.Is(err, failed) {
				t.Errorf("part %d of %d failed: close returned %v", i, n, err)
			}
			if m, err := s.readMark(); err != nil || m.Clean && !isWritten {
				t.Errorf("part %d of %d failed: got mark %+v, %v", i, n, m, err)
			}
		}
	})
	t.Run("net D3 a list that cannot be written at the stop", func(t *testing.T) {
		dir := t.TempDir()
		r := newRefusals(t, dir)
		s, err := Start(t.Context(), ServerOptions{Dir: dir, NoSync: true, Private: true})
		if err != nil {
			t.Fatal(err)
		}
		appendOne(t, s, "1")
		r.set("holes.json")
		s.found.add(1)
		if err := s.Close(); !errors.Is(err, syscall.EIO) {
			t.Errorf("close returned %v", err)
		}
		if m, err := s.readMark(); err != nil || m.Clean {
			t.Errorf("got mark %+v, %v", m, err)
		}
	})
	t.Run("net D3 a write that fails during a repair", func(t *testing.T) {
		h := newHealth(&room{dir: t.TempDir(), reserve: 1})
		h.fail(errors.New("one"))
		n := h.failures()
		h.fail(errors.New("two"))
		h.mended(n)
		if err := h.check(); !errors.Is(err, log.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		if h.mended(h.failures()); h.check() != nil {
			t.Errorf("got %v", h.check())
		}
	})
}
