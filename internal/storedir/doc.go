// Package storedir reads and writes tally's own files in a store's directory: the owner's file and lock, the mark, the
// watermark, the list of lost records and the list of running daemons. [Inspect] describes a directory without opening
// the store. [ImageOf] lists the files that a backup needs.
//
// The package neither starts a server nor connects to one, except for [Answers]. Package embedded runs the server
// that owns a directory. The texts of errors begin with "embedded", the package that callers know.
package storedir
