// Package tail follows folders of files that programs append lines to. It knows bytes and lines, but not their meaning.
//
// A caller opens a [Tailer] and requests one [Batch] after another. A batch has lines of one file, or reports a change
// of a file: its content was replaced, it was moved, it is missing, it cannot be read. The caller acknowledges batches
// that it has made durable. After a crash, reading continues behind the acknowledged ones. So no line is lost, and
// unacknowledged lines may be delivered again. The caller sets the pace: at most 512 lines or 4 MiB of a file, and 64
// MiB in total, are unacknowledged.
//
// Files that belong together are started in the order that the caller sets. Continuous changes are processed at most
// every 5 ms, so a line may be delayed by that time.
//
// Bytes are kept exactly. The lines of a file in order, each with the blank lines before it and its end, are the file
// byte for byte, up to its last line feed. The rest is delivered once it has not changed for a while and the caller
// accepts it as complete.
//
// Fingerprints with a random key identify the content before the read position: of its first 4 KiB, of the last 4 KiB
// before the position, and of all of it. The first two are compared before each read. All of it is compared, up to 64
// MiB, if the file was replaced, moved, compressed, or written without growing. So a change in the middle goes
// unnoticed if the file grew in place too. A change that keeps the length, in a file that was not replaced, is noticed
// by its time.
//
// Folders are untrusted: symbolic links are not followed, only regular files below the root are opened, and files that
// are much larger than their size on disk are refused.
package tail
