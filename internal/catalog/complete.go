package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// Glance opens the catalog in a directory to read a little of it and go: it waits for
// nobody, and leaves nothing beside the file. It sees what is committed. If there is none
// that can be read so, that is ErrNoView.
func Glance(ctx context.Context, dir string) (Reader, error) {
	r, err := glance(ctx, catalogForm, filepath.Join(dir, FileName))
	return Reader{r}, err
}

func glance(ctx context.Context, f form, path string) (*reader, error) {
	mode, err := glanceMode(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrNoView, err)
	}
	return newReader(ctx, f, path, mode)
}

// glanceMode says how to open a file without making one beside it. Without a write-ahead
// log everything is in the file, and nobody writes to it. With one, SQLite needs the
// index of it, which it would make.
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

// window is how many rows are looked at, at the most, where there is no end to them.
const window = 2000

// Beginning returns the sessions whose ids begin with a text, the one written to last
// first, at most so many. If there are more, the first and the last of all in the order
// of ids are among them: so what all that are returned begin with is what all that there
// are begin with. Of thousands, those are the newest that were written to of late.
func (r Reader) Beginning(ctx context.Context, namespace, text string, limit int) ([]Session, error) {
	end := after(text)
	list, err := r.sessions(ctx, fmt.Sprintf(`SELECT session FROM (
			SELECT * FROM (SELECT session, head_offset FROM sessions WHERE namespace=?1 AND id>=?2 AND id<?3 ORDER BY id LIMIT %[1]d)
			UNION SELECT session, head_offset FROM (SELECT session, id, head_offset FROM sessions WHERE namespace=?1 ORDER BY head_offset DESC LIMIT %[1]d)
				WHERE id>=?2 AND id<?3)
		ORDER BY head_offset DESC LIMIT ?4`, window), namespace, text, end, limit)
	if err != nil || len(list) < limit {
		return list, err
	}
	ends, err := r.sessions(ctx, `SELECT session FROM sessions WHERE namespace=?1 AND id IN (
		(SELECT min(id) FROM sessions WHERE namespace=?1 AND id>=?2 AND id<?3), (SELECT max(id) FROM sessions WHERE namespace=?1 AND id>=?2 AND id<?3))`, namespace, text, end)
	for _, s := range ends {
		if !slices.ContainsFunc(list, func(o Session) bool { return o.ID == s.ID }) {
			list = append(list, s)
		}
	}
	return list, err
}

