// Package tally is durable memory for AI agents: an event-sourced, append-only log of sessions. Every change is an event
// that is appended and never altered, and every read is a fold of events. So a session can be read as of any point,
// rewound, undone and forked, and nothing is lost.
//
// A [Store] is a log with its loader, snapshots and views. Most programs open one with the package embedded:
//
//	st, err := embedded.Open(ctx, embedded.Options{Store: dir})
//
// and then work with handles, which are cheap and do no I/O until asked:
//
//	s := st.Session("support-42")
//	ack, err := s.AppendTurns(ctx, events.MainThread, json.RawMessage(`{"role":"user","content":"hi"}`))
//	state, err := s.Load(ctx, "head")
//
// [Session.Follow] yields new records. [Store.Sessions] lists sessions. Any SQLite client can search turns in the views
// below [Store.ViewsDir]; docs/catalog.md describes their tables.
//
// A position in a session has the same form in the API and in commands: "head" or "" for now, "start", an offset such as
// "@1234", the n-th turn "#3" or "gpt-5#3" of another thread than main, "~2" for the session without its last two turns,
// a time such as "2026-08-22T10:00Z", "-10m" for ten minutes before the latest event, or "e:" and the beginning of an
// event's id. [projector.Position] describes each form.
//
// Content outside of sessions is a document: named content with revisions, by [Store.Documents]. Documents are written
// with compare-and-swap, read as of any revision, listed, watched, and changed together in transactions; see
// docs/documents.md.
//
// The stores that tally replaces have packages of their own below stores, with the original's names: evals for recorded
// conversations and their judgements, errata for panels of models, ailoop for the histories of an agent loop, perstack
// for jobs with their checkpoints, tavern for the shared state of a team of agents.
package tally
