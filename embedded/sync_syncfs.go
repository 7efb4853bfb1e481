//go:build linux && !tally_sync_nothing && !tally_sync_newest

package embedded

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
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
