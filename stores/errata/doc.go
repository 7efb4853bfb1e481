// Package errata keeps panel sessions: several models side by side on one prompt, a
// history for each of them, their runs with what persons said of them, costs, and a
// rewind stack that takes files along.
//
// A program gets a handle on a session, which does no I/O until a method is called:
//
//	s := errata.Of(st, "ses_0198c2")
//	a, err := s.AppendHistories(ctx, panel, responses, prompt)
//	run, err := s.PersistRunState(ctx, errata.Run{Prompt: prompt, Responses: responses})
//
// Programs that used errata's session datastore find its names, each with a context
// and an error, in what New returns; docs/from-errata.md lists them. The
// package erratadir reads and writes the original's files.
package errata
