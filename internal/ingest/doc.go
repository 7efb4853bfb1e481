// Package ingest appends the sessions that agents keep in files to the log while they are written. An agent of package
// agents interprets the lines.
//
// # Events of a line
//
// Each line becomes one event, turn.appended, with one turn that holds the line's bytes. The agent derives further
// events from it, which are appended in the same series: first events that happened before the line could be written,
// then the line, then its consequences. If the line has an id of its own that is unique in the session, this is the
// event's id. Otherwise the id is
//
//	<stem>@<offset>       where its bytes begin in the file
//	<stem>#<g>@<offset>   of generation g, see below
//
// The ids of derived events begin with the line's id, so no event is stored twice. The extension tallyline holds the
// position of the line, including its end. meta holds the bytes of the line outside the turn: blank bytes before it,
// and an end other than a line feed. So the lines of a file, in order, reproduce the file byte for byte, except for
// redactions ([Files]). A line longer than 4 MiB is stored in several pieces, none of which is JSON.
//
// A file may contain lines of several sessions, for example the file of a connection. Such a line is stored in its own
// session, and its extension tallyowner names the file's session. Lines without a session are stored in the file's
// session. Before the first line of another session is appended, the file's session lists that session in its field
// sessions. So all lines are found again, and [Files] returns the whole file for each of the sessions.
//
// # State
//
// The log is the only state, except for the read positions of files, which may be lost. When a session is used, its
// records are read once, to learn which lines are stored, the offsets of their events, and the state of the agent's
// fold. A line that is stored already is skipped, regardless of its source. If a crash truncated a series, the missing
// events of its last line are appended.
//
// # Changed files
//
// If the content of a file differs from the log (the file shrank, was replaced or edited), a new generation begins. A
// thread.replaced event keeps the turns of the unchanged lines before the first difference, and the lines from there on
// are new. The old content stays readable at its offsets. In two cases no line is kept: one of the kept lines is not in
// effect, because the session was rewound behind it; or one of the removed lines replaced turns, because removing it
// does not restore them. Then the new lines alone determine the turns in effect. The cost of an old line is not counted
// again. A line that was redacted, then or now, or that was erased, is compared by position and length.
//
// A moved file continues under its new name. If no line records the name, a session.updated event does, in tallyline,
// for [Files]. If the file is in the archive, its session is archived. If it is missing, the session gets sourceGone.
// If a new name implies another session, that session gets the file from its beginning, and the former session's file
// is gone. If two files of a session have the same stem, for example in two roots, the second one is reported and
// skipped.
//
// # References
//
// A rewind or a fork refers to the end of a line, possibly in another session. If that line is not in the log yet, the
// file waits while other files have lines to deliver. After that, the fork is created without the content that it
// continues: it names the other session as its parent. It stays so when the parent arrives later, because a session is
// created once. A rewind without a target is reported and skipped.
//
// # Namespaces
//
// Options.Route returns the namespace for the sessions of a project, by the first cwd in a file of the session,
// including the sessions of a connection. One decision covers all files of a session and the lines of other sessions in
// them. A session in the state keeps its namespace. A session that the log has in the namespace of its cwd, or else in
// the default one, keeps that. A new session goes to the namespace of the session that it continues or that started it,
// so that the reference resolves, else by its cwd. So a followed session stays in place, and a changed route applies to
// new sessions. If the state is lost as well, and the session is in a third namespace, it is stored completely in the
// namespace of the current route: no data are lost, but the session exists twice. References stay within a namespace: a
// fork of a session in another namespace begins without it.
//
// Lines wait, unacknowledged, for a line with a cwd. The wait ends at the first message, because an agent that did not
// name its folder before may never do so. It also ends when no line arrived for Options.Quiet, with Once at the end of
// the file, or when the lines exceed the bounds. Then the session goes to the namespace for sessions without a cwd, for
// good.
//
// A session that Route declines is read but not stored. The state records that, so it stays declined.
//
// # Order
//
// The files of a session's thread main are read in the order of their stems. A new file waits until the earlier ones
// were read to their ends and all existing files were examined. It does not wait for a file that cannot be read or
// appended; that is reported. If the name alone assigns a file to the wrong session, it waits without need.
//
// # Concurrency
//
// Several sessions are processed at once, so that one wait for the disk serves all of them. The batches of one session
// are processed in order. A session has one user at a time, even for a look-up of a reference. If that would be a
// deadlock, the reference counts as missing.
//
// # Refused appends
//
// If the store is full or unavailable, or an answer got lost, the same series is appended again later: the files are
// the buffer. A file is acknowledged to package tail when its events are durable.
package ingest
