package layouts

import "github.com/tallylog/tally/internal/disk/filename"

// FileName makes a file name of an id, the same on every system. An id that is a valid file name everywhere stays as
// it is. Invalid bytes become =XX, so that a name never leaves its folder. A name longer than 200 bytes is shortened
// with a hash. [ParseFileName] is the inverse.
//
// Ids that differ only in case or Unicode form have names that macOS and Windows treat as equal.
func FileName(id string) string { return filename.Of(id) }

// ParseFileName returns the id of a name that FileName made. It returns false for any other name, and for a shortened
// name, which does not contain its id.
func ParseFileName(name string) (id string, ok bool) { return filename.Parse(name) }

// IsShortened reports whether a name has the form of a shortened name.
func IsShortened(name string) bool { return filename.IsShortened(name) }

// IsFileName reports whether name is a valid file name on this system: one element of a path, neither "." nor "..".
func IsFileName(name string) bool { return filename.Is(name) }
