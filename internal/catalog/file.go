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

// form is what a file is made for.
type form struct {
	view    string   // name of the view in it
	version int      // of fold and tables: a file of another is built anew
	tables  []string // of one set
	schema  string   // of one set
	page    int      // bytes of a page of a new file, each table taking one at least; 0: SQLite's default
}

// A set is one edition of a view's tables, told by what stands behind their names.
// A rebuild fills a second one beside that which is read.
const (
	current = ""
	next    = "_new"
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

// file is one set of a view's tables in a SQLite file, for one writer.
type file struct {
	form
	path   string
	set    string
	logger *slog.Logger

	db         *sql.DB
	conn       *sql.Conn // the only one
	statements map[string]*sql.Stmt
	cursor     projector.Cursor // as it stands in the file, as far as this writer knows
	generation int64
	aside      []projector.Quarantine // not stored yet
	forgotten  []events.Subject       // to be taken out of quarantine
	opened     os.FileInfo            // of the file at the path, when it was opened
	purged     bool                   // something was, and may still be read in the file
	unsound    bool                   // it is not as its last writer left it
}

// dsn names a file to the driver. A write-ahead log that is synced at checkpoints
// only: a power cut takes the last commits, rows and cursor together. Checkpoints
// are rare, so that few commits wait for a disk. What is deleted is overwritten: it may
// have been purged.
func dsn(path, mode string) string {
	return "file:" + strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(filepath.ToSlash(path)) + "?mode=" + mode +
		"&_pragma=busy_timeout(10000)&_pragma=synchronous(NORMAL)&_pragma=wal_autocheckpoint(8000)&_pragma=cache_size(-4000)&_pragma=temp_store(MEMORY)&_pragma=secure_delete(1)"
}

// What SQLite says of a file that is broken, not there any more, or none of its own.
const (
	corrupt      = 11
	full         = 13
	cannotOpen   = 14
	notADatabase = 26

	noSharedMemory = 10 | 19<<8 // its file cannot grow
	noPage         = 10 | 34<<8 // a page of a mapped file cannot be read: it has no block on the disk
)

// opening is held by who opens a file of views or removes one. What SQLite keeps beside a
// file goes by its name, whichever file has that by now: who removes one that another
// connection is about to open would leave a new file with what belongs to the old one.
// Writers of other processes are few, and kept away by the lock of the views.
var opening sync.Mutex

// maxOpens bounds how often a file is opened that goes away meanwhile.
const maxOpens = 10

// isCode reports whether an error is one of some that SQLite has numbers for.
func isCode(err error, codes ...int) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && slices.Contains(codes, e.Code()&0xff)
}

// isNoRoom reports whether SQLite lacked room on the disk, for a write or for what it
// keeps beside a file to read it.
func isNoRoom(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code()&0xff == full || e.Code() == noSharedMemory || e.Code() == noPage)
}

func isDamage(err error) bool { return isCode(err, corrupt, notADatabase) }

// begin opens the file if it is not open, makes its tables if it has none, and
// returns what is stored. A file that is damaged or of another version is removed.
func (f *file) begin(ctx context.Context) (projector.Cursor, []projector.Quarantine, error) {
	ctx = context.WithoutCancel(ctx) // a call that can be cancelled costs a goroutine
	f.aside, f.forgotten = nil, nil
	opening.Lock()
	defer opening.Unlock()
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
			continue // it was there a moment ago: somebody else has set it aside, too
		}
		if reason == "" || removed {
			return projector.Cursor{}, nil, f.wrap(err)
		}
		f.logger.Warn("file of views is set aside and built anew", "file", f.path, "reason", reason)
		if err := f.remove(); err != nil {
			return projector.Cursor{}, nil, f.wrap(err)
		}
		removed = true
	}
}

func (f *file) wrap(err error) error { return fmt.Errorf("catalog: %s: %w", f.path, err) }

// versionError says that a file was written by another version.
type versionError struct{ have, want int }

func (e *versionError) Error() string {
	switch {
	case e.have == 0:
		return "nothing was written to it yet"
	case e.have > e.want:
		return fmt.Sprintf("a newer version of tally wrote it (it has version %d, this is %d)", e.have, e.want)
	}
	return fmt.Sprintf("an older version of tally wrote it (it has version %d, this is %d)", e.have, e.want)
}

