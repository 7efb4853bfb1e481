package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tallylog/tally/events"
)

// Glance opens the catalog in a directory for a short read. It never waits, and creates no files. It sees committed
// rows. If no catalog can be read like this, the error is ErrNoView.
func Glance(ctx context.Context, dir string) (Reader, error) {
	path := filepath.Join(dir, FileName)
	mode, err := glanceMode(path)
	if err != nil {
		return Reader{}, fmt.Errorf("%w: %v", ErrNoView, err)
	}
	r, err := newReader(ctx, catalogForm, path, mode)
	return Reader{r}, err
}

// glanceMode returns the mode that opens a file without creating another file. Without a write-ahead log, all rows are
// in the file and there is no writer. With one, SQLite needs the log's index, which it would create if it is missing.
func glanceMode(path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	if _, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		return "ro&immutable=1", nil
	}
	_, err := os.Stat(path + "-shm")
	return "ro", err
}

// window is the maximum number of rows that an otherwise unbounded query reads.
const window = 2000

// Beginning returns at most limit sessions whose ids begin with a text, most recently written first. If there are more,
// the result contains the first and the last in order of ids. So the results have the same common prefix as all
// matches. With thousands of matches, the others are recently written sessions. Sessions of which all content was erased
// are left out.
func (r Reader) Beginning(ctx context.Context, namespace, text string, limit int) ([]Session, error) {
	end := sortBehind(text)
	list, err := r.sessions(ctx, fmt.Sprintf(`SELECT session FROM (
			SELECT * FROM (SELECT session, head_offset FROM sessions WHERE namespace=?1 AND id>=?2 AND id<?3 AND erased=0 ORDER BY id LIMIT %[1]d)
			UNION SELECT session, head_offset FROM (SELECT session, id, head_offset FROM sessions WHERE namespace=?1 AND erased=0 ORDER BY head_offset DESC LIMIT %[1]d)
				WHERE id>=?2 AND id<?3)
		ORDER BY head_offset DESC LIMIT ?4`, window), namespace, text, end, limit)
	if err != nil || len(list) < limit {
		return list, err
	}
	ends, err := r.sessions(ctx, `SELECT session FROM sessions WHERE namespace=?1 AND id IN (
		(SELECT min(id) FROM sessions WHERE namespace=?1 AND id>=?2 AND id<?3 AND erased=0), (SELECT max(id) FROM sessions WHERE namespace=?1 AND id>=?2 AND id<?3 AND erased=0))`, namespace, text, end)
	for _, s := range ends {
		if !slices.ContainsFunc(list, func(o Session) bool { return o.ID == s.ID }) {
			list = append(list, s)
		}
	}
	return list, err
}

// sortBehind returns a value that SQLite sorts behind all texts with a prefix. If there is no such text, it returns a
// blob: blobs sort behind every text.
func sortBehind(text string) any {
	b := []byte(text)
	for len(b) > 0 && b[len(b)-1] == 0xff {
		b = b[:len(b)-1]
	}
	if len(b) == 0 {
		return b
	}
	b[len(b)-1]++
	return string(b)
}

// Roots returns at most limit distinct parts of ids up to and including the first slash.
func (r Reader) Roots(ctx context.Context, namespace string, limit int) ([]string, error) {
	return r.texts(ctx, `WITH RECURSIVE n(root) AS (
		SELECT (SELECT substr(id, 1, instr(id, '/')) FROM sessions WHERE namespace=?1 AND instr(id, '/')>0 ORDER BY id LIMIT 1)
		UNION ALL SELECT (SELECT substr(id, 1, instr(id, '/')) FROM sessions
			WHERE namespace=?1 AND id>=substr(n.root, 1, length(n.root)-1)||'0' AND instr(id, '/')>0 ORDER BY id LIMIT 1) FROM n WHERE n.root IS NOT NULL
	) SELECT root FROM n WHERE root IS NOT NULL LIMIT ?2`, namespace, limit) // 0 is the character after the slash
}

// sessions returns the rows whose keys a statement selects, ordered by head.
func (r Reader) sessions(ctx context.Context, keys string, args ...any) ([]Session, error) {
	rows, err := r.db.QueryContext(ctx, "SELECT "+sessionColumns+" FROM sessions WHERE session IN ("+keys+") ORDER BY head_offset DESC", args...)
	list, err := collect(rows, err, (*Session).columns)
	return list, r.wrap(err)
}

