package sessiondir

import "github.com/tallylog/tally/internal/disk/filename"

// KeyOf returns the key of a file in formats and attributes: its path, with each byte that is not UTF-8 as =XX.
func KeyOf(path string) string { return filename.Key(path) }

// PathOf is the inverse of KeyOf.
func PathOf(key string) string { return filename.Unescape(key) }
