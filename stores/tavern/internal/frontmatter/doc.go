// Package frontmatter reads and changes the block of keys that a document begins with:
//
//	---
//	title: Kettle
//	model: "a: b"
//	---
//
//	Body
//
// [Parse] reads a document as the original does: its first line is ---, each line of the
// block is split at its first colon, and a value in double quotes is taken out of them.
// [Render] writes one as the original does. In between there is [Read], a view of the bytes
// as they are, whose [View.Set] touches the value that it sets and nothing else.
//
// Two things that the original stumbles over are read: a byte order mark before the first
// line, and lines that end in CR LF. A block without a last line is none, so that all of the
// text is body.
package frontmatter
