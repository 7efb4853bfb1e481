package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/tallylog/tally/cmd/internal/cmdutil"
)

// peerGroup is the number of events that a peer stores in one transaction: as many as the command append has in flight.
const peerGroup = 512

// sessionRows describes how a database keeps the events of sessions.
type sessionRows struct {
	driver, blob string
	key, serial  string   // types of a primary key: given, and assigned by the database
	text         []string // create the full-text index
	textKey      string   // column of the event's number in it
	syncs        string   // as in itemRows
}

var (
	sqliteSessions = sessionRows{driver: "sqlite", blob: "BLOB", key: "INTEGER", serial: "INTEGER", textKey: "rowid",
		text: []string{"CREATE VIRTUAL TABLE tally_bench_text USING fts5(body, content='', tokenize='unicode61')"}}
	postgresSessions = sessionRows{driver: "postgres", blob: "bytea", key: "bigint", serial: "bigserial", textKey: "seq", syncs: postgresRows.syncs,
		text: []string{"CREATE TABLE tally_bench_text(seq bigint PRIMARY KEY, body text NOT NULL)",
			"CREATE INDEX tally_bench_body ON tally_bench_text USING gin(to_tsvector('simple', body))"}}
)

// create returns the statements that create the tables: the events, with the keys that make each of them unique, the
// list of sessions, and the index of their texts.
func (r sessionRows) create() []string {
	return append([]string{
		"CREATE TABLE tally_bench_events(seq " + r.key + " PRIMARY KEY, session bigint NOT NULL, n bigint NOT NULL, source text NOT NULL, id text NOT NULL, type text NOT NULL, time text NOT NULL, data " + r.blob + " NOT NULL)",
		"CREATE UNIQUE INDEX tally_bench_number ON tally_bench_events(session, n)",
		"CREATE UNIQUE INDEX tally_bench_identity ON tally_bench_events(session, source, id)",
		"CREATE TABLE tally_bench_sessions(session " + r.serial + " PRIMARY KEY, namespace text NOT NULL, id text NOT NULL, title text NOT NULL, opening text NOT NULL, created text NOT NULL, last text NOT NULL, turns bigint NOT NULL, records bigint NOT NULL, cost real NOT NULL, head bigint NOT NULL)",
		"CREATE UNIQUE INDEX tally_bench_name ON tally_bench_sessions(namespace, id)",
		"CREATE INDEX tally_bench_last ON tally_bench_sessions(namespace, last, session)",
	}, r.text...)
}

var dropSessions = []string{"DROP TABLE IF EXISTS tally_bench_events", "DROP TABLE IF EXISTS tally_bench_sessions", "DROP TABLE IF EXISTS tally_bench_text"}

// peer measures a database with the same rows.
func (p *sessionProcess) peer(ctx context.Context) (m sessionRun, err error) {
	cmdutil.CollectLess()
	rows, url := sqliteSessions, "file:"+filepath.Join(p.dir, "bench.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=wal_autocheckpoint(8000)"
	if p.what == whatPostgresSessions {
		rows, url = postgresSessions, p.postgres
	}
	db, err := sql.Open(rows.driver, url)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, db.Close()) }() // an unfinished transaction ends with it
	db.SetMaxOpenConns(1)
	if rows.syncs != "" {
		synced := false
		if err := db.QueryRowContext(ctx, rows.syncs).Scan(&synced); err != nil || !synced {
			return m, errors.Join(err, errors.New("the server does not sync commits: want fsync and synchronous_commit on"))
		}
		defer func() { err = errors.Join(err, execAll(context.WithoutCancel(ctx), db, dropSessions)) }()
	}
	if err := execAll(ctx, db, rows.create()); err != nil {
		return m, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return m, err
	}
	defer conn.Close()
	w, err := newSessionWriter(ctx, conn, rows)
	if err != nil {
		return m, err
	}
	before, began := cpuTime(), time.Now()
	if err := w.all(ctx, newLineMaker(p.traffic)); err != nil {
		return m, err
	}
	m.PerSecond = float64(p.events()) / time.Since(began).Seconds()
	if rows.syncs == "" { // a server has processes of its own
		m.CPU = float64((cpuTime() - before).Nanoseconds()) / 1e3 / float64(p.events())
	}
	m.P50, m.P99 = w.delays.quantile(0.5), w.delays.quantile(0.99)
	return m, nil
}

