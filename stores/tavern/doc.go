// Package tavern is what a team of agents shares: work queues, inboxes, agents with their
// commitments, workflows, a merge queue, and where sessions live.
//
// All of it is in the store's one log. A queue, an inbox, an agent and a flow are sessions
// of those kinds; node files of agents and templates of workflows are documents
// ([tally.Store.Documents]). Handles are cheap and do no I/O until a method is called:
//
//	q := tavern.QueueOf(st, "build")
//	item, err := q.Enqueue(ctx, tavern.Item{Body: body})
//	claim, err := q.Next(ctx, "worker-1")
//	err = claim.Finish(ctx, result)
//
// docs/from-tavern.md says what each concept, operation and file of the original is here.
//
// Whoever is refused learns why by a typed error, and nothing was written. Time never
// decides alone: leases and deadlines are over by the log's time ([tally.Store.LogTime]).
package tavern
