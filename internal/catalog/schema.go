package catalog

import (
	"cmp"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Names of the files, in the directory of the store.
const (
	FileName       = "views.db"
	SearchFileName = "search.db"
)

// catalogForm is the catalog's form. Its version changes with the fold, with the tables, and with the texts that
// describe a session.
var catalogForm = form{
	view:    "catalog",
	version: 15,
	tables:  []string{"sessions", "marks", "runs", "costs", "documents", "links", "responses", "progress", "counts"},
	schema: countsSchema + responsesSchema + progressSchema + `
CREATE TABLE sessions{set}(
	session INTEGER PRIMARY KEY, namespace TEXT NOT NULL, id TEXT NOT NULL,
	kind TEXT NOT NULL, title TEXT NOT NULL, status TEXT NOT NULL, project TEXT NOT NULL, cwd TEXT NOT NULL,
	goal TEXT NOT NULL, opening TEXT NOT NULL,
	created_at TEXT NOT NULL, last_at TEXT NOT NULL,
	turns INTEGER NOT NULL, total_turns INTEGER NOT NULL, runs INTEGER NOT NULL, rewinds INTEGER NOT NULL,
	records INTEGER NOT NULL, stale INTEGER NOT NULL, rejected INTEGER NOT NULL,
	usd TEXT NOT NULL, usd_real REAL NOT NULL, costs INTEGER NOT NULL,
	input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, reasoning_tokens INTEGER NOT NULL,
	cache_read_tokens INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL,
	parent TEXT NOT NULL, fork_session TEXT NOT NULL, fork_offset INTEGER NOT NULL,
	first_offset INTEGER NOT NULL, head_offset INTEGER NOT NULL, live TEXT NOT NULL,
	steps INTEGER NOT NULL, reached TEXT NOT NULL, total_tokens INTEGER NOT NULL, finished_at TEXT NOT NULL,
	raw_offset INTEGER NOT NULL, models TEXT NOT NULL, erased INTEGER NOT NULL, fold BLOB NOT NULL,
	UNIQUE(namespace, id), UNIQUE(namespace, head_offset), UNIQUE(namespace, last_at, id DESC));
CREATE TABLE marks{set}(
	session INTEGER NOT NULL, number INTEGER NOT NULL, offset INTEGER NOT NULL, turns INTEGER NOT NULL, data BLOB NOT NULL,
	PRIMARY KEY(session, number)) WITHOUT ROWID;
CREATE TABLE runs{set}(
	session INTEGER NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, offset INTEGER NOT NULL, created_offset INTEGER NOT NULL,
	created_at TEXT NOT NULL, touched_at TEXT NOT NULL, state TEXT NOT NULL, starts INTEGER NOT NULL, progress INTEGER NOT NULL,
	versions INTEGER NOT NULL, outcome TEXT NOT NULL, finished_at TEXT NOT NULL, result_offset INTEGER NOT NULL, result_bytes INTEGER NOT NULL,
	note TEXT NOT NULL, selected TEXT NOT NULL, rating TEXT NOT NULL,
	owner TEXT NOT NULL, due_at TEXT NOT NULL, template TEXT NOT NULL, setting_offset INTEGER NOT NULL, parent_session TEXT NOT NULL, parent_run TEXT NOT NULL,
	claim_offset INTEGER NOT NULL, worker TEXT NOT NULL, attempt INTEGER NOT NULL, lease_until INTEGER NOT NULL, fenced INTEGER NOT NULL,
	PRIMARY KEY(session, kind, id)) WITHOUT ROWID;
CREATE TABLE costs{set}(
	session INTEGER NOT NULL, day TEXT NOT NULL, model TEXT NOT NULL, run_kind TEXT NOT NULL, run_id TEXT NOT NULL,
	usd TEXT NOT NULL, usd_real REAL NOT NULL, costs INTEGER NOT NULL,
	input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, reasoning_tokens INTEGER NOT NULL,
	cache_read_tokens INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL,
	PRIMARY KEY(session, day, model, run_kind, run_id)) WITHOUT ROWID;
CREATE TABLE documents{set}(
	namespace TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, title TEXT NOT NULL, content_type TEXT NOT NULL,
	bytes INTEGER NOT NULL, sha256 TEXT NOT NULL, owner TEXT NOT NULL, layer TEXT NOT NULL, expires_at TEXT NOT NULL,
	links INTEGER NOT NULL, revisions INTEGER NOT NULL, rejected INTEGER NOT NULL,
	deleted INTEGER NOT NULL, reason TEXT NOT NULL, renamed_to TEXT NOT NULL,
	first_offset INTEGER NOT NULL, head_offset INTEGER NOT NULL, updated_at TEXT NOT NULL,
	PRIMARY KEY(namespace, kind, id), UNIQUE(namespace, kind, head_offset)) WITHOUT ROWID;
CREATE TABLE links{set}(
	namespace TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, rel TEXT NOT NULL, to_subject TEXT NOT NULL,
	PRIMARY KEY(namespace, kind, id, rel, to_subject), UNIQUE(namespace, to_subject, kind, id, rel)) WITHOUT ROWID;
`}

// Session is a row of the list of sessions.
type Session struct {
	Namespace string
	ID        string
	Kind      string
	Title     string
	Status    string
	Project   string
	CWD       string
	Goal      string // of a simulation; at most 200 bytes
	Opening   string // first message of a user, rewound or inherited ones included: a line of at most 200 bytes
	CreatedAt events.Timestamp
	LastAt    events.Timestamp // the latest time of any record with a time of its own

	Turns      int // in effect, over all threads; of a transcript, in its main thread
	TotalTurns int // turns ever added to these threads, rewound ones included
	Runs       int
	Rewinds    int
	Records    int
	Stale      int
	Rejected   int
	Spent      projector.Total

	Parent      string // session that started it
	Fork        events.Fork
	First, Head events.Offset
	Live        Intervals // the records in effect

	Steps       int64            // the largest step number in any record
	Reached     string           // status of the checkpoint of the largest step; of several, the last
	TotalTokens int64            // total that the session reports, independent of its costs
	FinishedAt  events.Timestamp // as the session reports it
	Raw         events.Offset    // the last record that holds the producer's complete stored form; 0: none

	Models string // models that the session reports, separated by commas: a line of at most 200 bytes
	Erased bool   // all content of the session was erased, and a fork has inherited none
}

// About returns a line that describes the session: its title, else its goal, else the first message of a user.
func (s *Session) About() string { return cmp.Or(s.Title, s.Goal, s.Opening) }

// sessionColumns are in the order of columns.
const sessionColumns = `namespace, id, kind, title, status, project, cwd, goal, opening, created_at, last_at,
	turns, total_turns, runs, rewinds, records, stale, rejected,
	usd, usd_real, costs, input_tokens, output_tokens, reasoning_tokens, cache_read_tokens, cache_write_tokens,
	parent, fork_session, fork_offset, first_offset, head_offset, live,
	steps, reached, total_tokens, finished_at, raw_offset, models, erased`

// columns returns pointers to the stored columns of a session.
func (s *Session) columns() []any {
	list := []any{&s.Namespace, &s.ID, &s.Kind, &s.Title, &s.Status, &s.Project, &s.CWD, &s.Goal, &s.Opening, &s.CreatedAt, &s.LastAt,
		&s.Turns, &s.TotalTurns, &s.Runs, &s.Rewinds, &s.Records, &s.Stale, &s.Rejected}
	list = append(list, totalColumns(&s.Spent)...)
	return append(list, &s.Parent, &s.Fork.Session, offset(&s.Fork.Offset), offset(&s.First), offset(&s.Head), &s.Live,
		&s.Steps, &s.Reached, &s.TotalTokens, &s.FinishedAt, offset(&s.Raw), &s.Models, &s.Erased)
}

// totalColumns returns pointers to the columns of a sum: the exact decimal, an approximate number for sorting that is
// never read back, and the counts.
func totalColumns(t *projector.Total) []any {
	near := 0.0
	if r, ok := t.USD.Rat(); ok {
		near, _ = r.Float64()
	}
	return []any{&t.USD, &near, &t.Events, &t.Tokens.Input, &t.Tokens.Output, &t.Tokens.Reasoning, &t.Tokens.CacheRead, &t.Tokens.CacheWrite}
}
