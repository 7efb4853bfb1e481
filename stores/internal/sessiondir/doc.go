// Package sessiondir is the common layout of stores that keep sessions as folders, or files, below a root ([Layout]).
// It also has the parts that all layouts of stores share.
//
// A store supplies its part as a value with methods ([Store]). An import calls, in this order:
//
//	Shape    finds the root for a path that a user named
//	Entries  lists the sessions
//	List     finds the files of one session, and its id
//	Scan     reads each file once
//	Same     compares a file with the one that the session's View renders
//	Plan     decides which events are missing
//	Apply    appends them, unless the plan contradicts what other writers did
//	Seal     records how each file is spelled, or keeps the file whole
//	Same     compares again; files that still differ are reported
//	Takes    reports whether a file beside the sessions is left out; other files are kept whole
//
// List to Seal run once for each session, and again if another writer appended to it. The store decides the meaning
// of the files and their events. A dry run imports into a [layouts.DryRun].
//
// An export asks where the bytes of a file come from ([OutputOf]): from the state, or from the document that keeps
// the file whole. A folder that follows the state does the same for each session.
//
// The package also reads files, spells them again, and appends events in batches.
package sessiondir
