package embedded_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/internal/testkit"
)

// onWrite calls do before each write of a small file below a folder, until the test ends.
func onWrite(t *testing.T, dir string, do func(name string)) {
	t.Helper()
	t.Cleanup(durable.Guard(func(path string) error {
		if strings.HasPrefix(path, dir+string(filepath.Separator)) {
			do(filepath.Base(path))
		}
		return nil
	}))
}

func isClean(t *testing.T, dir string) bool {
	t.Helper()
	m, err := storedir.LoadMark(dir)
	if err != nil {
		t.Error(err)
	}
	return m.Clean
}

// streamsOf returns the hashes of the server's files in a store.
func streamsOf(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	sums := make(map[string][32]byte)
	err := filepath.WalkDir(natsfile.Streams(dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		sums[path] = sha256.Sum256(text)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return sums
}

// The mark of a clean stop is true: whenever it is there, the server's files are those that the stop left.
func TestMarkIsTrue(t *testing.T) {
	testkit.NotUnderRace(t)
	t.Run("net D3 the streams are as the stop left them", func(t *testing.T) {
		dir := t.TempDir()
		s := mustStart(t, smallSegments(dir))
		fillSegments(t, s.Log(), 0, 100)
		mustClose(t, s)
		for round := range 2 {
			var writes atomic.Int32
			left := streamsOf(t, dir)
			onWrite(t, dir, func(name string) {
				writes.Add(1)
				if isClean(t, dir) && !maps.Equal(streamsOf(t, dir), left) {
					t.Errorf("round %d: before %s is written, the mark is clean and the streams have changed", round, name)
				}
			})
			if s = mustStart(t, smallSegments(dir)); isClean(t, dir) {
				t.Errorf("round %d: the store is in use, and the mark is clean", round)
			}
			onWrite(t, dir, func(name string) {
				writes.Add(1)
				if isClean(t, dir) {
					t.Errorf("round %d: before %s is written, the mark is clean and the store is in use", round, name)
				}
			})
			fillSegments(t, s.Log(), 100*(round+1), 100)
			mustSettle(t, dir)
			onWrite(t, dir, func(name string) {
				writes.Add(1)
				if name == "mark" && !isClean(t, dir) { // this write may make it clean
					left = streamsOf(t, dir)
				}
			})
			if mustClose(t, s); !isClean(t, dir) || !maps.Equal(streamsOf(t, dir), left) {
				t.Errorf("round %d: after the stop the mark is clean: %v; or the streams changed after it was written", round, isClean(t, dir))
			}
			if n := writes.Load(); n < 5 {
				t.Errorf("round %d: the store made %d small writes: the test shows little", round, n)
			}
		}
	})
}

// A block that the examination changes keeps its time at every moment, and the server's index stays in use.
func TestMendedBlocks(t *testing.T) {
	testkit.NotUnderRace(t)
	im := newImage(t, func(s *embedded.Server) { mustClose(t, s) })
	t.Run("net D4 a mended block has the time that it had", func(t *testing.T) {
		random := rand.New(rand.NewPCG(3, 3))
		for range testkit.Times(12) {
			dir := filepath.Join(t.TempDir(), "store")
			copyStore(t, dir, im.dir)
			times := make(map[string]time.Time)
			var damaged []string
			for n := 1; n < len(segments(t, dir))-1; n++ {
				path, data, records := onlyBlock(t, dir, n)
				hit := records[1+random.IntN(len(records)-2)]
				switch random.IntN(3) {
				case 0:
					continue
				case 1: // a single bit
					data[hit.Begin+random.IntN(hit.End-hit.Begin)] ^= 1 << random.IntN(8)
				case 2: // a frame
					for i := range 6 {
						data[hit.Begin+i] ^= 0x55
					}
				}
				old := time.Now().Add(-time.Duration(1+random.IntN(1000)) * time.Hour)
				if err := os.Chtimes(path, old, old); err != nil {
					t.Fatal(err)
				}
				rewriteInPlace(t, path, data)
				info, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				times[path] = info.ModTime()
				damaged = append(damaged, filepath.Base(filepath.Dir(filepath.Dir(path))))
			}
			check := func(when string) {
				for path, want := range times {
					if info, err := os.Stat(path); err != nil || !info.ModTime().Equal(want) {
						t.Errorf("%v are damaged, %s: the block %s has another time (%v)", damaged, when, path, err)
					}
				}
			}
			onWrite(t, dir, func(name string) { check("before " + name + " is written") })
			s := mustStart(t, smallSegments(dir))
			check("after the start")
			mustClose(t, s)
			onWrite(t, dir, func(string) {})
		}
	})
	t.Run("net D2 a block is kept on disk before it is changed", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "store")
		copyStore(t, dir, im.dir)
		for n := 1; n <= 2; n++ {
			path, data, records := onlyBlock(t, dir, n)
			for i := range 6 / n / n { // one bit can be flipped back
				data[records[20].Begin+i] ^= 4
			}
			rewriteInPlace(t, path, data)
		}
		var synced []string
		stop := durable.Watch(func(path string) { synced = append(synced, path) })
		mustStart(t, smallSegments(dir))
		stop()
		blocks := 0
		for i, path := range synced {
			if filepath.Base(filepath.Dir(path)) != "msgs" {
				continue
			}
			blocks++
			block, _, _ := strings.Cut(filepath.Base(path), ".tally")
			kept := slices.IndexFunc(synced[:i], func(before string) bool {
				return strings.HasPrefix(before, filepath.Join(storedir.DamagedDir(dir), streamOf(path)+"-"+block))
			})
			if kept < 0 || !slices.ContainsFunc(synced[kept:i], func(before string) bool { return filepath.Clean(before) == storedir.DamagedDir(dir) }) {
				t.Errorf("the block %s was changed before its copy was on disk; synced were %v", path, synced[:i])
			}
		}
		if blocks != 2 {
			t.Errorf("%d blocks were changed, want 2: %v", blocks, synced)
		}
	})
	t.Run("net D4 a record that misleads is not in what the server reads", func(t *testing.T) {
		random := rand.New(rand.NewPCG(4, 4))
		for range testkit.Times(8) {
			dir := filepath.Join(t.TempDir(), "store")
			copyStore(t, dir, im.dir)
			path, data, records := onlyBlock(t, dir, 1+random.IntN(3))
			first := 5 + random.IntN(10)
			hit, next := records[first], records[first+2+random.IntN(20)]
			// The rest of several records has no room for the frames of all of them.
			rest := append([]byte(nil), data[hit.Begin:hit.Begin+30+random.IntN(30)]...)
			binary.LittleEndian.PutUint32(rest, uint32(len(rest)))
			binary.LittleEndian.PutUint64(rest[4:], hit.Seq+1<<22)
			binary.LittleEndian.PutUint16(rest[20:], 0)
			if random.IntN(2) == 0 { // an earlier record has a frame that can be straightened
				copy(data[records[2].Begin:], "123456")
			}
			rewriteInPlace(t, path, append(append(data[:hit.Begin:hit.Begin], rest...), data[next.Begin:]...))
			isMisleading := func() bool {
				_, gaps := natsfile.Scan(streamOf(path), numberOf(t, path), mustReadFile(t, path))
				return slices.ContainsFunc(gaps, func(g natsfile.Gap) bool { return g.Misleading })
			}
			if !isMisleading() {
				t.Fatalf("records %d to %d: the damage does not mislead", hit.Seq, next.Seq-1)
			}
			// The list is written last before the server starts.
			left := true
			onWrite(t, dir, func(name string) {
				if name == "holes.json" {
					left = isMisleading()
				}
			})
			s := mustStart(t, smallSegments(dir))
			onWrite(t, dir, func(string) {})
			if left {
				t.Errorf("records %d to %d: the server reads a record with a sequence far ahead", hit.Seq, next.Seq-1)
			}
			if lost := im.check(t, s, "misled"); len(lost) < int(next.Seq-hit.Seq) || !lost[events.Offset(hit.Seq)] {
				t.Errorf("records %d to %d: got lost records %v", hit.Seq, next.Seq-1, lost)
			} else if listed := s.Lost(); len(listed) != len(lost) {
				t.Errorf("records %d to %d: %d records are lost, and after the start the list had %v", hit.Seq, next.Seq-1, len(lost), listed)
			}
			mustClose(t, s)
		}
	})
}

