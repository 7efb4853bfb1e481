//go:build linux

package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

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

// blockSync makes a log durable whose server acknowledges as soon as a message is
// in the system's memory. The server appends to the newest block file of a stream,
// <stream>/msgs/<n>.blk, and begins the next when it is full; it never goes back
// to an older one, as nothing is deleted. So what was acknowledged since the last
// sync is in the block that was the newest then, or in later ones.
//
// What is written once (the directories, the stream's meta files) is covered by the
// first sync of each stream, which is of the whole file system, and so is the end of
// the stream before. The server's index is not synced: it is made anew from the
// blocks.
type blockSync struct {
	dir    string
	stream string   // whose blocks these are; "": none yet
	blk    *os.File // the newest block
	n      int      // its number
	owes   bool     // the last sync did not cover what it was asked to

	// The system's, but for tests: of a file, of a directory, and of all below one.
	fdatasync func(*os.File) error
	fsync     func(*os.File) error
	tree      func(dir string) error
}

func newBlockSync(dir string, tree func(string) error) *blockSync {
	return &blockSync{dir: dir, tree: tree, fsync: (*os.File).Sync, fdatasync: func(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }}
}

// sync is a log.Sync. One goroutine calls it. Something was stored in the stream since it
// was called last: if there is no block to sync, the server keeps it elsewhere, and what
// was stored is not known to be on disk.
func (b *blockSync) sync(stream string) error {
	if stream != b.stream {
		b.close()
		b.stream = stream
		// Which block is the newest is asked before the sync, for the same reason as below.
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
	// Later blocks are looked for before the present one is synced. When there is one,
	// the server writes to the present one no more, and this is its last sync; when
	// there is none, the present one is synced again the next time. What is begun
	// while this runs is left to the next sync: it was not stored when this was asked.
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
	return fmt.Errorf("%s %s: there is no block of what was stored: this nats-server does not name its files as this program knows them", verb, b.msgs())
}

// lookAhead gives the number of the newest block that there is now.
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

// syncNew makes a block durable that has none of its bytes on disk, nor its name.
// (A file's first fdatasync writes its size and where its bytes are, too.)
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
		b.blk.Close() // it was synced: closing cannot lose anything
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

// findFirst puts a sync that knows no block before the first that there is. It need
// not be block 1.
func (b *blockSync) findFirst() error {
	list, err := natsfile.Numbers(b.msgs())
	if err == nil && len(list) > 0 {
		b.n = slices.Min(list) - 1
	}
	return err
}

// rewrite writes the blocks anew that no sync is known to have covered, after one that
// failed: what the system could not write it may take for written. The server has
// closed them. The next sync is of the whole file system again.
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

// close gives the block up: it was synced, and gets nothing more.
func (b *blockSync) close() { b.advance(nil, 0) }

func (b *blockSync) open(n int) (*os.File, error) {
	return os.OpenFile(natsfile.Path(b.msgs(), n), os.O_RDWR, 0)
}

func (b *blockSync) msgs() string {
	return natsfile.Messages(b.dir, b.stream)
}
