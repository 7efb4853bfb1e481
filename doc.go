// Package tally is durable memory for AI agents: an event-sourced, append-only
// log of sessions. Every change is an event that is appended and never altered;
// everything that is read is a fold of events. So a session can be looked at as
// it was at any point, rewound, undone and forked, and nothing is lost.
//
// A [Store] is a log together with what is needed to read it. Most programs get
// one from the package embedded:
//
//	st, err := embedded.Open(ctx, embedded.Options{Store: dir})
//
// and then work with handles, which are cheap and do no I/O until asked:
//
//	s := st.Session("support-42")
//	ack, err := s.AppendTurns(ctx, events.MainThread, json.RawMessage(`{"role":"user","content":"hi"}`))
//	state, err := s.Load(ctx, "head")
//
// [Session.Follow] yields what comes. Lists come from [Store.Sessions]. Turns are searched
// with any SQLite client in the views below [Store.ViewsDir]; docs/catalog.md has their tables.
//
// A position in a session is written as people and commands write it: "head" or ""
// for now, "start", an offset such as "@1234", the n-th turn "#3" or "gpt-5#3" of
// another thread than main, "~2" for without the last two turns, a time as it is shown
// such as "2026-08-22T10:00Z", "-10m" for so long before the latest, or "e:" and the
// beginning of an event's id. [projector.Position] says what each means.
//
// What is not a session is a document: named content with revisions, by [Store.Documents].
// It is written with compare-and-swap, read as it was, listed, watched, and changed together
// with others; docs/documents.md says more.
//
// The stores that tally replaces have packages of their own below stores, each with the
// words of the original: evals for recorded conversations and what judged them, errata
// for panels of models, ailoop for the histories of an agent loop, perstack for jobs with
// their checkpoints, tavern for what a team of agents shares.
package tally
