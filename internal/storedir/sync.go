package storedir

import (
	"runtime"

	"github.com/tallylog/tally/internal/nats/natsfile"
)

// SyncMethod describes how a server of a version makes acknowledged events in a directory durable.
func SyncMethod(dir, server string) string {
	const each = "every message is synced before its acknowledgement (SyncAlways)"
	switch {
	case runtime.GOOS != "linux":
		return each + ", as one sync for many is unproven on this system"
	case !natsfile.Known(server):
		return each + ", as the files of nats-server " + server + " are not known"
	case !GroupSyncs(dir):
		return each + ", as one sync for many is unproven on this file system"
	}
	return "one fdatasync of the block files for all waiting appends, proven by power cuts on ext4"
}
