//go:build linux && tally_sync_newest

package embedded

const syncsNewest = true
