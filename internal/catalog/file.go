package catalog

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// form describes the kind of a file.
type form struct {
	view    string   // name of the view in it
	version int      // of fold and tables; a file of another version is rebuilt
	tables  []string // of one set
	schema  string   // of one set
	page    int      // page size of a new file, in bytes; each table takes at least a page; 0: SQLite's default
}

// A set is one edition of a view's tables, identified by a suffix of their names. A rebuild fills a second set beside
// the one that is read.
const (
	current = ""
	nextSet = "_new"
)

const commonSchema = `
CREATE TABLE IF NOT EXISTS views(
	name TEXT PRIMARY KEY, version INTEGER NOT NULL, generation INTEGER NOT NULL,
	offset INTEGER NOT NULL, event TEXT NOT NULL, recorded TEXT NOT NULL, head INTEGER NOT NULL, updated TEXT NOT NULL) WITHOUT ROWID;
`

const quarantineSchema = `
CREATE TABLE quarantine{set}(
	namespace TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL,
	offset INTEGER NOT NULL, reason TEXT NOT NULL, since TEXT NOT NULL, PRIMARY KEY(namespace, kind, id)) WITHOUT ROWID;
`

// viewFile is one set of a view's tables in a SQLite file, for one writer.
type viewFile struct {
	form
	path   string
	set    string
	logger *slog.Logger

	db         *sql.DB
	conn       *sql.Conn // the only connection
	statements map[string]*sql.Stmt
	cursor     projector.Cursor // stored cursor, as far as this writer knows
	generation int64
	aside      []projector.Quarantine // to be stored
	forgotten  []events.Subject       // to be removed from quarantine
	opened     os.FileInfo            // of the file at the path, when it was opened
	purged     bool                   // purged data may still be readable in the file
	unsound    bool                   // the file changed after its last writer closed it
}

// dsn returns the driver's name of a file. The write-ahead log is synced at checkpoints only. A power failure loses the
// last commits, rows and cursor together. Checkpoints are rare, so few commits wait for the disk. Deleted rows are
// overwritten, because they may be purged data.
func dsn(path, mode string) string {
	return "file:" + strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(filepath.ToSlash(path)) + "?mode=" + mode +
		"&_pragma=busy_timeout(10000)&_pragma=synchronous(NORMAL)&_pragma=wal_autocheckpoint(8000)&_pragma=cache_size(-4000)&_pragma=temp_store(MEMORY)&_pragma=secure_delete(1)"
}

// SQLite's codes for a damaged, missing or foreign file.
const (
	corrupt      = 11
	full         = 13
	cannotOpen   = 14
	notADatabase = 26

	noSharedMemory = 10 | 19<<8 // its file cannot grow
	noPage         = 10 | 34<<8 // a page of a mapped file cannot be read, because the disk has no block for it
)

// openMu is held while a file of views is opened or removed. SQLite finds the files beside a database by name,
// whichever database has that name. Without the lock, a new file could be opened with the leftovers of a removed one.
// The lock of the views keeps other processes away.
var openMu sync.Mutex

// maxOpens bounds the attempts to open a file that is removed meanwhile.
const maxOpens = 10

// isCode reports whether an error has one of these SQLite codes.
func isCode(err error, codes ...int) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && slices.Contains(codes, e.Code()&0xff)
}

// isNoRoom reports whether the disk was full, for a write or for the files that SQLite needs to read.
func isNoRoom(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code()&0xff == full || e.Code() == noSharedMemory || e.Code() == noPage)
}

func isDamage(err error) bool { return isCode(err, corrupt, notADatabase) }

// begin opens the file if necessary, creates missing tables, and returns the stored progress. It removes a file that is
// damaged or of another version.
func (f *viewFile) begin(ctx context.Context) (projector.Cursor, []projector.Quarantine, error) {
	ctx = context.WithoutCancel(ctx) // a cancellable call costs a goroutine
	f.aside, f.forgotten = nil, nil
	openMu.Lock()
	defer openMu.Unlock()
	if f.conn != nil && f.isReplaced() {
		f.close()
	}
	removed := false
	for attempt := 1; ; attempt++ {
		quarantined, err := f.load(ctx)
		reason := ""
		switch other, ok := errors.AsType[*versionError](err); {
		case err == nil:
			return f.cursor, quarantined, nil
		case ok:
			reason = other.Error()
		case isDamage(err), isUnsealed(err):
			reason = err.Error()
		case isCode(err, cannotOpen) && attempt < maxOpens:
			continue // it existed a moment ago: another process has removed it too
		}
		if reason == "" || removed {
			return projector.Cursor{}, nil, f.wrap(err)
		}
		f.logger.Warn("file of views is discarded and rebuilt", "file", f.path, "reason", reason)
		if err := f.remove(); err != nil {
			return projector.Cursor{}, nil, f.wrap(err)
		}
		removed = true
	}
}

