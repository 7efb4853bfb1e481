package catalog

import (
	"context"
	"database/sql"
	"path/filepath"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// WorkReader reads the open work while another process may write it. It is safe for concurrent use. All results are as
// of the view's cursor: newer records are not included.
type WorkReader struct{ *viewReader }

// OpenWork opens the view Work in a directory for reading. If the directory has no readable view, the error is
// ErrNoView.
func OpenWork(ctx context.Context, dir string) (WorkReader, error) {
	r, err := openReader(ctx, workForm, filepath.Join(dir, WorkFileName))
	return WorkReader{r}, err
}

// Cursor returns the offset up to which the view has folded the log.
func (r WorkReader) Cursor(ctx context.Context) (events.Offset, error) {
	c, _, err := readCursor(ctx, r.db, r.view)
	return c.Offset, r.wrap(err)
}

// now returns the log's time in the view: when its newest record was recorded.
func (r WorkReader) now(ctx context.Context) (int64, error) {
	c, _, err := readCursor(ctx, r.db, r.view)
	return c.Recorded.UnixMilli(), r.wrap(err)
}

// Due lists entries that are due by a time, earliest first: at most limit, or all if limit is 0. Times are rounded up
// to milliseconds. A queue is listed once, for its earliest entry. An entry stays until records of its subject remove
// it.
func (r WorkReader) Due(ctx context.Context, what string, upto time.Time, limit int) ([]projector.Due, error) {
	text := "SELECT namespace, kind, id, about, number, at FROM due WHERE what=? AND at<=?"
	if what == projector.DueQueue {
		text = "SELECT namespace, kind, id, about, number, min(at) AS at FROM due WHERE what=? AND at<=? GROUP BY namespace, kind, id"
	}
	args := []any{what, upto.UnixMilli()}
	text += " ORDER BY at, namespace, kind, id, about, number"
	if limit > 0 {
		text, args = text+" LIMIT ?", append(args, limit)
	}
	rows, err := r.db.QueryContext(ctx, text, args...)
	return r.dues(rows, err, what)
}

func (r WorkReader) dues(rows *sql.Rows, err error, what string) (list []projector.Due, _ error) {
	err = each(rows, err, func() error {
		d := projector.Due{What: what}
		var number int
		var at int64
		err := rows.Scan(&d.Subject.Namespace, &d.Subject.Kind, &d.Subject.ID, offset(&d.About), &number, &at)
		d.At = time.UnixMilli(at)
		list = append(list, d)
		return err
	})
	return list, r.wrap(err)
}

// Orphan is a subject whose owner is gone.
type Orphan struct {
	Subject events.Subject // a document, a flow, or the session of a changeset item
	Overlay bool
	Owner   string    // session of an agent, or of a finished flow
	Gone    time.Time // when the owner left
}

// Orphans lists the subjects in a namespace whose owner is gone, ordered by subject, behind the subject after: at most
// limit, or all if limit is 0.
func (r WorkReader) Orphans(ctx context.Context, namespace string, limit int, after events.Subject) (list []Orphan, err error) {
	text := "SELECT what, namespace, kind, id, owner, at FROM owned JOIN gone USING(namespace, owner) WHERE namespace=? AND (kind, id)>(?, ?) ORDER BY kind, id"
	args := []any{namespace, after.Kind, after.ID}
	if limit > 0 {
		text, args = text+" LIMIT ?", append(args, limit)
	}
	rows, err := r.db.QueryContext(ctx, text, args...)
	err = each(rows, err, func() error {
		var o Orphan
		var what string
		var at int64
		err := rows.Scan(&what, &o.Subject.Namespace, &o.Subject.Kind, &o.Subject.ID, &o.Owner, &at)
		o.Overlay, o.Gone = what == projector.DueOverlay, time.UnixMilli(at)
		list = append(list, o)
		return err
	})
	return list, r.wrap(err)
}

// WorkPage selects a page of a namespace's list, ordered by id.
type WorkPage struct {
	Namespace string
	Limit     int    // 0: all
	After     string // last id of the previous page
}

// with adds a page to a statement whose conditions begin with the namespace.
func (p WorkPage) with(text string, args ...any) (string, []any) {
	args = append([]any{p.Namespace, p.After}, args...)
	text += " ORDER BY id"
	if p.Limit > 0 {
		text, args = text+" LIMIT ?", append(args, p.Limit)
	}
	return text, args
}

// Agents lists agents that were not purged. If status is not "", it lists only agents with this status. An agent
// without status counts as idle.
func (r WorkReader) Agents(ctx context.Context, page WorkPage, status string) ([]Agent, error) {
	text, args := page.with("SELECT "+agentColumns+` FROM agents WHERE namespace=? AND id>? AND kind=? AND purged_at='' AND
		(?4='' OR status=?4 OR ?4='idle' AND status='')`, events.KindAgent, status)
	rows, err := r.db.QueryContext(ctx, text, args...)
	list, err := collect(rows, err, (*Agent).columns)
	return list, r.wrap(err)
}

// Flows lists unfinished flows, or all.
func (r WorkReader) Flows(ctx context.Context, page WorkPage, open bool) ([]FlowListed, error) {
	text := "SELECT " + flowColumns + " FROM flows WHERE namespace=? AND id>?"
	if open {
		text += " AND ended=0"
	}
	text, args := page.with(text)
	rows, err := r.db.QueryContext(ctx, text, args...)
	list, err := collect(rows, err, (*FlowListed).columns)
	for i := range list {
		if err == nil {
			err = list[i].restore()
		}
	}
	return list, r.wrap(err)
}

// InboxListed is a row of the list of inboxes.
type InboxListed struct {
	Namespace string
	Receiver  string
	Status    string        // status in the inbox itself; an agent's session has its own
	Seen      events.Offset // the last record that was read
	Messages  int64
	Unread    int64
	Refused   events.Offset // the last refused message; 0: none
	Refusals  int64         // number of its refusals
	Reason    string        // of the last refusal
	Head      events.Offset
}

func (l *InboxListed) columns() []any {
	return []any{&l.Namespace, &l.Receiver, &l.Status, offset(&l.Seen), &l.Messages, &l.Unread, offset(&l.Refused), &l.Refusals, &l.Reason, offset(&l.Head)}
}

// Inboxes lists inboxes.
func (r WorkReader) Inboxes(ctx context.Context, page WorkPage) ([]InboxListed, error) {
	text, args := page.with(`SELECT namespace, id, status, seen, messages,
		(SELECT count(*) FROM messages m WHERE m.namespace=i.namespace AND m.inbox=i.id AND m.offset>i.seen),
		refused_offset, refusals, reason, head_offset FROM inboxes i WHERE namespace=? AND id>?`)
	rows, err := r.db.QueryContext(ctx, text, args...)
	list, err := collect(rows, err, (*InboxListed).columns)
	return list, r.wrap(err)
}

// MessageListed is a message of an inbox, without its body.
type MessageListed struct {
	Receiver string
	Offset   events.Offset
	Number   int // among the entries of the record
	ID       string
	From     string
	Type     string
	Thread   string
	Bytes    int64 // of the body
	Recorded int64 // Unix milliseconds
	Expects  string
	Deadline events.Timestamp
	Answered events.Offset // the record with the first answer; 0: none
	Unread   bool
	Open     bool // its sender awaits an answer
}

func (m *MessageListed) columns() []any {
	return []any{&m.Receiver, offset(&m.Offset), &m.Number, &m.ID, &m.From, &m.Type, &m.Thread, &m.Bytes, &m.Recorded, &m.Expects, &m.Deadline,
		offset(&m.Answered), &m.Unread, &m.Open}
}

const messageColumns = `m.inbox, m.offset, m.number, m.id, m.sender, m.type, m.thread, m.bytes, m.at, m.expects, m.deadline, m.answered,
	m.offset>(SELECT seen FROM inboxes i WHERE i.namespace=m.namespace AND i.id=m.inbox),
	EXISTS(SELECT 1 FROM questions q WHERE q.namespace=m.namespace AND q.asker=m.sender AND q.asked=m.inbox AND q.id=m.id AND q.offset=m.offset AND q.number=m.number)`

// MessageQuery selects messages of one inbox.
type MessageQuery struct {
	Namespace string
	Receiver  string
	Unread    bool          // only these
	Limit     int           // 0: all
	After     events.Offset // offset of the last message of the previous page,
	Number    int           // and its number
}

// Messages lists the messages of an inbox in log order. A page begins behind the message at After, Number; with After 0
// it is the first page.
func (r WorkReader) Messages(ctx context.Context, q MessageQuery) ([]MessageListed, error) {
	text := "SELECT " + messageColumns + " FROM messages m WHERE m.namespace=? AND m.inbox=? AND (m.offset, m.number)>(?, ?)"
	args := []any{q.Namespace, q.Receiver, int64(q.After), q.Number}
	if q.Unread {
		text += " AND m.offset>(SELECT seen FROM inboxes i WHERE i.namespace=m.namespace AND i.id=m.inbox)"
	}
	text += " ORDER BY m.offset, m.number"
	if q.Limit > 0 {
		text, args = text+" LIMIT ?", append(args, q.Limit)
	}
	rows, err := r.db.QueryContext(ctx, text, args...)
	list, err := collect(rows, err, (*MessageListed).columns)
	return list, r.wrap(err)
}
