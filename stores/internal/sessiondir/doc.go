// Package sessiondir is the one layout of the stores whose sessions are folders, or files, below a
// root ([Layout]), and the parts that all layouts of stores share.
//
// A store supplies its part as a value with methods ([Store]). An import runs as follows:
//
//	Shape    finds the root for a path that a user named
//	Units    lists the sessions
//	List     finds the files of one, and its id       once a session, again if
//	Scan     reads each file once                     somebody else wrote to it
//	Same     compares a file with what the session's View has for it
//	Plan     decides which events are missing
//	Apply    appends them, unless the plan contradicts what others did
//	Seal     says how each file is spelled, or keeps it whole
//	Same     compares again: what differs now is reported
//	Takes    leaves out a file beside the sessions; all others are kept whole
//
// What the files mean, and which events they come to, is the store's. A dry run is an import into
// a [formats.Rehearsal].
//
// An export asks where the bytes of a file come from ([OutputOf]): from the state, or from the
// document in which it was kept whole. A folder that follows the state asks the same, a session at
// a time.
//
// Beside these: how files are read and spelled again, and how events are appended in batches.
package sessiondir
