// Package projector folds records into state: the live list and the threads of a
// session, its ledger, the revisions of a document. A fold is pure: no clock, no
// I/O, the same records give the same state on every machine.
//
// A session is folded twice. [History] decides, record by record, which of them
// are live: a rewind moves the head, a late or void record has no effect on the
// threads. [Threads] folds the live records only, [Ledger] folds all of them.
// [Loader] brings the three together from a log and, where there is one, from a
// snapshot; the result is the same with and without. A [Session] has all of its turns
// in memory, an [Outline] reads those that it is asked for.
package projector
