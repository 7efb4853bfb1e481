// Package s2 keeps files in S2 (s2.dev), a store of streams, by its HTTP API. It can write files and read them back.
// It has no swap and does not watch.
//
// A file is a stream. Its name is a prefix and the path, with each byte that is not UTF-8 as =XX; it has at most 512
// bytes. The records are versions: pieces of half a megabyte, each with the id of its version. The last piece is
// appended last and has the kind of the version: a file, an addition to a file, or a deletion. So a version exists as
// a whole or not at all. Older versions are trimmed then. Records without such a header are read as tally-evals reads
// its own: their bodies, separated by line ends. A deleted file leaves its stream, because S2 blocks the name of a
// deleted stream for a while. A file is in memory as a whole.
//
// The package relies on these facts of the OpenAPI description (github.com/s2-streamstore/s2-specs, s2/v1) and the
// documentation: the requests and answers; a batch of records is appended as a whole; a read that begins after the
// acknowledgement of an append sees it; limits of 512 bytes, 1 MiB and 1,000 records; streams are listed by prefix in
// the order of names; records that trim; without infinite retention, records are deleted after 7 days. Two facts are
// assumed, because no document states them: a slash in a stream's name is sent as %2F, and a read at the end of a
// stream is answered with 416 or no records. The package was tested only with a stand-in for the server.
package s2
