//go:build linux

package embedded

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/internal/nats/natsfile"
)

// fakeBlocks imitates the server: it appends to the newest block and begins the next block at any moment, also between
// two steps of a sync.
type fakeBlocks struct {
	t      *rapid.T
	dir    string
	n      int
	sizes  map[int]int64 // bytes written, by block
	synced map[int]int64 // bytes that a sync covered, by block
}

func (f *fakeBlocks) path(n int) string { return filepath.Join(f.dir, strconv.Itoa(n)+".blk") }

// act perhaps writes something.
func (f *fakeBlocks) act() {
	for range rapid.IntRange(0, 3).Draw(f.t, "writes") {
		if f.sizes[f.n] == 0 || rapid.IntRange(0, 2).Draw(f.t, "roll") == 0 {
			f.n++
		}
		file, err := os.OpenFile(f.path(f.n), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = file.Write([]byte("x"))
			file.Close()
		}
		if err != nil {
			f.t.Fatal(err)
		}
		f.sizes[f.n]++
	}
}

// sync is the fdatasync of a file: it covers all bytes written so far. The server writes before and after it.
func (f *fakeBlocks) sync(file *os.File) error {
	f.act()
	n, err := strconv.Atoi(filepath.Base(file.Name())[:len(filepath.Base(file.Name()))-len(".blk")])
	if err != nil {
		f.t.Fatal(err)
	}
	f.synced[n] = f.sizes[n]
	f.act()
	return nil
}

// syncAll is the sync of the whole file system. The server writes before and after it.
func (f *fakeBlocks) syncAll(string) error {
	f.act()
	maps.Copy(f.synced, f.sizes)
	f.act()
	return nil
}

// A sync covers all records that were written before it began, even if the server begins new blocks meanwhile.
func TestBlockSyncCoversWhatWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "blocks-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		msgs := natsfile.Messages(dir, "TALLY_1")
		if err := os.MkdirAll(msgs, 0o700); err != nil {
			t.Fatal(err)
		}
		// The first block of a stream need not be block 1.
		f := &fakeBlocks{t: t, n: rapid.IntRange(0, 2).Draw(t, "before the first"), dir: msgs, sizes: make(map[int]int64), synced: make(map[int]int64)}
		b := newBlockSync(dir, f.syncAll)
		if rapid.Bool().Draw(t, "the stream is known") {
			b.stream = "TALLY_1"
		}
		b.fdatasync = f.sync
		defer b.close()
		for range rapid.IntRange(1, 6).Draw(t, "syncs") {
			f.act()
			before := make(map[int]int64)
			for n, size := range f.sizes {
				before[n] = size
			}
			err := b.sync("TALLY_1")
			if err != nil && len(before) > 0 { // otherwise there is nothing to cover, and sync reports that
				t.Fatal(err)
			}
			for n, size := range before {
				if f.synced[n] < size {
					t.Fatalf("block %d: got %d records when the sync began, %d covered", n, size, f.synced[n])
				}
			}
		}
	})
}

// If no block contains the stored records, they are not on disk: the sync acknowledges no record that it had to cover,
// also not after the blocks were written again.
func TestBlockSyncFailsClosed(t *testing.T) {
	dir := t.TempDir()
	b := newBlockSync(dir, syncTree)
	if err := os.MkdirAll(natsfile.Messages(dir, "TALLY_1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := b.sync("TALLY_1"); err != nil {
		t.Fatalf("the first sync, of the whole file system: %v", err)
	}
	if err := b.rewrite(); err != nil {
		t.Fatalf("a sync of an empty stream: %v", err)
	}
	if err := b.sync("TALLY_1"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(natsfile.Messages(dir, "TALLY_1"), "1.block"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.sync("TALLY_1"); err == nil {
			t.Error("a sync of a stream without blocks: got no error, want one")
		}
		if err := b.rewrite(); err == nil {
			t.Error("the blocks were not written again")
		}
	}
}

// A sync has fixed steps in a fixed order, wherever the stream is. Without one of them, it acknowledges records that a
// power cut removes.
func TestBlockSyncSteps(t *testing.T) {
	dir := t.TempDir()
	var steps []string
	note := func(what string) func(*os.File) error {
		return func(f *os.File) error {
			steps = append(steps, what+" "+filepath.Base(filepath.Dir(filepath.Dir(f.Name())))+"/"+filepath.Base(f.Name()))
			return nil
		}
	}
	b := newBlockSync(dir, func(of string) error {
		steps = append(steps, "tree")
		return nil
	})
	b.fdatasync = note("data")
	b.fsync = func(f *os.File) error {
		steps = append(steps, "names "+filepath.Base(filepath.Dir(f.Name())))
		return nil
	}
	defer b.close()
	write := func(stream string, block int) {
		t.Helper()
		path := natsfile.Path(natsfile.Messages(dir, stream), block)
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err == nil {
			_, err = f.WriteString("x")
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	synced := func(when, stream, want string) {
		t.Helper()
		steps = nil
		if err := b.sync(stream); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(steps, ", "); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	for _, stream := range []string{"TALLY_1", "TALLY_2"} {
		if err := os.MkdirAll(natsfile.Messages(dir, stream), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("TALLY_1", 4)
	synced("the first of all", "TALLY_1", "tree")
	write("TALLY_1", 4)
	synced("the same block", "TALLY_1", "data TALLY_1/4.blk")
	write("TALLY_1", 4)
	write("TALLY_1", 5)
	write("TALLY_1", 6)
	synced("new blocks", "TALLY_1", "data TALLY_1/4.blk, data TALLY_1/5.blk, names TALLY_1, data TALLY_1/6.blk, names TALLY_1")
	synced("no new block", "TALLY_1", "data TALLY_1/6.blk")
	synced("a new segment", "TALLY_2", "tree") // also the end of the segment before
	write("TALLY_2", 6)
	synced("the first block of a segment", "TALLY_2", "data TALLY_2/6.blk, names TALLY_2")

	// After a failed sync, the blocks that it may not have covered are replaced by new files with the same content,
	// and the next sync covers the whole file system.
	write("TALLY_2", 7)
	before := make(map[int]os.FileInfo)
	for _, n := range []int{6, 7} {
		info, err := os.Stat(natsfile.Path(b.msgs(), n))
		if err != nil {
			t.Fatal(err)
		}
		before[n] = info
	}
	b.fdatasync = func(*os.File) error { return errors.New("input/output error") }
	if err := b.sync("TALLY_2"); err == nil {
		t.Error("a failed sync: got no error, want one")
	}
	b.fdatasync = note("data")
	if err := b.rewrite(); err != nil {
		t.Fatal(err)
	}
	for n, old := range before {
		path := natsfile.Path(natsfile.Messages(dir, "TALLY_2"), n)
		info, err := os.Stat(path)
		if err != nil || os.SameFile(info, old) {
			t.Errorf("block %d: got the same file, %v, want a new one", n, err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != "x" {
			t.Errorf("block %d is %q, %v", n, data, err)
		}
	}
	synced("after blocks were written anew", "TALLY_2", "tree")
}
