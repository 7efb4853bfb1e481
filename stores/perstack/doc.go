// Package perstack stores the jobs of an agent runtime as @perstack/storage does: a job per task, runs inside it, a
// checkpoint per step for resuming, and an event per change of state.
//
// The functions of the original are in storage.go under their own names:
//
//	job := perstack.CreateInitialJob("j1", "coder")
//	err := perstack.StoreJob(ctx, st, job)
//	err = perstack.DefaultStoreCheckpoint(ctx, st, checkpoint)
//
// New programs use a [Handle], which offers more:
//
//	h := perstack.JobOf(st, "j1")
//	ack, err := h.SaveCheckpoint(ctx, checkpoint)
//	next, err := h.Resume(ctx, checkpoint.ID)
//
// A job is the session job/<id> of the store. In the original, every checkpoint and many events repeat all messages.
// The log has each message once, as a turn of a thread of its run, and reads return the whole list again, byte for
// byte. An acknowledged write survives a power cut. Package perstackdir reads and writes the original's folder.
package perstack
