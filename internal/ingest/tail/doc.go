// Package tail follows folders of files that programs append lines to. It knows bytes and
// lines, nothing of what they mean.
//
// A caller opens a [Tailer] and asks it for one [Batch] after another. A batch has some lines
// of one file, or says what became of a file: its content was replaced, it was moved, it is
// gone, it cannot be read. What the caller has made durable it acknowledges; after a crash
// reading begins behind what was acknowledged, so that no line is lost, and lines may come
// again that were delivered and not acknowledged. The caller sets the pace: at most 512 lines
// or 4 MiB of a file, and 64 MiB of all, are on their way.
//
// Files that belong together are begun in the order that the caller gives. What happens all
// the time is looked at every 5 ms at most: that much later a line may come.
//
// Bytes are kept exactly. The lines of a file in order, each with the blank lines before it
// and its end, are the file byte for byte, as far as it ends with a line feed. What follows
// the last line feed is delivered once it has not changed for a while and the caller says
// that it is whole.
//
// What a file holds before the place where reading stands is told by fingerprints, under a
// random key: of its first 4 KiB, of the last 4 KiB before that place, and of all of it. The
// first two are compared before each read, all of it where the file was replaced, moved,
// compressed, or written to without growing, up to 64 MiB. So a change in the middle is not
// noticed if the file grew in place too, and one of the same length in a file that another
// was not put in the place of is noticed by its time.
//
// Nothing in a folder is trusted: symbolic links are not followed, only regular files are
// opened, never by a way out of the root, and files that are much larger than what they take
// on disk are refused.
package tail
