// Package perstack keeps the jobs of an agent runtime as @perstack/storage does: a job per
// task, runs inside it, a checkpoint per step to go on from, an event per change of state.
//
// The functions of the original stand in storage.go under their own names:
//
//	job := perstack.CreateInitialJob("j1", "coder")
//	err := perstack.StoreJob(ctx, st, job)
//	err = perstack.DefaultStoreCheckpoint(ctx, st, checkpoint)
//
// New programs use a [Handle], which can do more:
//
//	h := perstack.JobOf(st, "j1")
//	ack, err := h.SaveCheckpoint(ctx, checkpoint)
//	next, err := h.Resume(ctx, checkpoint.ID)
//
// A job is the session job/<id> of the store. A checkpoint repeats all messages and many an
// event does: the log has each message once, as a turn of a thread of its run, and what is
// read has the whole list again, byte for byte. What was acknowledged survives a power cut.
// The package perstackdir reads and writes the original's folder.
package perstack
