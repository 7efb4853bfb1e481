// Package catalog keeps three views over all subjects in SQLite files: the catalog
// (views.db: sessions, runs, documents, costs), from which lists are made, the
// text of all turns with what was spent and done in them (search.db), which is searched
// and counted, and what is to be done and by whom (work.db: queues, inboxes, agents, flows,
// what is due).
//
// All are caches: deleting them loses nothing. One process writes a file and any
// number read it, also with other programs: docs/catalog.md describes the tables.
// The rows and the cursor that says up to where the log is folded are one
// transaction. A second writer is refused by that: the one that commits finds the
// cursor where it left it, or begins anew from where it is.
package catalog
