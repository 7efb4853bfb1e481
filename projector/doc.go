// Package projector folds records into state: the live list and the threads of a session, its ledger, the revisions of
// a document. A fold is pure: no clock, no I/O, the same records produce the same state on every machine.
//
// A session is folded twice. [History] decides, record by record, which of them are live: a rewind moves the head, and
// a stale or rejected record has no effect on the threads. [Threads] folds the live records only, [Ledger] folds all of
// them. [Loader] combines the three from a log and, if available, a snapshot; the result is the same with and without a
// snapshot. A [Session] has all of its turns in memory. An [Outline] reads turns on request.
package projector
