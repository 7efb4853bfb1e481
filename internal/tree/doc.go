// Package tree keeps sessions and documents as files, in both directions.
//
// Content of the log appears in files, and text that a user writes to a file is appended to the log. A [Tree]
// recognises its own files by content: it remembers the SHA-256 of each with the offset of the log that the file shows,
// and uses no clock. So a file that is rewritten with the same bytes is unchanged, and a file with other bytes is an
// edit of its former content.
//
// The tree puts a file in place by an atomic exchange of names, and hashes the file that was there. If its content is
// not the tree's, a user saved at the same moment, and the text is kept.
//
// The layout's importer imports an edit, on the condition that the log has not changed the file since. If it has, both
// texts remain: the file shows the log's text, and the other text becomes a document of kind [KindConflict] with a file
// beside the first.
//
// Many simultaneous changes, for example after an unmount or a checkout of another branch, are not imported: the tree
// stops until a user accepts or restores.
package tree
