//go:build linux && !tally_sync_nothing && !tally_sync_newest

package embedded

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/internal/natsfile"
)

// fakeBlocks plays the server: it appends to the newest block and begins the next,
// at any moment, also between two steps of a sync.
type fakeBlocks struct {
	t      *rapid.T
	dir    string
	n      int
	sizes  map[int]int64 // what was written, by block
	synced map[int]int64 // what a sync covered
}

func (f *fakeBlocks) path(n int) string { return filepath.Join(f.dir, strconv.Itoa(n)+".blk") }

// act writes something, or not.
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

// sync is the fdatasync of a file: it covers what was written up to now. The server
// goes on before it and behind it.
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

// What was written when a sync begins is covered when it ends, wherever the server
// begins new blocks.
func TestBlockSyncCoversWhatWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "blocks-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		b := newBlockSync(dir)
		b.stream = "TALLY_1"
		if err := os.MkdirAll(b.msgs(), 0o700); err != nil {
			t.Fatal(err)
		}
		// The first block of a stream need not be block 1.
		f := &fakeBlocks{t: t, n: rapid.IntRange(0, 2).Draw(t, "before the first"), dir: b.msgs(), sizes: make(map[int]int64), synced: make(map[int]int64)}
		b.fdatasync = f.sync
		defer b.close()
		for range rapid.IntRange(1, 6).Draw(t, "syncs") {
			f.act()
			before := make(map[int]int64)
			for n, size := range f.sizes {
				before[n] = size
			}
			err := b.sync("TALLY_1")
			if err != nil && len(before) > 0 { // else there is nothing to be covered, and it says so
				t.Fatal(err)
			}
			for n, size := range before {
				if f.synced[n] < size {
					t.Fatalf("block %d had %d records when the sync began, %d are covered", n, size, f.synced[n])
				}
			}
		}
	})
}

// What was stored and is in no block that can be found is not on disk: nothing that a sync
// was to cover is acknowledged, also not after the blocks were written anew.
func TestBlockSyncFailsClosed(t *testing.T) {
	dir := t.TempDir()
	b := newBlockSync(dir)
	if err := os.MkdirAll(natsfile.Messages(dir, "TALLY_1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := b.sync("TALLY_1"); err != nil {
		t.Fatalf("the first sync, which is of the whole file system: %v", err)
	}
	if err := b.rewrite(); err != nil {
		t.Fatalf("nothing was stored: %v", err)
	}
	if err := b.sync("TALLY_1"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(natsfile.Messages(dir, "TALLY_1"), "1.block"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.sync("TALLY_1"); err == nil {
			t.Error("a sync that found nothing to sync covered something")
		}
		if err := b.rewrite(); err == nil {
			t.Error("nothing was written anew")
		}
	}
}
