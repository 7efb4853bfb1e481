package storecopy

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver

	"github.com/tallylog/tally/events"
)

// side is a store of a merge: the original or the target.
type side int

const (
	from side = iota
	to
)

// tableVersion is the version of the tables. A file of another version is built again.
const tableVersion = 1

// A record has a place in its subject, from 1, and an offset in each store that has it. Invalid records have no place.
const tableSchema = `
CREATE TABLE side(side INTEGER PRIMARY KEY, cursor INTEGER NOT NULL, id TEXT NOT NULL, invalid INTEGER NOT NULL, personal INTEGER NOT NULL);
CREATE TABLE subject(n INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
	count0 INTEGER NOT NULL, count1 INTEGER NOT NULL, last0 INTEGER NOT NULL, last1 INTEGER NOT NULL,
	parent INTEGER NOT NULL, fork0 INTEGER NOT NULL, fork1 INTEGER NOT NULL,
	refused TEXT NOT NULL, chosen INTEGER NOT NULL, why TEXT NOT NULL, fresh INTEGER NOT NULL);
CREATE TABLE record(subject INTEGER NOT NULL, place INTEGER NOT NULL, id TEXT NOT NULL, at0 INTEGER, at1 INTEGER,
	PRIMARY KEY(subject, place)) WITHOUT ROWID;
CREATE UNIQUE INDEX record0 ON record(subject, at0) WHERE at0 NOT NULL;
CREATE UNIQUE INDEX record1 ON record(subject, at1) WHERE at1 NOT NULL;
CREATE TABLE need(subject INTEGER NOT NULL, other INTEGER NOT NULL, hard INTEGER NOT NULL, PRIMARY KEY(subject, other, hard)) WITHOUT ROWID;
CREATE INDEX needed ON need(other);
CREATE TABLE type(name TEXT NOT NULL, side INTEGER NOT NULL, moves TEXT NOT NULL, offsets TEXT NOT NULL, PRIMARY KEY(name, side)) WITHOUT ROWID;
CREATE TABLE lost(at INTEGER PRIMARY KEY);
CREATE TABLE dirty(dirty INTEGER NOT NULL);
INSERT INTO side VALUES(0, 0, '', 0, 0), (1, 0, '', 0, 0);
INSERT INTO dirty VALUES(0);
`

// table has the offsets of the records of two stores, subject by subject. Its file is a cache: what it says follows from
// the ids in both stores. While a merge appends, the file says so, and is built again if the merge did not end.
type table struct {
	db    *sql.DB
	path  string // "": in memory
	stmts map[string]*sql.Stmt
	rows  map[events.Subject]*row
}

// row is a subject of both stores.
type row struct {
	n     int64
	sub   events.Subject
	saved facts // as they stand in the file
	facts
}

// facts are what the table says of a subject.
type facts struct {
	count, last [2]int64 // records with a place, and the offset of the last record of any kind
	parent      int64    // of which it is a fork; 0: of none
	fork        [2]int64 // the offset of the fork
	refused     string   // why it cannot be merged, whatever is chosen
	chosen      bool
	why         string // why this merge refuses it
	fresh       bool   // it was not compared since it was merged
}

func (r *row) goes() bool { return r.chosen && r.why == "" }

// maxRows bounds the subjects in memory.
const maxRows = 4096

// openTable opens the table of a file. A file that cannot be read is built again.
func openTable(path string) (*table, error) {
	t := &table{path: path, rows: make(map[events.Subject]*row), stmts: make(map[string]*sql.Stmt)}
	if path != "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, err
		}
	}
	if err := t.open(); err == nil {
		var version int
		err := t.db.QueryRow("PRAGMA user_version").Scan(&version)
		if err == nil && version == tableVersion {
			dirty := false
			if err = t.db.QueryRow("SELECT dirty FROM dirty").Scan(&dirty); err == nil && !dirty {
				return t, t.exec("BEGIN")
			}
		}
	}
	return t, t.reset()
}

func (t *table) open() (err error) {
	name := ":memory:"
	if t.path != "" {
		name = "file:" + strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(filepath.ToSlash(t.path)) +
			"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=cache_size(-16000)"
	}
	if t.db, err = sql.Open("sqlite", name); err == nil {
		t.db.SetMaxOpenConns(1)
	}
	return err
}

// reset makes an empty table.
func (t *table) reset() error {
	err := t.drop()
	if t.path != "" {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if gone := os.Remove(t.path + suffix); gone != nil && !errors.Is(gone, os.ErrNotExist) {
				return errors.Join(err, gone)
			}
		}
	}
	if err := t.open(); err != nil {
		return err
	}
	_, err = t.db.Exec(tableSchema + fmt.Sprintf("PRAGMA user_version = %d; BEGIN", tableVersion))
	return err
}

func (t *table) drop() error {
	clear(t.rows)
	for _, s := range t.stmts {
		_ = s.Close()
	}
	clear(t.stmts)
	if t.db == nil {
		return nil
	}
	return t.db.Close()
}

// close writes the table, and closes its file.
func (t *table) close() error {
	return errors.Join(t.commit(), t.drop())
}

// commit writes the table, and begins another transaction.
func (t *table) commit() error {
	if err := t.flush(); err != nil {
		return err
	}
	if err := t.exec("COMMIT"); err != nil {
		return err
	}
	return t.exec("BEGIN")
}

