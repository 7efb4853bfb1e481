// Package frontmatter reads and changes the front matter of a document, a block of keys at its beginning:
//
//	---
//	title: Kettle
//	model: "a: b"
//	---
//
//	Body
//
// [Parse] reads a document as the original does: its first line is ---, each line of the block is split at its first
// colon, and double quotes around a value are removed. [Render] writes a document as the original does. [Read] returns
// a view of the unchanged bytes, and [View.Set] changes one value and nothing else.
//
// Two inputs that the original fails on are accepted: a byte order mark before the first line, and lines that end in CR
// LF. If the block has no closing line, the document has no front matter, and all of the text is body.
package frontmatter
