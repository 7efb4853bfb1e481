// Package catalog keeps three views over all subjects in SQLite files. views.db is the catalog (sessions, runs,
// documents, costs), the source of lists. search.db holds the text of all turns with usage and tool calls, for search
// and statistics. work.db holds the open work: queues, inboxes, agents, flows, and due times.
//
// All are caches: deleting them loses nothing. One process writes a file and any number of processes read it, also with
// other programs: docs/catalog.md describes the tables. A transaction stores rows together with the cursor, the offset
// up to which the log is folded. This also detects a second writer: a commit succeeds only if the cursor is where the
// writer left it. Otherwise the writer begins again from the stored cursor.
package catalog
