package tree

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/tallylog/tally/events"
)

// manifestVersion is the version of the tables. A file of another version is recreated.
const manifestVersion = 2

const manifestSchema = `
CREATE TABLE IF NOT EXISTS tree(
	version INTEGER NOT NULL, part TEXT NOT NULL, met INTEGER NOT NULL, clean INTEGER NOT NULL, offset INTEGER NOT NULL, event TEXT NOT NULL, recorded TEXT NOT NULL, head INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS files(
	path BLOB PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL, offset INTEGER NOT NULL, sum TEXT NOT NULL,
	size INTEGER NOT NULL, mode INTEGER NOT NULL, version TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS units(
	kind TEXT NOT NULL, id TEXT NOT NULL, first INTEGER NOT NULL, offset INTEGER NOT NULL,
	path BLOB NOT NULL, want BLOB NOT NULL, apart BLOB NOT NULL, folder INTEGER NOT NULL, within BLOB NOT NULL, PRIMARY KEY(kind, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS intents(
	path BLOB PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL, offset INTEGER NOT NULL, sum TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS displaced(
	path BLOB PRIMARY KEY, origin BLOB NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, offset INTEGER NOT NULL, sums TEXT NOT NULL) WITHOUT ROWID;
`

// sqliteManifest is a manifest in a file. Intents are durable before the files are written, so the tree recognises the
// files after a power failure. Other changes may be lost, and are rediscovered.
type sqliteManifest struct {
	path      string
	namespace string
	db        *sql.DB // with one connection
	full      bool    // syncs each commit
}

func openManifest(path, namespace string, lg *slog.Logger) (manifest, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	b := &sqliteManifest{path: path, namespace: namespace}
	err := b.open()
	if err == nil {
		return b, nil
	}
	lg.Warn("the manifest of the tree cannot be read: every file is read again", "path", path, "err", err)
	return b, b.reset(context.Background())
}

func (b *sqliteManifest) open() (err error) {
	name := "file:" + strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(filepath.ToSlash(b.path)) +
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=cache_size(-4000)"
	if b.db, err = sql.Open("sqlite", name); err != nil {
		return err
	}
	b.db.SetMaxOpenConns(1)
	var version int
	if _, err = b.db.Exec(manifestSchema); err == nil {
		if err = b.db.QueryRow("SELECT version FROM tree").Scan(&version); errors.Is(err, sql.ErrNoRows) {
			_, err = b.db.Exec("INSERT INTO tree VALUES(?, '', 0, 0, 0, '', '', 0)", manifestVersion)
			version = manifestVersion
		}
	}
	if err == nil && version != manifestVersion {
		err = fmt.Errorf("unknown version %d of the manifest", version)
	}
	if err != nil {
		err = errors.Join(err, b.db.Close())
	}
	return err
}

func (b *sqliteManifest) close() error { return b.db.Close() }

