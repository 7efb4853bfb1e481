// Package ailoopdir is the layout of ailoop's file store: one JSON file with the snapshot of one conversation, with
// the members version, messages and pinned.
//
// A file is the session history/<name of the file without .json>. Each message is a turn of its thread main, with its
// pin. A file in the original's own format is rendered byte for byte from the state of the session. Any other file,
// and one with messages of older shapes, is kept whole as well, and is written with its bytes until the session
// changes.
package ailoopdir
