//go:build linux && tally_sync_nothing

package embedded

const syncsNewest = false