func (b *sqliteManifest) reset(context.Context) error {
	_ = b.db.Close() // its content is not needed
	b.full = false
	for _, end := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(b.path + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return b.open()
}

func (b *sqliteManifest) load(ctx context.Context) (state, error) {
	s, err := b.read(ctx)
	if err == nil || ctx.Err() != nil {
		return s, err
	}
	return newState(), b.reset(ctx) // it is damaged
}

func (b *sqliteManifest) read(ctx context.Context) (s state, err error) {
	s = newState()
	var recorded string
	if err = b.db.QueryRowContext(ctx, "SELECT part, met, clean, offset, event, recorded, head FROM tree").
		Scan(&s.part, &s.met, &s.clean, &s.cursor.Offset, &s.cursor.EventID, &recorded, &s.cursor.Head); err != nil {
		return s, err
	}
	s.cursor.Recorded, _ = time.Parse(time.RFC3339Nano, recorded)
	err = b.each(ctx, "SELECT path, kind, id, offset, sum, size, mode, version FROM files", func(scan func(...any) error) error {
		var path, kind, id string
		f := &fileRecord{}
		err := scan(&path, &kind, &id, &f.at, &f.sum, &f.size, &f.mode, &f.version)
		f.entry = events.Subject{Namespace: b.namespace, Kind: kind, ID: id}
		s.files[path] = f
		return err
	})
	if err == nil {
		err = b.each(ctx, "SELECT kind, id, first, offset, path, want, apart, folder, within FROM units", func(scan func(...any) error) error {
			var kind, id, within string
			u := &entry{}
			err := scan(&kind, &id, &u.first, &u.at, &u.path, &u.want, &u.apart, &u.folder, &within)
			if within != "" {
				u.within = strings.Split(within, "/")
			}
			s.entries[events.Subject{Namespace: b.namespace, Kind: kind, ID: id}] = u
			return err
		})
	}
	if err == nil {
		err = b.each(ctx, "SELECT path, kind, id, offset, sum FROM intents", func(scan func(...any) error) error {
			var path, kind, id string
			var i intent
			err := scan(&path, &kind, &id, &i.at, &i.sum)
			i.entry = events.Subject{Namespace: b.namespace, Kind: kind, ID: id}
			s.intents[path] = i
			return err
		})
	}
	if err == nil {
		err = b.each(ctx, "SELECT path, origin, kind, id, offset, sums FROM displaced", func(scan func(...any) error) error {
			var kind, id, sums string
			d := &displaced{}
			err := scan(&d.path, &d.from, &kind, &id, &d.base, &sums)
			d.sums = strings.Fields(sums)
			d.entry = events.Subject{Namespace: b.namespace, Kind: kind, ID: id}
			s.out[d.path] = d
			return err
		})
	}
	return s, err
}

func (b *sqliteManifest) each(ctx context.Context, query string, do func(scan func(...any) error) error) error {
	rows, err := b.db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := do(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (b *sqliteManifest) save(ctx context.Context, s *state, c changes) (err error) {
	if err := b.sync(ctx, c.announces(s)); err != nil {
		return err
	}
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	w := &writer{ctx: ctx, tx: tx, prepared: make(map[string]*sql.Stmt)}
	w.do("UPDATE tree SET part=?, met=?, clean=?", s.part, s.met, c.clean)
	if c.cursor != nil {
		w.do("UPDATE tree SET offset=?, event=?, recorded=?, head=?", c.cursor.Offset, c.cursor.EventID, c.cursor.Recorded.Format(time.RFC3339Nano), c.cursor.Head)
	}
	for p := range c.files {
		if f := s.files[p]; f != nil {
			w.do("INSERT OR REPLACE INTO files VALUES(?, ?, ?, ?, ?, ?, ?, ?)", []byte(p), f.entry.Kind, f.entry.ID, f.at, f.sum, f.size, f.mode, f.version)
		} else {
			w.do("DELETE FROM files WHERE path=?", []byte(p))
		}
	}
	for sub := range c.entries {
		if u := s.entries[sub]; u != nil {
			w.do("INSERT OR REPLACE INTO units VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)", sub.Kind, sub.ID, u.first, u.at, []byte(u.path), []byte(u.want), []byte(u.apart), u.folder, []byte(strings.Join(u.within, "/")))
		} else {
			w.do("DELETE FROM units WHERE kind=? AND id=?", sub.Kind, sub.ID)
		}
	}
	for p := range c.intents {
		if i, ok := s.intents[p]; ok {
			w.do("INSERT OR REPLACE INTO intents VALUES(?, ?, ?, ?, ?)", []byte(p), i.entry.Kind, i.entry.ID, i.at, i.sum)
		} else {
			w.do("DELETE FROM intents WHERE path=?", []byte(p))
		}
	}
	for p := range c.out {
		if d := s.out[p]; d != nil {
			w.do("INSERT OR REPLACE INTO displaced VALUES(?, ?, ?, ?, ?, ?)", []byte(p), []byte(d.from), d.entry.Kind, d.entry.ID, d.base, strings.Join(d.sums, " "))
		} else {
			w.do("DELETE FROM displaced WHERE path=?", []byte(p))
		}
	}
	if w.err != nil {
		return w.err
	}
	return tx.Commit()
}

// sync enables or disables syncing of the following commits.
func (b *sqliteManifest) sync(ctx context.Context, full bool) error {
	if b.full == full {
		return nil
	}
	level := "NORMAL"
	if full {
		level = "FULL"
	}
	_, err := b.db.ExecContext(ctx, "PRAGMA synchronous="+level)
	if err == nil {
		b.full = full
	}
	return err
}

// writer executes statements until one fails.
type writer struct {
	ctx      context.Context
	tx       *sql.Tx
	prepared map[string]*sql.Stmt // closed with the transaction
	err      error
}

func (w *writer) do(query string, args ...any) {
	if w.err != nil {
		return
	}
	st := w.prepared[query]
	if st == nil {
		if st, w.err = w.tx.PrepareContext(w.ctx, query); w.err != nil {
			return
		}
		w.prepared[query] = st
	}
	_, w.err = st.ExecContext(w.ctx, args...)
}
