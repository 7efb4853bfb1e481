// Package tree keeps sessions and documents as files, both ways.
//
// What is appended to the log comes to stand in files, and what somebody writes to a file is
// appended to the log. A [Tree] knows its own files by their content: it remembers the
// SHA-256 of each with the offset of the log that it shows, and never asks a clock. So a file
// that is written again with the same bytes is nothing new, and one that has others is an
// edit of what stood there before.
//
// A file is put in its place by an exchange of names. What comes out is hashed: if it is not
// what the tree had put there, somebody saved in the same moment, and that text is kept.
//
// An edit is taken in by the importer of the layout, on the condition that the log has not
// changed the file since. If it has, both texts stay: the file shows the log's, the other one
// is a document of kind [KindConflict], with a file beside the first.
//
// Many changes at once, as when a mount is gone or another branch is checked out, are not
// taken in: the tree stands still until somebody accepts or restores.
package tree