// flush writes the rows in memory that have changed.
func (t *table) flush() error {
	for _, r := range t.rows {
		if r.facts == r.saved {
			continue
		}
		if err := t.exec("UPDATE subject SET count0=?, count1=?, last0=?, last1=?, parent=?, fork0=?, fork1=?, refused=?, chosen=?, why=?, fresh=? WHERE n=?",
			r.count[from], r.count[to], r.last[from], r.last[to], r.parent, r.fork[from], r.fork[to], r.refused, r.chosen, r.why, r.fresh, r.n); err != nil {
			return err
		}
		r.saved = r.facts
	}
	return nil
}

// forget writes the rows in memory, and drops them. The caller holds none.
func (t *table) forget() error {
	err := t.flush()
	clear(t.rows)
	return err
}

func (t *table) stmt(query string) (*sql.Stmt, error) {
	if s := t.stmts[query]; s != nil {
		return s, nil
	}
	s, err := t.db.Prepare(query)
	if err == nil {
		t.stmts[query] = s
	}
	return s, err
}

func (t *table) exec(query string, args ...any) error {
	s, err := t.stmt(query)
	if err == nil {
		_, err = s.Exec(args...)
	}
	return err
}

// get reads one row of a result. It returns false if the result is empty.
func (t *table) get(query string, args []any, into ...any) (bool, error) {
	s, err := t.stmt(query)
	if err == nil {
		err = s.QueryRow(args...).Scan(into...)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// texts returns the rows of a result with at most two columns of text.
func (t *table) texts(query string, args ...any) (list [][2]string, err error) {
	s, err := t.stmt(query)
	if err != nil {
		return nil, err
	}
	rows, err := s.Query(args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var x [2]string
		if err := rows.Scan(&x[0], &x[1]); err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	return list, rows.Err()
}

const columns = "n, name, count0, count1, last0, last1, parent, fork0, fork1, refused, chosen, why, fresh"

func (t *table) scan(where string, arg any) (*row, error) {
	r, name := new(row), ""
	found, err := t.get("SELECT "+columns+" FROM subject WHERE "+where, []any{arg},
		&r.n, &name, &r.count[from], &r.count[to], &r.last[from], &r.last[to], &r.parent, &r.fork[from], &r.fork[to], &r.refused, &r.chosen, &r.why, &r.fresh)
	if err != nil || !found {
		return nil, err
	}
	if r.sub, err = events.ParseNATS(name); err != nil {
		return nil, err
	}
	if have := t.rows[r.sub]; have != nil {
		return have, nil
	}
	r.saved = r.facts
	t.rows[r.sub] = r
	return r, nil
}

// find returns the row of a subject, or nil.
func (t *table) find(sub events.Subject) (*row, error) {
	if r := t.rows[sub]; r != nil {
		return r, nil
	}
	return t.scan("name=?", sub.NATS())
}

// of returns the row of a subject, and adds it if it is missing.
func (t *table) of(sub events.Subject) (*row, error) {
	r, err := t.find(sub)
	if err != nil || r != nil {
		return r, err
	}
	if err := t.exec("INSERT INTO subject VALUES(NULL, ?, 0, 0, 0, 0, 0, 0, 0, '', 0, '', 0)", sub.NATS()); err != nil {
		return nil, err
	}
	return t.scan("name=?", sub.NATS())
}

// number returns a row by its number.
func (t *table) number(n int64) (*row, error) {
	r, err := t.scan("n=?", n)
	if err == nil && r == nil {
		err = fmt.Errorf("%s: no subject %d", t.path, n)
	}
	return r, err
}

// A spot is a record of a subject in both stores.
type spot struct {
	r     *row
	place int64
	at    [2]int64 // 0: the store does not have it
}

// below returns the last record at or below an offset of one store, in the subject or in the session of which it is a
// fork. If have is set, the other store has the record. It returns false if there is no such record.
func (t *table) below(r *row, s side, at events.Offset, have bool) (spot, bool, error) {
	query := fmt.Sprintf("SELECT place, coalesce(at0, 0), coalesce(at1, 0) FROM record WHERE subject=? AND at%d<=? ORDER BY at%d DESC LIMIT 1", s, s)
	if have {
		query = fmt.Sprintf("SELECT place, at0, at1 FROM record WHERE subject=? AND at%d<=? AND at0 NOT NULL AND at1 NOT NULL ORDER BY at%d DESC LIMIT 1", s, s)
	}
	for limit := int64(at); ; {
		x := spot{r: r}
		found, err := t.get(query, []any{r.n, limit}, &x.place, &x.at[from], &x.at[to])
		if found || err != nil || r.parent == 0 {
			return x, found, err
		}
		limit = min(limit, r.fork[s])
		parent, err := t.number(r.parent)
		if err != nil || parent.n == r.n {
			return x, false, err
		}
		r = parent
	}
}

// noted returns the offset up to which a store was read, and the id of the record there.
func (t *table) noted(s side) (cursor events.Offset, id string, err error) {
	_, err = t.get("SELECT cursor, id FROM side WHERE side=?", []any{s}, &cursor, &id)
	return cursor, id, err
}

// pointers returns the offsets of a registered type of the original.
func (t *table) pointers(typ string) (list []string, err error) {
	var text string
	found, err := t.get("SELECT offsets FROM type WHERE name=? AND side=0", []any{typ}, &text)
	if found && err == nil {
		err = json.Unmarshal([]byte(text), &list)
	}
	return list, err
}
