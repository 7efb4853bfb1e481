// Package tavern is what a team of agents shares: work queues, inboxes, agents with their
// commitments, workflows, a merge queue, and where sessions live.
//
// All of it is in the store's one log. A queue, an inbox, an agent and a flow are sessions
// of those kinds; node files of agents, templates of workflows and overlays are documents
// ([tally.Store.Documents]). Handles are cheap and do no I/O until a method is called:
//
//	q := tavern.QueueOf(st, "build")
//	item, err := q.Enqueue(ctx, tavern.Item{Body: body})
//	claim, err := q.Next(ctx, "worker-1")
//	err = claim.Finish(ctx, result)
//
// # What there is
//
//   - [Queue]: items of work, each claimed by one worker at a time for as long as its lease
//     lasts. A worker that is late is refused; an item that failed too often is dead, and
//     listed until somebody queues it again.
//   - [Inbox]: messages to an agent, a program or the person ([User]). One that is
//     acknowledged is delivered; [Inbox.Seen] says how far its receiver is.
//   - [Agent]: a state that follows a table, and a node file with an assignment and
//     [Commitment]s, changed together.
//   - [Workflows] and [Flow]: templates of state machines, and what runs by them, by hand or
//     by a worker ([Flow.Claim]), with a rule for what becomes of a step that is lost.
//   - [Overlay] and [Changesets]: what an agent wrote over documents for itself, and the
//     serial queue by which such changes are made, each whole or not at all.
//   - [Lifecycle] and [Transcripts]: whether a session can be displayed and resumed, and the
//     vendor's own files, read where they lie.
//   - [Personal] and [LayerOnly]: what is one person's and never leaves the machine, and the
//     part of a store that travels with a repository.
//
// # What time makes due
//
// Time never decides alone: leases, deadlines and expiry are over by the log's time
// ([tally.Store.LogTime]), and nothing happens by itself. Functions such as [Overdue] and
// [DecideAgent] say what is due, as a [Decision]; [Daemons] look for it and make it. However
// many do, each thing is decided once.
//
// # Errors
//
// Whoever is refused learns why by a typed error, and nothing was written. What somebody
// else was faster with matches [log.ErrConflict], what is not there [tally.ErrNotFound], and
// what is there already [tally.ErrExists]. After [log.ErrUnknown] the same call may be made
// again; where that needs an id or a key of the caller's own, the method says so.
//
// docs/from-tavern.md says what each concept, operation and file of the original is here.
package tavern
