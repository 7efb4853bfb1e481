// Package evals keeps recorded conversations, the simulations that produced them and the runs that judged them.
//
// A program gets a handle on a conversation. The handle does no I/O until a method is called:
//
//	c := evals.Of(st, "travel")
//	ack, err := c.Append(ctx, step) // when it returns, the step is on disk
//	data, err := c.Load(ctx)
//	run, err := c.CreateRun(ctx, evals.TallyRun, "")
//
// A conversation is a session of the store, so every earlier content can be read, rewound and forked.
// docs/from-tally-evals.md maps the names of tally-evals' TallyStore to those of this package. The package tallydir
// reads and writes the original's folder.
package evals
