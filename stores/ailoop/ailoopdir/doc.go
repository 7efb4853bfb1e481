// Package ailoopdir is the layout of ailoop's file store: one JSON file that is the
// snapshot of one conversation, with version, messages and pinned.
//
// A file is the session history/<name of the file without .json>. Each message is
// a turn of its thread main, each pin that of its turn. A file that is written as
// the original writes it comes out byte for byte from the state of the session;
// any other, and one with messages of older shapes, is kept whole beside it, and
// is given back for as long as the session is what it was.
package ailoopdir