func (f *viewFile) wrap(err error) error { return fmt.Errorf("catalog: %s: %w", f.path, err) }

// versionError reports a file of another version.
type versionError struct{ have, want int }

func (e *versionError) Error() string {
	switch {
	case e.have == 0:
		return "the file is empty"
	case e.have > e.want:
		return fmt.Sprintf("a newer version of tally wrote it (version %d, this program reads %d)", e.have, e.want)
	}
	return fmt.Sprintf("an older version of tally wrote it (version %d, this program reads %d)", e.have, e.want)
}

func (f *viewFile) load(ctx context.Context) ([]projector.Quarantine, error) {
	if f.conn == nil {
		if err := f.open(ctx); err != nil {
			f.close()
			return nil, err
		}
	}
	var err error
	if f.cursor, f.generation, err = readCursor(ctx, f.conn, f.view+f.set); err != nil {
		return nil, err
	}
	return readQuarantine(ctx, f.conn, f.set)
}

func (f *viewFile) open(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	// SQLite creates the files beside it with the permissions of this file.
	made, err := os.OpenFile(f.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	f.opened, err = made.Stat()
	if err := errors.Join(err, made.Close()); err != nil {
		return err
	}
	changed := checkSeal(f.path)
	f.unsound = changed != nil
	if err := unseal(f.path); err != nil {
		return err
	}
	if f.db, err = sql.Open("sqlite", dsn(f.path, "rw")); err != nil {
		return err
	}
	f.db.SetMaxOpenConns(1)
	if f.conn, err = f.db.Conn(ctx); err != nil {
		return err
	}
	f.statements = make(map[string]*sql.Stmt)
	if err := f.writeAhead(ctx); err != nil {
		return err
	}
	return cmp.Or(f.transact(ctx, func() error { return f.create(ctx) }), changed)
}

const defaultPage = 4096 // bytes

// writeAhead enables the write-ahead log. In an empty file that writes to the file itself, which SQLite would sync
// several times without need. If a power failure loses that write, the file is empty or damaged, and is rebuilt like a
// file without its last commits.
func (f *viewFile) writeAhead(ctx context.Context) error {
	if f.opened.Size() == 0 {
		if err := f.exec(ctx, fmt.Sprintf("PRAGMA synchronous=OFF; PRAGMA page_size=%d", cmp.Or(f.page, defaultPage))); err != nil {
			return err
		}
	}
	var mode string
	if err := f.conn.QueryRowContext(ctx, "PRAGMA journal_mode=WAL").Scan(&mode); err != nil {
		return err
	}
	return f.exec(ctx, "PRAGMA synchronous=NORMAL")
}

// create creates missing tables.
func (f *viewFile) create(ctx context.Context) error {
	version, err := readVersion(ctx, f.conn)
	if err != nil {
		return err
	}
	if version != 0 && version != f.version {
		return &versionError{version, f.version}
	}
	if err := f.exec(ctx, fmt.Sprintf("PRAGMA user_version=%d;", f.version)+commonSchema); err != nil {
		return err
	}
	var n int
	if err := f.conn.QueryRowContext(ctx, "SELECT count(*) FROM views WHERE name=?", f.view+f.set).Scan(&n); err != nil || n > 0 {
		return err
	}
	return f.createSet(ctx)
}

func (f *viewFile) createSet(ctx context.Context) error {
	if err := f.exec(ctx, strings.ReplaceAll(f.schema+quarantineSchema, "{set}", f.set)); err != nil {
		return err
	}
	_, err := f.conn.ExecContext(ctx, "INSERT INTO views VALUES(?,?,?,0,'','',0,?)", f.view+f.set, f.version, f.generation+1, nowText())
	return err
}

func (f *viewFile) dropSet(ctx context.Context, set string) error {
	for _, table := range append(slices.Clone(f.tables), "quarantine") {
		if err := f.exec(ctx, "DROP TABLE IF EXISTS "+table+set); err != nil {
			return err
		}
	}
	_, err := f.conn.ExecContext(ctx, "DELETE FROM views WHERE name=?", f.view+set)
	return err
}

// lacking is the application id of a file that was made without unreadable records.
const lacking = 1

// Lacks marks the file as made without lost records.
func (f *viewFile) Lacks(ctx context.Context) error {
	if err := f.exec(context.WithoutCancel(ctx), fmt.Sprintf("PRAGMA application_id=%d", lacking)); err != nil {
		return f.wrap(err)
	}
	return nil
}

// reset empties the tables.
func (f *viewFile) reset(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if err := f.exec(ctx, "PRAGMA application_id=0"); err != nil {
		return f.wrap(err)
	}
	f.aside, f.forgotten = nil, nil
	err := f.transact(ctx, func() error {
		if err := f.dropSet(ctx, f.set); err != nil {
			return err
		}
		return f.createSet(ctx)
	})
	if err == nil {
		f.cursor, f.generation, err = readCursor(ctx, f.conn, f.view+f.set)
	}
	if err != nil {
		return f.wrap(err)
	}
	return nil
}

// commit stores the output of write and the cursor in one transaction. If another writer has moved the cursor since
// this writer's last access, it returns ErrMoved.
func (f *viewFile) commit(ctx context.Context, c projector.Cursor, write func(ctx context.Context) error) error {
	ctx = context.WithoutCancel(ctx)
	if f.isReplaced() {
		return f.wrap(projector.ErrMoved)
	}
	err := f.transact(ctx, func() error {
		// First, because another writer's rows would conflict.
		if err := f.move(ctx, c); err != nil {
			return err
		}
		for _, sub := range f.forgotten {
			if err := f.run(ctx, "DELETE FROM quarantine{set} WHERE namespace=? AND kind=? AND id=?", sub.Namespace, sub.Kind, sub.ID); err != nil {
				return err
			}
		}
		if err := write(ctx); err != nil {
			return err
		}
		for _, q := range f.aside {
			if err := f.put(ctx, "quarantine", q.Subject.Namespace, q.Subject.Kind, q.Subject.ID, int64(q.Offset), q.Reason, nowText()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return f.wrap(err)
	}
	if len(f.forgotten) > 0 {
		f.generation++
	}
	f.cursor, f.aside, f.forgotten = c, nil, nil
	return nil
}

// truncate empties the write-ahead log, which contains former rows. It returns false if a current reader may need them.
func (f *viewFile) truncate(ctx context.Context) (bool, error) {
	if err := f.exec(ctx, "PRAGMA busy_timeout=100"); err != nil {
		return false, err
	}
	var busy, frames, moved int
	err := f.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved)
	return busy == 0, errors.Join(err, f.exec(ctx, "PRAGMA busy_timeout=10000"))
}

// scrub removes purged data outside the rows. If a reader prevents that, the next commit tries again.
func (f *viewFile) scrub(ctx context.Context) {
	if !f.purged {
		return
	}
	done, err := f.truncate(context.WithoutCancel(ctx))
	if err != nil {
		f.logger.Warn("purged data may still be in the file of the view", "file", f.path, "err", err)
	}
	f.purged = !done
}

// isReplaced reports whether the path now names another file.
func (f *viewFile) isReplaced() bool {
	there, err := os.Stat(f.path)
	return err != nil || !os.SameFile(there, f.opened)
}

// move sets the cursor, if it is where this writer left it. If a subject left the quarantine, it starts a new
// generation, so that other writers begin again.
func (f *viewFile) move(ctx context.Context, c projector.Cursor) error {
	st, err := f.prepare(ctx, "UPDATE views SET offset=?, event=?, recorded=?, head=?, updated=?, generation=generation+min(?, 1) WHERE name=? AND generation=? AND offset=? AND event=?")
	if err != nil {
		return err
	}
	done, err := st.ExecContext(ctx, int64(c.Offset), c.EventID, instant(c.Recorded), int64(c.Head), nowText(), len(f.forgotten),
		f.view+f.set, f.generation, int64(f.cursor.Offset), f.cursor.EventID)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n != 1 {
		return errors.Join(err, projector.ErrMoved)
	}
	return nil
}

// transact calls do in a transaction that excludes other writers.
func (f *viewFile) transact(ctx context.Context, do func() error) error {
	if err := f.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := do()
	if err == nil {
		if err = f.exec(ctx, "COMMIT"); err == nil {
			return nil
		}
	}
	// A rollback fails only if SQLite has rolled back itself.
	_ = f.exec(ctx, "ROLLBACK")
	return err
}

func (f *viewFile) exec(ctx context.Context, text string) error {
	_, err := f.conn.ExecContext(ctx, text)
	return err
}

// run executes a statement on the tables of the set. It prepares each statement once.
func (f *viewFile) run(ctx context.Context, text string, args ...any) error {
	st, err := f.prepare(ctx, text)
	if err == nil {
		_, err = st.ExecContext(ctx, args...)
		runtime.Gosched() // producers have priority: a commit may take as long as a time slice of the scheduler
	}
	return err
}

// put stores a row of a table of the set, with all columns.
func (f *viewFile) put(ctx context.Context, table string, row ...any) error {
	return f.run(ctx, "INSERT OR REPLACE INTO "+table+"{set} VALUES("+placeholders(len(row))+")", row...)
}

func (f *viewFile) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	if st := f.statements[text]; st != nil {
		return st, nil
	}
	st, err := f.conn.PrepareContext(ctx, strings.ReplaceAll(text, "{set}", f.set))
	if err == nil {
		f.statements[text] = st
	}
	return st, err
}

// find reads one row, and reports whether it exists.
func (f *viewFile) find(ctx context.Context, text string, args, into []any) (bool, error) {
	st, err := f.prepare(ctx, text)
	if err != nil {
		return false, err
	}
	err = st.QueryRowContext(ctx, args...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// close closes the file. Uncommitted changes are lost.
func (f *viewFile) close() error {
	for _, st := range f.statements {
		st.Close()
	}
	var err error
	isOpen, replaced := f.conn != nil, false
	if isOpen {
		if replaced = f.isReplaced(); replaced {
			err = f.keepLog()
		}
		err = errors.Join(err, f.conn.Close())
	}
	if f.db != nil {
		err = errors.Join(err, f.db.Close())
	}
	if isOpen && !replaced && !f.unsound && err == nil {
		sealFile(f.path)
	}
	f.statements, f.conn, f.db = nil, nil, nil
	return err
}

// keepLog makes the connection keep the write-ahead log when it closes. Otherwise SQLite would remove the log of that
// name, which now belongs to another file.
func (f *viewFile) keepLog() error {
	return f.conn.Raw(func(c any) error {
		_, err := c.(sqlite.FileControl).FileControlPersistWAL("main", 1)
		return err
	})
}

// remove closes the file and removes it with the files of SQLite beside it. The caller holds opening.
func (f *viewFile) remove() error {
	f.close()
	return remove(f.path)
}

// Remove removes a file of views with the files of SQLite beside it. These come first, so that a new file of the same
// name does not find them. A process that has the file open continues to see it.
func Remove(path string) error {
	openMu.Lock()
	defer openMu.Unlock()
	return remove(path)
}

func remove(path string) error {
	for _, suffix := range []string{"-wal", "-shm", sealSuffix, ""} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// querier is a connection or a connection pool.
type querier interface {
	QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
}

func readVersion(ctx context.Context, q querier) (version int, err error) {
	err = q.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version)
	return version, err
}

func readCursor(ctx context.Context, q querier, view string) (c projector.Cursor, generation int64, err error) {
	var recorded string
	err = q.QueryRowContext(ctx, "SELECT offset, event, recorded, head, generation FROM views WHERE name=?", view).
		Scan(offset(&c.Offset), &c.EventID, &recorded, offset(&c.Head), &generation)
	if t, err := time.Parse(time.RFC3339Nano, recorded); err == nil {
		c.Recorded = t
	}
	return c, generation, err
}

func readQuarantine(ctx context.Context, q querier, set string) ([]projector.Quarantine, error) {
	rows, err := q.QueryContext(ctx, "SELECT namespace, kind, id, offset, reason FROM quarantine"+set+" ORDER BY offset")
	return collect(rows, err, func(x *projector.Quarantine) []any {
		return []any{&x.Subject.Namespace, &x.Subject.Kind, &x.Subject.ID, offset(&x.Offset), &x.Reason}
	})
}

func nowText() string { return instant(time.Now()) }

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// offset returns a scanner of an offset column. The driver supports signed numbers only.
func offset(to *events.Offset) sql.Scanner { return (*offsetColumn)(to) }

type offsetColumn events.Offset

func (o *offsetColumn) Scan(v any) error {
	n, ok := v.(int64)
	if !ok || n < 0 {
		return fmt.Errorf("%v is not an offset", v)
	}
	*o = offsetColumn(n)
	return nil
}
