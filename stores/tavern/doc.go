// Package tavern implements what a team of agents shares: work queues, inboxes, agents with their commitments,
// workflows, a merge queue, and the life cycle of sessions.
//
// Everything is in the store's one log. Queues, inboxes, agents and flows are sessions of those kinds. Node files of
// agents, templates of workflows and overlays are documents ([tally.Store.Documents]). Handles are cheap and do no I/O
// until a method is called:
//
//	q := tavern.QueueOf(st, "build")
//	item, err := q.Enqueue(ctx, tavern.Item{Body: body})
//	claim, err := q.Next(ctx, "worker-1")
//	err = claim.Finish(ctx, result)
//
// # Concepts
//
//   - [Queue]: items of work. A worker claims an item for the duration of a lease. A worker that lost its item gets an
//     error. An item that failed too often is dead, and is listed until it is requeued.
//   - [Inbox]: messages to an agent, a program or the person ([User]). An acknowledged message is delivered;
//     [Inbox.Seen] moves the receiver's mark.
//   - [Agent]: a state with a table of transitions, and a node file with an assignment and [Commitment]s, changed
//     together.
//   - [Workflows] and [Flow]: templates of state machines, and their instances, which move by hand or by a worker
//     ([Flow.Claim]). Each state has a recovery rule for a lost worker.
//   - [Overlay] and [Changesets]: an agent's own versions of documents, and the serial queue that applies such changes,
//     each wholly or not at all.
//   - [Lifecycle] and [Transcripts]: whether a session can be displayed and resumed, and the vendor's own files, read
//     in place.
//   - [Personal] and [LayerOnly]: personal settings that never leave the machine, and the part of a store that travels
//     with a repository.
//
// # Due work
//
// Leases, deadlines and expiry are judged by the log's time ([tally.Store.LogTime]), and nothing happens by time alone.
// Functions such as [Overdue] and [DecideAgent] return what is due as a [Decision]; [Daemons] look for due work and
// make the decisions. Each decision is made once, however many processes look.
//
// # Errors
//
// A refused call returns a typed error, and writes nothing. If another writer was faster, the error matches
// [log.ErrConflict]; if something is missing, [tally.ErrNotFound]; if it exists already, [tally.ErrExists]. After
// [log.ErrUnknown] the caller may repeat the call. If that requires the caller's own id or key, the method says so.
//
// docs/from-tavern.md maps each concept, operation and file of the original to this package.
package tavern
