//go:build linux && tally_sync_faulty

package embedded

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// This file is in no product. The test that cuts the power builds with it, to show
// that it would notice: a sync that does nothing, and with TALLY_TEST_SYNC=newest one
// that knows the newest block file and nothing else.
var syncsNewest = os.Getenv("TALLY_TEST_SYNC") == "newest"

// SyncMethod says that nothing is promised.
func SyncMethod(string) string { return "none that can be trusted: built for a test" }

func groupSyncs(string) bool { return true }

// syncTree does nothing, as the sync does not.
func syncTree(string) error { return nil }

type blockSync struct{ dir string }

func newBlockSync(dir string, _ func(string) error) *blockSync { return &blockSync{dir} }

func (b *blockSync) sync(stream string) error {
	if !syncsNewest {
		return nil
	}
	blocks, err := filepath.Glob(filepath.Join(b.dir, "jetstream", "*", "streams", stream, "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		return err
	}
	f, err := os.OpenFile(blocks[len(blocks)-1], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fdatasync(int(f.Fd())), f.Close())
}

func (*blockSync) rewrite() error { return nil }

func (*blockSync) close() {}
