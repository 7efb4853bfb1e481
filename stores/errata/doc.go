// Package errata keeps panel sessions: several models answer the same prompt, with a history for each of them. A
// session has runs with the user's selections and notes, costs, and a rewind stack that restores files, too.
//
// A program gets a handle on a session. The handle does no I/O until a method is called:
//
//	s := errata.Of(st, "ses_0198c2")
//	a, err := s.AppendHistories(ctx, panel, responses, prompt)
//	run, err := s.PersistRunState(ctx, errata.Run{Prompt: prompt, Responses: responses})
//
// New returns a Store with the names of errata's session datastore, each with a context and an error;
// docs/from-errata.md lists them. The package erratadir reads and writes the original's files.
package errata
