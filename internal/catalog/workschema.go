package catalog

// WorkFileName is the name of the file of open work, in the directory of the store.
const WorkFileName = "work.db"

// workForm is the work view's form. Its version changes with the fold and the tables. Times stored as numbers are Unix
// milliseconds by the log, rounded up.
var workForm = form{
	view:    "work",
	version: 3,
	page:    1 << 10, // most stores have no queues
	tables:  []string{"queues", "items", "waits", "inboxes", "messages", "questions", "agents", "flows", "owned", "gone", "due"},
	schema: `
CREATE TABLE queues{set}(
	namespace TEXT NOT NULL, id TEXT NOT NULL, title TEXT NOT NULL, owner TEXT NOT NULL, created INTEGER NOT NULL,
	serial INTEGER NOT NULL, pass INTEGER NOT NULL, head_offset INTEGER NOT NULL, data BLOB NOT NULL,
	PRIMARY KEY(namespace, id)) WITHOUT ROWID;
CREATE TABLE items{set}(
	namespace TEXT NOT NULL, queue TEXT NOT NULL, id TEXT NOT NULL, offset INTEGER NOT NULL, number INTEGER NOT NULL,
	state TEXT NOT NULL, due INTEGER NOT NULL, expires INTEGER NOT NULL, rank INTEGER NOT NULL, data BLOB NOT NULL,
	PRIMARY KEY(namespace, queue, id), UNIQUE(namespace, queue, offset, number), UNIQUE(namespace, queue, state, due, rank, offset, number)) WITHOUT ROWID;
CREATE TABLE waits{set}(
	namespace TEXT NOT NULL, queue TEXT NOT NULL, id TEXT NOT NULL, after TEXT NOT NULL,
	PRIMARY KEY(namespace, queue, id, after)) WITHOUT ROWID;
CREATE TABLE inboxes{set}(
	namespace TEXT NOT NULL, id TEXT NOT NULL, seen INTEGER NOT NULL, status TEXT NOT NULL, gone INTEGER NOT NULL, messages INTEGER NOT NULL,
	refused_offset INTEGER NOT NULL, refusals INTEGER NOT NULL, reason TEXT NOT NULL, retry INTEGER NOT NULL, head_offset INTEGER NOT NULL,
	PRIMARY KEY(namespace, id)) WITHOUT ROWID;
CREATE TABLE messages{set}(
	namespace TEXT NOT NULL, inbox TEXT NOT NULL, offset INTEGER NOT NULL, number INTEGER NOT NULL,
	id TEXT NOT NULL, sender TEXT NOT NULL, type TEXT NOT NULL, thread TEXT NOT NULL, bytes INTEGER NOT NULL, at INTEGER NOT NULL,
	expects TEXT NOT NULL, deadline TEXT NOT NULL, answered INTEGER NOT NULL, owed INTEGER NOT NULL,
	PRIMARY KEY(namespace, inbox, offset, number), UNIQUE(namespace, inbox, sender, id, offset, number)) WITHOUT ROWID;
CREATE TABLE questions{set}(
	namespace TEXT NOT NULL, asker TEXT NOT NULL, asked TEXT NOT NULL, id TEXT NOT NULL, offset INTEGER NOT NULL, number INTEGER NOT NULL,
	PRIMARY KEY(namespace, asker, asked, id)) WITHOUT ROWID;
CREATE TABLE agents{set}(
	namespace TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, created INTEGER NOT NULL, said INTEGER NOT NULL,
	title TEXT NOT NULL, owner TEXT NOT NULL, parent TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL,
	holder TEXT NOT NULL, lease TEXT NOT NULL, finished_at TEXT NOT NULL, archived_at TEXT NOT NULL, purged_at TEXT NOT NULL,
	gone INTEGER NOT NULL, last_at TEXT NOT NULL, head_offset INTEGER NOT NULL,
	PRIMARY KEY(namespace, id)) WITHOUT ROWID;
CREATE TABLE flows{set}(
	namespace TEXT NOT NULL, id TEXT NOT NULL, held INTEGER NOT NULL, outcome TEXT NOT NULL, ended INTEGER NOT NULL,
	last_at TEXT NOT NULL, head_offset INTEGER NOT NULL, data BLOB NOT NULL,
	PRIMARY KEY(namespace, id), UNIQUE(namespace, ended, id)) WITHOUT ROWID;
CREATE TABLE owned{set}(
	what TEXT NOT NULL, namespace TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, owner TEXT NOT NULL,
	PRIMARY KEY(namespace, kind, id), UNIQUE(namespace, owner, kind, id)) WITHOUT ROWID;
CREATE TABLE gone{set}(
	namespace TEXT NOT NULL, owner TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY(namespace, owner)) WITHOUT ROWID;
CREATE TABLE due{set}(
	what TEXT NOT NULL, namespace TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, about INTEGER NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL,
	PRIMARY KEY(what, namespace, kind, id, about, number), UNIQUE(what, at, namespace, kind, id, about, number)) WITHOUT ROWID;
`}
