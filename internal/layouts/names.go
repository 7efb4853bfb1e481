package layouts

import "github.com/tallylog/tally/internal/disk/filename"

// FileName makes a file name of an id, the same on every system. An id that can
// be a file name everywhere stays as it is; bytes that cannot stand there become
// =XX, so that a name never leaves its folder; what is longer than 200 bytes is
// shortened with a hash. [ParseFileName] is the inverse.
//
// The name is the same on every system, the file need not be: ids that differ only in
// case or Unicode form have names that macOS and Windows take for one.
func FileName(id string) string { return filename.Of(id) }

// ParseFileName returns the id of which FileName makes name, and whether there is
// one that can be read from it: a shortened name does not say its id.
func ParseFileName(name string) (id string, ok bool) { return filename.Parse(name) }

// IsShortened reports whether a name has the form of one that FileName shortened.
func IsShortened(name string) bool { return filename.IsShortened(name) }

// IsFileName reports whether name can be that of a file on this kind of system:
// one element of a path, neither "." nor "..".
func IsFileName(name string) bool { return filename.Is(name) }