func (f *file) load(ctx context.Context) ([]projector.Quarantine, error) {
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

func (f *file) open(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	// SQLite gives the files beside it the permissions of this one.
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

// writeAhead has the file written by way of a write-ahead log. For an empty file that
// is a write to the file itself, which SQLite would sync several times, in vain:
// if a power cut takes it, the file is empty again or damaged, and built anew as one
// is whose last commits are gone.
func (f *file) writeAhead(ctx context.Context) error {
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

// create makes the tables that are missing.
func (f *file) create(ctx context.Context) error {
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

func (f *file) createSet(ctx context.Context) error {
	if err := f.exec(ctx, strings.ReplaceAll(f.schema+quarantineSchema, "{set}", f.set)); err != nil {
		return err
	}
	_, err := f.conn.ExecContext(ctx, "INSERT INTO views VALUES(?,?,?,0,'','',0,?)", f.view+f.set, f.version, f.generation+1, now())
	return err
}

func (f *file) dropSet(ctx context.Context, set string) error {
	for _, table := range append(slices.Clone(f.tables), "quarantine") {
		if err := f.exec(ctx, "DROP TABLE IF EXISTS "+table+set); err != nil {
			return err
		}
	}
	_, err := f.conn.ExecContext(ctx, "DELETE FROM views WHERE name=?", f.view+set)
	return err
}

// lacking is the application id of a file that was made without records that cannot be read.
const lacking = 1

// Lacks tells the runner that the view was made without lost records.
func (f *file) Lacks(ctx context.Context) error {
	if err := f.exec(context.WithoutCancel(ctx), fmt.Sprintf("PRAGMA application_id=%d", lacking)); err != nil {
		return f.wrap(err)
	}
	return nil
}

// reset empties the tables.
func (f *file) reset(ctx context.Context) error {
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

// commit writes what write writes and the cursor in one transaction, unless
// somebody else has moved the cursor since this writer read or wrote it.
func (f *file) commit(ctx context.Context, c projector.Cursor, write func(ctx context.Context) error) error {
	ctx = context.WithoutCancel(ctx)
	if f.isReplaced() {
		return f.wrap(projector.ErrMoved)
	}
	err := f.transact(ctx, func() error {
		// First of all: what another writer has stored would only be in the way.
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
			if err := f.put(ctx, "quarantine", q.Subject.Namespace, q.Subject.Kind, q.Subject.ID, int64(q.Offset), q.Reason, now()); err != nil {
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

// truncate empties the write-ahead log, which has rows as they once were. It is false if
// somebody reads at this moment, who may need them.
func (f *file) truncate(ctx context.Context) (bool, error) {
	if err := f.exec(ctx, "PRAGMA busy_timeout=100"); err != nil {
		return false, err
	}
	var busy, frames, moved int
	err := f.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved)
	return busy == 0, errors.Join(err, f.exec(ctx, "PRAGMA busy_timeout=10000"))
}

// scrub has nothing left of a purged document outside the rows. If a reader is in the way,
// the next commit tries again.
func (f *file) scrub(ctx context.Context) {
	if !f.purged {
		return
	}
	done, err := f.truncate(context.WithoutCancel(ctx))
	if err != nil {
		f.logger.Warn("what was purged may still be in the view's file", "file", f.path, "err", err)
	}
	f.purged = !done
}

// isReplaced reports whether the file at the path is another one by now.
func (f *file) isReplaced() bool {
	there, err := os.Stat(f.path)
	return err != nil || !os.SameFile(there, f.opened)
}

// move sets the cursor, if it is where this writer left it. Another writer shall
// begin anew if a subject left the quarantine: that is another generation.
func (f *file) move(ctx context.Context, c projector.Cursor) error {
	st, err := f.prepare(ctx, "UPDATE views SET offset=?, event=?, recorded=?, head=?, updated=?, generation=generation+min(?, 1) WHERE name=? AND generation=? AND offset=? AND event=?")
	if err != nil {
		return err
	}
	done, err := st.ExecContext(ctx, int64(c.Offset), c.EventID, instant(c.Recorded), int64(c.Head), now(), len(f.forgotten),
		f.view+f.set, f.generation, int64(f.cursor.Offset), f.cursor.EventID)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n != 1 {
		return errors.Join(err, projector.ErrMoved)
	}
	return nil
}

// transact runs do in a transaction that nobody else writes beside.
func (f *file) transact(ctx context.Context, do func() error) error {
	if err := f.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := do()
	if err == nil {
		if err = f.exec(ctx, "COMMIT"); err == nil {
			return nil
		}
	}
	// A rollback fails only where SQLite has rolled back itself.
	_ = f.exec(ctx, "ROLLBACK")
	return err
}

func (f *file) exec(ctx context.Context, text string) error {
	_, err := f.conn.ExecContext(ctx, text)
	return err
}

// run runs a statement on the tables of the set. Statements are prepared once.
func (f *file) run(ctx context.Context, text string, args ...any) error {
	st, err := f.prepare(ctx, text)
	if err == nil {
		_, err = st.ExecContext(ctx, args...)
		runtime.Gosched() // who appends goes first: a commit may take as long as a turn of the scheduler
	}
	return err
}

// put stores a row of a table of the set, with all its columns.
func (f *file) put(ctx context.Context, table string, row ...any) error {
	return f.run(ctx, "INSERT OR REPLACE INTO "+table+"{set} VALUES("+placeholders(len(row))+")", row...)
}

func (f *file) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	if st := f.statements[text]; st != nil {
		return st, nil
	}
	st, err := f.conn.PrepareContext(ctx, strings.ReplaceAll(text, "{set}", f.set))
	if err == nil {
		f.statements[text] = st
	}
	return st, err
}

// find reads one row, and reports whether there is one.
func (f *file) find(ctx context.Context, text string, args, into []any) (bool, error) {
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

// close closes the file. What was not committed is gone.
func (f *file) close() error {
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

// keepLog has the connection leave the write-ahead log when it closes. Else SQLite removes
// the one of that name, which belongs to another file by now.
func (f *file) keepLog() error {
	return f.conn.Raw(func(c any) error {
		_, err := c.(sqlite.FileControl).FileControlPersistWAL("main", 1)
		return err
	})
}

// remove closes the file and removes it with what SQLite keeps beside it. The caller holds
// opening.
func (f *file) remove() error {
	f.close()
	return remove(f.path)
}

// Remove removes a file of views with what SQLite keeps beside it, that first: a
// new file of the name must not find it. A process that has the file open keeps what it sees.
func Remove(path string) error {
	opening.Lock()
	defer opening.Unlock()
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

// querier is a connection, or a pool of them.
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

func now() string { return instant(time.Now()) }

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// offset reads a column into an offset: the driver knows signed numbers only.
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