// Named returns the session that a name identifies. That is the session with this id, else the only session whose id
// continues so after its first slash, else the only one whose id begins so. "last" is the most recently active session.
// If no session or several match, Named returns false.
func (r Reader) Named(ctx context.Context, namespace, name string) (Session, bool, error) {
	if name == "last" {
		page, err := r.List(ctx, Query{Namespace: namespace, Sort: ByActive, Limit: 1})
		return firstOf(page.Sessions), len(page.Sessions) > 0, err
	}
	whole := []string{name}
	if id, err := events.UnescapeID(name); err == nil && id != name {
		whole = append(whole, id)
	}
	for _, id := range whole {
		if s, ok, err := r.Session(ctx, namespace, id); ok || err != nil {
			return s, ok, err
		}
	}
	roots, err := r.Roots(ctx, namespace, window)
	if err != nil {
		return Session{}, false, err
	}
	var list, exact []Session
	for _, root := range append(roots, "") {
		id := root + name
		found, err := r.sessions(ctx, "SELECT session FROM sessions WHERE namespace=? AND id>=? AND id<? ORDER BY id LIMIT 2", namespace, id, sortBehind(id))
		if err != nil {
			return Session{}, false, err
		}
		list = append(list, found...)
		if i := slices.IndexFunc(found, func(s Session) bool { return s.ID == id }); i >= 0 {
			exact = append(exact, found[i])
		}
	}
	if len(exact) > 0 {
		list = exact
	}
	return firstOf(list), len(list) == 1, nil
}

func firstOf(list []Session) Session {
	if len(list) == 0 {
		return Session{}
	}
	return list[0]
}

// RunRow is a run of a session in the catalog.
type RunRow struct {
	events.RunRef
	State, Outcome string
}

// Runs returns at most limit runs of a session, newest first.
func (r Reader) Runs(ctx context.Context, namespace, id string, limit int) ([]RunRow, error) {
	rows, err := r.db.QueryContext(ctx, `SELECT kind, id, state, outcome FROM runs
		WHERE session=(SELECT session FROM sessions WHERE namespace=? AND id=?) ORDER BY offset DESC LIMIT ?`, namespace, id, limit)
	list, err := collect(rows, err, func(run *RunRow) []any { return []any{&run.Kind, &run.ID, &run.State, &run.Outcome} })
	return list, r.wrap(err)
}

// Happened returns at most limit names of progress in a session's runs, in order.
func (r Reader) Happened(ctx context.Context, namespace, id string, limit int) ([]string, error) {
	return r.texts(ctx, `SELECT DISTINCT name FROM progress WHERE session=(SELECT session FROM sessions WHERE namespace=? AND id=?)
		AND name<>'' ORDER BY name LIMIT ?`, namespace, id, limit)
}

// Namespaces returns at most limit namespaces that have sessions, in order.
func (r Reader) Namespaces(ctx context.Context, limit int) ([]string, error) {
	return r.texts(ctx, `WITH RECURSIVE n(name) AS (
		SELECT min(namespace) FROM sessions
		UNION ALL SELECT (SELECT min(namespace) FROM sessions WHERE namespace>n.name) FROM n WHERE n.name IS NOT NULL
	) SELECT name FROM n WHERE name IS NOT NULL LIMIT ?`, limit)
}

// Field is a column for completion.
type Field string

// The fields.
const (
	FieldKind    Field = "kind"
	FieldProject Field = "project"
)

// Used returns the values of a field in recently written sessions, in order.
func (r Reader) Used(ctx context.Context, namespace string, f Field) ([]string, error) {
	return r.texts(ctx, fmt.Sprintf(`SELECT DISTINCT value FROM (SELECT %s AS value FROM sessions WHERE namespace=? ORDER BY head_offset DESC LIMIT %d)
		WHERE value<>'' ORDER BY value`, f, window), namespace)
}

// Models returns the models with costs in recently written sessions, in order.
func (r Reader) Models(ctx context.Context, namespace string) ([]string, error) {
	return r.texts(ctx, fmt.Sprintf(`SELECT DISTINCT model FROM costs WHERE session IN (SELECT session FROM sessions WHERE namespace=? ORDER BY head_offset DESC LIMIT %d)
		AND model<>'' ORDER BY model`, window), namespace)
}

func (r Reader) texts(ctx context.Context, text string, args ...any) ([]string, error) {
	rows, err := r.db.QueryContext(ctx, text, args...)
	list, err := collect(rows, err, oneColumn[string])
	return list, r.wrap(err)
}
