package sessiondir

import "github.com/tallylog/tally/internal/disk/filename"

// KeyOf returns the name of a file in formats and attributes: its path, with bytes
// that are not UTF-8 as =XX.
func KeyOf(path string) string { return filename.Key(path) }

// PathOf undoes KeyOf.
func PathOf(key string) string { return filename.Unescape(key) }