// after returns what stands behind all texts that begin with one. If no text does, that is
// a blob, which SQLite sorts behind every text.
func after(text string) any {
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

// Roots returns what stands before the first slash of ids, with the slash, at most so many.
func (r Reader) Roots(ctx context.Context, namespace string, limit int) ([]string, error) {
	return r.texts(ctx, `WITH RECURSIVE n(root) AS (
		SELECT (SELECT substr(id, 1, instr(id, '/')) FROM sessions WHERE namespace=?1 AND instr(id, '/')>0 ORDER BY id LIMIT 1)
		UNION ALL SELECT (SELECT substr(id, 1, instr(id, '/')) FROM sessions
			WHERE namespace=?1 AND id>=substr(n.root, 1, length(n.root)-1)||'0' AND instr(id, '/')>0 ORDER BY id LIMIT 1) FROM n WHERE n.root IS NOT NULL
	) SELECT root FROM n WHERE root IS NOT NULL LIMIT ?2`, namespace, limit) // 0 stands behind the slash
}

// sessions returns the rows whose keys a statement returns, in the order of their heads.
func (r Reader) sessions(ctx context.Context, keys string, args ...any) ([]Session, error) {
	rows, err := r.db.QueryContext(ctx, "SELECT "+sessionColumns+" FROM sessions WHERE session IN ("+keys+") ORDER BY head_offset DESC", args...)
	list, err := collect(rows, err, (*Session).columns)
	return list, r.wrap(err)
}

// Named returns the session that an id names: the whole one, or else the only one of which
// this stands behind the first slash, or the only one that begins so; "last" is the one
// last active. False means that there is none, or several.
func (r Reader) Named(ctx context.Context, namespace, name string) (Session, bool, error) {
	if name == "last" {
		page, err := r.List(ctx, Query{Namespace: namespace, Sort: ByActive, Limit: 1})
		return first(page.Sessions), len(page.Sessions) > 0, err
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
		found, err := r.sessions(ctx, "SELECT session FROM sessions WHERE namespace=? AND id>=? AND id<? ORDER BY id LIMIT 2", namespace, id, after(id))
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
	return first(list), len(list) == 1, nil
}

func first(list []Session) Session {
	if len(list) == 0 {
		return Session{}
	}
	return list[0]
}

// Timeline returns the history of a session as far as the catalog has it, and false if
// there is no such session.
func (r Reader) Timeline(ctx context.Context, namespace, id string) (*projector.Timeline, bool, error) {
	s := newSession(events.Session(namespace, id))
	var state []byte
	err := r.db.QueryRowContext(ctx, "SELECT session, data FROM sessions JOIN state USING(session) WHERE namespace=? AND id=?", namespace, id).Scan(&s.key, &state)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	var blocks [][]byte
	if err == nil {
		var rows *sql.Rows
		rows, err = r.db.QueryContext(ctx, "SELECT data FROM marks WHERE session=? ORDER BY number", s.key)
		blocks, err = collect(rows, err, one[[]byte])
	}
	if err != nil {
		return nil, false, r.wrap(err)
	}
	if err := s.restore(state, blocks); err != nil {
		return nil, false, r.wrap(err)
	}
	return s.history, true, nil
}

// RunRow is a run of a session in the catalog.
type RunRow struct {
	events.RunRef
	State, Outcome string
}

// Runs returns runs of a session, the one made last first, at most so many.
func (r Reader) Runs(ctx context.Context, namespace, id string, limit int) ([]RunRow, error) {
	rows, err := r.db.QueryContext(ctx, `SELECT kind, id, state, outcome FROM runs
		WHERE session=(SELECT session FROM sessions WHERE namespace=? AND id=?) ORDER BY offset DESC LIMIT ?`, namespace, id, limit)
	list, err := collect(rows, err, func(run *RunRow) []any { return []any{&run.Kind, &run.ID, &run.State, &run.Outcome} })
	return list, r.wrap(err)
}

// Steps returns the numbers of the steps of a run in which something happened, the last one
// first, at most so many.
func (r Reader) Steps(ctx context.Context, namespace, id string, run events.RunRef, limit int) ([]string, error) {
	return r.texts(ctx, `SELECT DISTINCT step FROM progress WHERE session=(SELECT session FROM sessions WHERE namespace=? AND id=?)
		AND run_kind=? AND run_id=? AND kind NOT IN (?, ?) ORDER BY step DESC LIMIT ?`, namespace, id, run.Kind, run.ID, projector.ProgressStarted, projector.ProgressFinished, limit)
}

// Happened returns what the programs of a session call that which happened in its runs, in
// order, at most so many.
func (r Reader) Happened(ctx context.Context, namespace, id string, limit int) ([]string, error) {
	return r.texts(ctx, `SELECT DISTINCT name FROM progress WHERE session=(SELECT session FROM sessions WHERE namespace=? AND id=?)
		AND name<>'' ORDER BY name LIMIT ?`, namespace, id, limit)
}

// Namespaces returns the namespaces that have sessions, in order, at most so many.
func (r Reader) Namespaces(ctx context.Context, limit int) ([]string, error) {
	return r.texts(ctx, `WITH RECURSIVE n(name) AS (
		SELECT min(namespace) FROM sessions
		UNION ALL SELECT (SELECT min(namespace) FROM sessions WHERE namespace>n.name) FROM n WHERE n.name IS NOT NULL
	) SELECT name FROM n WHERE name IS NOT NULL LIMIT ?`, limit)
}

// Field is what sessions are told apart by.
type Field string

// The fields.
const (
	FieldKind    Field = "kind"
	FieldProject Field = "project"
)

// Used returns what sessions that were written to of late have in a field, in order.
func (r Reader) Used(ctx context.Context, namespace string, f Field) ([]string, error) {
	return r.texts(ctx, fmt.Sprintf(`SELECT DISTINCT value FROM (SELECT %s AS value FROM sessions WHERE namespace=? ORDER BY head_offset DESC LIMIT %d)
		WHERE value<>'' ORDER BY value`, f, window), namespace)
}

// Models returns the models that cost something in sessions written to of late, in order.
func (r Reader) Models(ctx context.Context, namespace string) ([]string, error) {
	return r.texts(ctx, fmt.Sprintf(`SELECT DISTINCT model FROM costs WHERE session IN (SELECT session FROM sessions WHERE namespace=? ORDER BY head_offset DESC LIMIT %d)
		AND model<>'' ORDER BY model`, window), namespace)
}

func (r Reader) texts(ctx context.Context, text string, args ...any) ([]string, error) {
	rows, err := r.db.QueryContext(ctx, text, args...)
	list, err := collect(rows, err, one[string])
	return list, r.wrap(err)
}

// Spoken is a turn as the search view has it.
type Spoken struct {
	Offset events.Offset // of the event that brought it
	Thread string
	Number int // among the turns that the event brought to the thread, from 0
	Roles  string
	Text   string // the beginning of it
}

// SpokenIn returns turns of a session up to an offset, in effect or not, the last one first,
// as the search view in a directory has them: at most so many, and only those that are
// not far from the offset in the log.
func SpokenIn(ctx context.Context, dir, namespace, session string, upto events.Offset, limit int) ([]Spoken, error) {
	r, err := glance(ctx, searchForm, filepath.Join(dir, SearchFileName))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	last, err := r.rowAt(ctx, upto)
	if err != nil {
		return nil, r.wrap(err)
	}
	rows, err := r.db.QueryContext(ctx, fmt.Sprintf(`SELECT offset, thread, number, roles, substr(text, 1, 200) FROM (
		SELECT * FROM turns WHERE rowid<=? ORDER BY rowid DESC LIMIT %d) WHERE namespace=? AND session=? LIMIT ?`, window/4), last, namespace, session, limit)
	list, err := collect(rows, err, func(t *Spoken) []any { return []any{offset(&t.Offset), &t.Thread, &t.Number, &t.Roles, &t.Text} })
	return list, r.wrap(err)
}

// rowAt returns the last row of the search view that is not behind an offset. Rows stand
// in the order of the log, but for those of sessions that were folded anew.
func (r *reader) rowAt(ctx context.Context, upto events.Offset) (int64, error) {
	var low, high int64
	err := r.db.QueryRowContext(ctx, "SELECT rowid FROM turns ORDER BY rowid DESC LIMIT 1").Scan(&high)
	if err != nil {
		return 0, err
	}
	for low < high { // low is not behind it, high may be
		middle := (low + high + 1) / 2
		var row int64
		var at events.Offset
		err := r.db.QueryRowContext(ctx, "SELECT rowid, offset FROM turns WHERE rowid>=? ORDER BY rowid LIMIT 1", middle).Scan(&row, offset(&at))
		if err != nil {
			return 0, err
		}
		if at > upto {
			high = middle - 1
		} else {
			low = row
		}
	}
	return low, nil
}
