//go:build !linux

package embedded

import "errors"

// SyncMethod says how acknowledged events reach the disk.
func SyncMethod(string) string { return syncEach + ", as one sync for many is unproven on this system" }

// groupSyncs reports whether syncing the block files is known to be enough: of this
// system nobody has shown it.
func groupSyncs(string) bool { return false }

// blockSync exists where groupSyncs can be true.
type blockSync struct{}

func newBlockSync(string, func(string) error) *blockSync { return &blockSync{} }

func (*blockSync) sync(string) error { return errors.New("embedded: no group sync on this system") }

func (*blockSync) rewrite() error { return nil }

func (*blockSync) close() {}