func execAll(ctx context.Context, db *sql.DB, texts []string) error {
	for _, text := range texts {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// sessionWriter stores events, a group in each transaction.
type sessionWriter struct {
	conn                 *sql.Conn
	session, event, text *sql.Stmt
	seq                  int64
	group                []peerEvent
	delays               delays
}

// peerEvent is what a peer reads of a line.
type peerEvent struct {
	read                      time.Time
	Source, ID, Type, Subject string
	Data                      json.RawMessage
}

func newSessionWriter(ctx context.Context, conn *sql.Conn, rows sessionRows) (*sessionWriter, error) {
	w := &sessionWriter{conn: conn}
	for _, s := range []struct {
		to   **sql.Stmt
		text string
	}{
		{&w.session, `INSERT INTO tally_bench_sessions(namespace, id, title, opening, created, last, turns, records, cost, head)
			VALUES('default', $1, '', $2, $3, $3, 1, 1, 0, $4)
			ON CONFLICT(namespace, id) DO UPDATE SET last = excluded.last, turns = tally_bench_sessions.turns + 1,
				records = tally_bench_sessions.records + 1, head = excluded.head RETURNING session, records`},
		{&w.event, "INSERT INTO tally_bench_events(seq, session, n, source, id, type, time, data) VALUES($1, $2, $3, $4, $5, $6, $7, $8)"},
		{&w.text, "INSERT INTO tally_bench_text(" + rows.textKey + ", body) VALUES($1, $2)"},
	} {
		var err error
		if *s.to, err = conn.PrepareContext(ctx, s.text); err != nil {
			return nil, fmt.Errorf("%s: %w", s.text, err)
		}
	}
	return w, nil
}

// all stores the events of all lines.
func (w *sessionWriter) all(ctx context.Context, lines *lineMaker) error {
	uncancelled := context.WithoutCancel(ctx) // the driver starts a goroutine for each call that can be cancelled
	for line := lines.line(); line != nil && ctx.Err() == nil; line = lines.line() {
		e := peerEvent{read: time.Now()}
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if w.group = append(w.group, e); len(w.group) == peerGroup {
			if err := w.commit(uncancelled); err != nil {
				return err
			}
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return w.commit(uncancelled)
}

// commit stores the group.
func (w *sessionWriter) commit(ctx context.Context) error {
	if _, err := w.conn.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	for _, e := range w.group {
		var data struct {
			Entries []struct{ Turn struct{ Content string } }
		}
		if err := json.Unmarshal(e.Data, &data); err != nil {
			return err
		}
		body, now := data.Entries[0].Turn.Content, time.Now().UTC().Format(time.RFC3339Nano)
		w.seq++
		var key, n int64
		if err := w.session.QueryRowContext(ctx, strings.TrimPrefix(e.Subject, "session/"), body[:200], now, w.seq).Scan(&key, &n); err != nil {
			return err
		}
		if _, err := w.event.ExecContext(ctx, w.seq, key, n, e.Source, e.ID, e.Type, now, []byte(e.Data)); err != nil {
			return err
		}
		if _, err := w.text.ExecContext(ctx, w.seq, body); err != nil {
			return err
		}
	}
	if _, err := w.conn.ExecContext(ctx, "COMMIT"); err != nil {
		return err
	}
	// Durable: all of the group.
	for _, e := range w.group {
		w.delays.add(time.Since(e.read))
	}
	w.group = w.group[:0]
	return nil
}