// onlyBlock reads the only block of a stream.
func onlyBlock(t *testing.T, dir string, n int) (path string, data []byte, records []natsfile.Record) {
	t.Helper()
	name := fmt.Sprint("TALLY_", n)
	numbers, err := natsfile.Numbers(natsfile.Messages(dir, name))
	if err != nil || len(numbers) != 1 {
		t.Fatalf("%s: got blocks %v, %v", name, numbers, err)
	}
	path = natsfile.Path(natsfile.Messages(dir, name), numbers[0])
	data = mustReadFile(t, path)
	records, _ = natsfile.Scan(name, numbers[0], data)
	return path, data, records
}

func streamOf(block string) string { return filepath.Base(filepath.Dir(filepath.Dir(block))) }

func numberOf(t *testing.T, block string) (n int) {
	t.Helper()
	if _, err := fmt.Sscanf(filepath.Base(block), "%d.blk", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// While an owner starts, a process that attaches finds nobody: what a dead owner left is gone.
func TestAttachWhileAnOwnerStarts(t *testing.T) {
	t.Run("net D4 nobody attaches with what a dead owner left", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "store")
		copyStore(t, dir, newImage(t, func(s *embedded.Server) { mustClose(t, s) }).dir)
		path, data, records := onlyBlock(t, dir, 1)
		copy(data[records[20].Begin:], "123456")
		rewriteInPlace(t, path, data)
		stranger, err := net.Listen("tcp", "127.0.0.1:0") // at the dead owner's address
		if err != nil {
			t.Fatal(err)
		}
		defer stranger.Close()
		var calls atomic.Int32
		go func() {
			for {
				c, err := stranger.Accept()
				if err != nil {
					return
				}
				calls.Add(1)
				c.Close()
			}
		}()
		if err := storedir.WriteOwner(dir, storedir.Owner{PID: os.Getpid(), URL: "nats://" + stranger.Addr().String(), User: "u", Token: "t"}); err != nil {
			t.Fatal(err)
		}
		attempts := 0
		onWrite(t, dir, func(name string) {
			if attempts++; attempts > 30 {
				return
			}
			a, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: dir})
			if _, nobody := errors.AsType[*embedded.NoOwnerError](err); !nobody {
				t.Errorf("before %s is written: attach returned %v", name, err)
			}
			if err == nil {
				a.Close()
			}
		})
		mustStart(t, smallSegments(dir))
		if attempts < 5 || calls.Load() > 0 {
			t.Errorf("of %d attempts to attach, %d called the dead owner", attempts, calls.Load())
		}
	})
}
