//go:build linux

package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/nats/natsfile"
)

// syncTree makes everything below a directory durable: files, directories, renames.
func syncTree(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("sync: %v", err)
	}
	return nil
}

// blockSync makes a log durable whose server acknowledges messages that are only in the system's memory. The server
// appends to the newest block file of a stream, <stream>/msgs/<n>.blk, and starts the next when the block is full.
// Nothing is deleted, so the server never writes to an older block again. So the messages acknowledged since the last
// sync are in the block that was the newest then, or in later blocks.
//
// The first sync of each stream covers the whole file system. It includes the directories, the stream's meta files and
// the end of the previous stream. The server's index is not synced, as the server can rebuild it from the blocks.
type blockSync struct {
	dir    string
	stream string   // the stream of the blocks; "": not known yet
	blk    *os.File // the newest block
	n      int      // its number
	owes   bool     // the last sync failed

	replaced atomic.Bool // blocks were replaced by other files

	// Syncs of a file, of a directory, and of a whole tree. Tests replace them.
	fdatasync func(*os.File) error
	fsync     func(*os.File) error
	tree      func(dir string) error
}

func newBlockSync(dir string, tree func(string) error) *blockSync {
	return &blockSync{dir: dir, tree: tree, fsync: (*os.File).Sync, fdatasync: func(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }}
}

// sync implements log.Sync. Only one goroutine calls it, and only after a message was stored since the last call. So if
// there is no block to sync, the server keeps its files elsewhere, and sync returns an error.
func (b *blockSync) sync(stream string) error {
	if b.replaced.Swap(false) || stream != b.stream {
		b.close()
		b.stream = stream
		// The newest block is determined before the sync, for the same reason as in syncBlocks.
		if err := b.newest(); err != nil {
			return err
		}
		return b.tree(b.dir)
	}
	err := b.syncBlocks()
	b.owes = err != nil
	return err
}

func (b *blockSync) syncBlocks() error {
	// Look for later blocks before the sync of the present one. If there is a later block, the server no longer writes to
	// the present one, and this is its last sync. Otherwise the next sync covers it again. A block that begins meanwhile
	// is left to the next sync: its records were not stored when this sync was requested.
	if b.n == 0 {
		if err := b.findFirst(); err != nil {
			return err
		}
	}
	newest, err := b.lookAhead()
	if err != nil {
		return err
	}
	if b.blk != nil {
		if err := b.fdatasync(b.blk); err != nil {
			return fmt.Errorf("sync %s: %v", b.blk.Name(), err)
		}
	}
	for n := b.n + 1; n <= newest; n++ {
		blk, err := b.open(n)
		if err != nil {
			return err
		}
		if err := b.syncNew(blk); err != nil {
			return errors.Join(err, blk.Close())
		}
		b.advance(blk, n)
	}
	if b.blk == nil {
		return b.errNothing("sync")
	}
	return nil
}

func (b *blockSync) errNothing(verb string) error {
	return fmt.Errorf("%s %s: no block contains the stored records: this nats-server has other file names than this program knows", verb, b.msgs())
}

// lookAhead returns the number of the newest block.
func (b *blockSync) lookAhead() (int, error) {
	for n := b.n; ; n++ {
		_, err := os.Stat(natsfile.Path(b.msgs(), n+1))
		if errors.Is(err, fs.ErrNotExist) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// syncNew makes a new block and its name durable. A file's first fdatasync also writes its size and the location of its
// data.
func (b *blockSync) syncNew(blk *os.File) error {
	if err := b.fdatasync(blk); err != nil {
		return fmt.Errorf("sync %s: %v", blk.Name(), err)
	}
	dir, err := os.Open(b.msgs())
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := b.fsync(dir); err != nil {
		return fmt.Errorf("sync %s: %v", dir.Name(), err)
	}
	return nil
}

func (b *blockSync) advance(blk *os.File, n int) {
	if b.blk != nil {
		b.blk.Close() // the block was synced, so an error of Close loses nothing
	}
	b.blk, b.n = blk, n
}

// newest opens the newest block, if there is one yet.
func (b *blockSync) newest() error {
	list, err := natsfile.Numbers(b.msgs())
	if err != nil || len(list) == 0 {
		return err
	}
	n := slices.Max(list)
	blk, err := b.open(n)
	if err == nil {
		b.advance(blk, n)
	}
	return err
}

// findFirst positions the sync before the stream's first block, which need not be block 1.
func (b *blockSync) findFirst() error {
	list, err := natsfile.Numbers(b.msgs())
	if err == nil && len(list) > 0 {
		b.n = slices.Min(list) - 1
	}
	return err
}

// rewrite replaces the blocks that no successful sync has covered. After a failed sync, the system may treat the lost
// data as written. The caller has closed the server's streams. The next sync covers the whole file system again.
func (b *blockSync) rewrite() error {
	if b.stream == "" {
		return nil
	}
	list, err := natsfile.Numbers(b.msgs())
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(n int) bool { return n < b.n })
	if len(list) == 0 && b.owes {
		return b.errNothing("rewrite")
	}
	for _, n := range list {
		data, err := os.ReadFile(natsfile.Path(b.msgs(), n))
		if err == nil {
			err = durable.Replace(natsfile.Path(b.msgs(), n), data, 0o640, durable.WithSync)
		}
		if err != nil {
			return fmt.Errorf("rewrite %s: %v", natsfile.Path(b.msgs(), n), err)
		}
	}
	b.close()
	b.stream, b.owes = "", false
	return nil
}

// forget notes that blocks were replaced by synced files, while nothing was being stored. The next sync covers the whole
// file system, and finds the newest block again.
func (b *blockSync) forget() { b.replaced.Store(true) }

// close closes the newest block, which was synced and receives no more data.
func (b *blockSync) close() { b.advance(nil, 0) }

func (b *blockSync) open(n int) (*os.File, error) {
	return os.OpenFile(natsfile.Path(b.msgs(), n), os.O_RDWR, 0)
}

func (b *blockSync) msgs() string {
	return natsfile.Messages(b.dir, b.stream)
}
