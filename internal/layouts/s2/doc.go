// Package s2 keeps files in S2 (s2.dev), a store of streams, by its HTTP API: one way, for what is
// written there and read back. It has no swap and does not watch.
//
// A file is a stream. Its name is a prefix and the path, of which bytes that are not UTF-8 are spelled
// =XX; it has at most 512 bytes. The records are versions: pieces of half a megabyte, each with the id
// of its version, of which the last one, that is appended last, says what it is: a file, what is added
// to one, or that it is gone. So a version is there as a whole or not at all, and what was there before
// is trimmed then. Records that have no such header are read as tally-evals reads what it wrote: their
// bodies, with an end of line between. A file that was deleted leaves a stream, as the name of one that
// is deleted could not be used again for a while. A file is in memory as a whole.
//
// What is taken for granted of S2 is from its OpenAPI description (github.com/s2-streamstore/s2-specs,
// s2/v1) and documentation: the requests and answers, that a batch of records is appended as a whole,
// that a read that begins after an append was acknowledged has it, limits of 512 bytes, 1 MiB and 1,000
// records, that streams are listed by prefix in the order of names, records that trim, and that
// retention has to be set to infinite, or records are gone after 7 days. Assumed, as nothing says it:
// that a slash in the name of a stream is sent as %2F, and that a read at the end of a stream is
// answered with 416 or no records. All of it was tried with a stand-in for the server only.
package s2
