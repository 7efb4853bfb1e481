// Package evals keeps recorded conversations, the simulations that produced them and
// the runs that judged them.
//
// A program gets a handle on a conversation, which does no I/O until a method is
// called:
//
//	c := evals.Of(st, "travel")
//	ack, err := c.Append(ctx, step) // when it returns, the step is on disk
//	data, err := c.Load(ctx)
//	run, err := c.CreateRun(ctx, evals.TallyRun, "")
//
// A conversation is a session of the store, so that every earlier content can be read,
// rewound and forked. Programs that used tally-evals' TallyStore find in
// docs/from-tally-evals.md what is called what. The package tallydir reads and writes
// the original's folder.
package evals
