// Package ingest brings the sessions that agents keep in files into the log, while they
// are written: an agent of package agents says what the lines mean, and a log has them.
//
// # What a line becomes
//
// Each line is one event, turn.appended of one turn with the line's bytes. What follows
// from it by the agent's word is appended with it, in one series: what happened before the
// line could be written first, the line, what follows. The line's id is its own if it has
// one that no other line of the session has, else
//
//	<stem>@<offset>       where its bytes begin in the file
//	<stem>#<g>@<offset>   of generation g, see below
//
// and the ids of what follows from it begin with it, so that nothing is there twice.
// The extension tallyline says where the line stands, its end included; meta says what of
// its bytes is in no turn: blank bytes before it and an end other than a line feed. So the
// lines of a file in their order are the file, byte for byte but for what was redacted
// ([Files]). A line longer than 4 MiB is several of such pieces, none of which is JSON.
//
// A file may have lines of several sessions, as that of a connection has. Such a line stands
// in the session that it is of, with the extension tallyowner naming the file's own, where
// the lines stand that name none. The file's session says in its field sessions which others
// there are, before the first line of one is appended; so its lines are found again, and
// [Files] gives it back whole, for each of the sessions.
//
// # What is remembered
//
// Nothing that is not in the log, but how far files were read; and that may be lost. When a
// session is touched its records are read once: which lines are there, where their events
// stand, and what the agent's fold makes of them. A line that is there is left out, whoever
// delivers it again. If a crash cut a series short, what the last line owes is appended.
//
// # What files do
//
// Content that is not what the log has of it (a file that shrank, was replaced or edited)
// is a new generation: thread.replaced keeps the turns of the lines that are still as they
// were, up to the first other one, and the lines from there on are new. All that was there
// stays readable at its offset. If one of the lines to be kept is not in effect, because
// the session went back behind it, none is kept, and what is in effect follows from the
// new lines alone. Nor is any if one of the lines that go replaced turns, as what was there
// before them does not come back by itself. What an old line cost is not counted again. A line that was redacted, then or now,
// is compared by its place and length.
//
// A file that is moved goes on under its new name, which session.updated says in tallyline if
// no line does, so that [Files] has it. In the archive, its session is archived; gone from
// disk, it says sourceGone. Under a name that names another session it is that one's, from
// its beginning, and gone from the one that it was of. Two files with one stem in one session, as below two
// roots, are not both kept: the second one is reported and left out.
//
// # Places
//
// A rewind or a fork leads to the end of a line, which may be in another session. If that
// is not in the log yet, the file waits as long as others have something to deliver. Then a
// fork is created without what it continues: it names it as its parent, and stays so when
// the parent comes later, because a session is created once. A rewind that leads nowhere is
// reported and not guessed.
//
// # Namespaces
//
// Options.Route says where sessions of a project go, by the first cwd that a file of the
// session says, those of a connection's sessions included. One decision counts for all files of
// a session and for the lines of other sessions in them: for a session that the state knows, it
// is where it was; for one that the log has, in the namespace of its cwd or else in the one of
// all others, it is there; a new one goes where the session is that it continues or that started
// it, so that it finds it, else by its cwd. So a followed session stays where it began, and what
// is said of its folder later holds for new ones. Only if the state is lost too, and the session
// is in a third namespace, it is taken whole into the one that holds now: nothing is lost, and
// it is there twice. Names of sessions are those of their own namespace: a fork of one that is
// in another begins without it.
//
// Lines wait for one that says a cwd, and are not acknowledged, until a line is a message, as who
// has not said by then where it works may never do so; until nothing came for Options.Quiet, with
// Once no longer than to the file's end; or until they are more than can be held. Then the
// session goes where Route says of those that say none, whatever it says later.
//
// A session that Route leaves alone is read and not stored; the state remembers it, so that it
// stays so.
//
// # Order
//
// Files that are a session's own, of the thread main, are read in the order of their stems: one
// that is new waits until those before it were read to their ends, and all that is there was
// looked at. It waits for none that cannot be read or appended, which is reported. By the name
// alone a file may seem to be of another one's session; then it waits for that in vain.
//
// # At once
//
// Several sessions are dealt with at once, so that one wait for the disk serves them all; the
// batches of one in their order. A session is used by one at a time, also where it is only
// looked at for a place; if it waits itself for who asks, the place counts as not there.
//
// # When the log does not take it
//
// A full store, one that does not answer, and an answer that got lost are waited for, and
// the same series is appended again: files are the buffer. A file is acknowledged to package
// tail when its events are durable.
package ingest
