package catalog

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
)

// Reader reads the catalog while another process may write it. It is safe for concurrent use.
type Reader struct{ *viewReader }

// Open opens the catalog in a directory for reading. If the directory has no readable catalog, the error is ErrNoView.
func Open(ctx context.Context, dir string) (Reader, error) {
	r, err := openReader(ctx, catalogForm, filepath.Join(dir, FileName))
	return Reader{r}, err
}

// Order is the sort order of a session list.
type Order string

// The orders. All but ByID are descending.
const (
	ByHead    Order = "last"    // most recently written first
	ByActive  Order = "active"  // by the latest record time of the producers; an import keeps these times
	ByCreated Order = "created" // by the producers' clocks
	ByTurns   Order = "turns"
	ByRecords Order = "records"
	ByID      Order = "id"
)

// column returns the column that an order sorts by, and whether it descends.
func (o Order) column() (name string, descends bool, err error) {
	switch o {
	case ByHead, "":
		return "head_offset", true, nil
	case ByActive:
		return "last_at", true, nil
	case ByCreated:
		return "created_at", true, nil
	case ByTurns:
		return "turns", true, nil
	case ByRecords:
		return "records", true, nil
	case ByID:
		return "id", false, nil
	}
	return "", false, &events.InvalidError{Field: "sort", Reason: fmt.Sprintf("%q: want last, active, created, turns, records or id", string(o))}
}

// Query selects sessions of one namespace. A zero field selects all.
type Query struct {
	Namespace string
	Kind      string
	Since     time.Time // written to at or after
	Until     time.Time // written to before
	Grep      string    // in id, title, goal or opening, regardless of case
	CWD       string
	Project   string
	Agent     string // of a recorded agent, such as claude
	Model     string // one of Session.Models
	Status    string
	Parent    string // started by, or forked from
	Erased    bool   // also sessions of which all content was erased
	Sort      Order
	Limit     int    // of a page; 0: everything
	After     string // Page.Next of the previous page
}

// Page is a part of a list.
type Page struct {
	Sessions []Session
	Next     string // where the next page begins; "": last page
}

// List returns a page of sessions.
func (r Reader) List(ctx context.Context, q Query) (Page, error) { return r.ListOf(ctx, q, nil) }

// ListOf returns a page of the sessions for which keep returns true. If keep is nil, all match.
func (r Reader) ListOf(ctx context.Context, q Query, keep func(Session) bool) (Page, error) {
	read := q
	if keep != nil {
		read.Limit = 0
	}
	text, args, err := read.sql()
	if err != nil {
		return Page{}, err
	}
	var p Page
	var last rowMark
	rows, err := r.db.QueryContext(ctx, text, args...)
	err = each(rows, err, func() error {
		var s Session
		var m rowMark
		if err := rows.Scan(append(s.columns(), &m.key, &m.value)...); err != nil {
			return err
		}
		switch {
		case keep != nil && !keep(s):
			return nil
		case q.Limit > 0 && len(p.Sessions) == q.Limit:
			p.Next = last.token(q.Sort) // of the previous row: this row only shows that there are more
			return errEnough
		}
		p.Sessions, last = append(p.Sessions, s), m
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return p, r.wrap(err)
}

// Session returns a session by id. It returns false if the session is missing.
func (r Reader) Session(ctx context.Context, namespace, id string) (Session, bool, error) {
	var s Session
	err := r.db.QueryRowContext(ctx, "SELECT "+sessionColumns+" FROM sessions WHERE namespace=? AND id=?", namespace, id).Scan(s.columns()...)
	if errors.Is(err, sql.ErrNoRows) {
		return Session{}, false, nil
	}
	return s, err == nil, r.wrap(err)
}

// sql returns the statement of a query. It reads one row more than the limit, to detect another page.
func (q Query) sql() (string, []any, error) {
	column, descends, err := q.Sort.column()
	if err != nil {
		return "", nil, err
	}
	where, args := q.where()
	sign, word := ">", ""
	if descends {
		sign, word = "<", " DESC"
	}
	if q.After != "" {
		m, err := parseMark(q.After, q.Sort)
		if err != nil {
			return "", nil, err
		}
		where = append(where, "("+column+" "+sign+" ? OR "+column+"=? AND id>(SELECT id FROM sessions WHERE session=?))")
		args = append(args, m.value, m.value, m.key)
	}
	text := "SELECT " + sessionColumns + ", session, " + column + " FROM sessions WHERE " + strings.Join(where, " AND ") +
		" ORDER BY " + column + word + ", id" // keys are in order of arrival, which an import does not repeat
	if q.Limit > 0 {
		text += fmt.Sprintf(" LIMIT %d", q.Limit+1)
	}
	return text, args, nil
}

func (q Query) where() (where []string, args []any) {
	where, args = conditions([]sqlCondition{{"namespace=?", q.Namespace}, {"kind=?", q.Kind}, {"cwd=?", q.CWD}, {"project=?", q.Project}, {"status=?", q.Status},
		{"last_at>=?", stamp(q.Since)}, {"last_at<?", stamp(q.Until)}})
	add := func(condition string, values ...any) {
		where, args = append(where, condition), append(args, values...)
	}
	if q.Grep != "" {
		like := "%" + strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(q.Grep) + "%"
		add(`(id LIKE ? ESCAPE '\' OR title LIKE ? ESCAPE '\' OR goal LIKE ? ESCAPE '\' OR opening LIKE ? ESCAPE '\')`, like, like, like, like)
	}
	if q.Agent != "" {
		add("kind=? AND substr(id, 1, ?)=?", events.KindTranscript, utf8.RuneCountInString(q.Agent)+1, q.Agent+"/")
	}
	if q.Model != "" {
		add("instr(', '||models||',', ', '||?||',')>0", q.Model)
	}
	if !q.Erased {
		add("erased=0")
	}
	if q.Parent != "" {
		add("(parent=? OR fork_session=?)", q.Parent, q.Parent)
	}
	return where, args
}

// rowMark is the position after a row: its sort value, and its key in place of the session's id.
type rowMark struct {
	key   int64
	value any // int64 or string
}

// markState is the encoded form of a mark.
type markState struct {
	Sort  Order  `json:"s"`
	Key   int64  `json:"k"`
	Text  string `json:"t,omitempty"`
	Whole int64  `json:"w,omitempty"`
}

// token encodes a mark for the user to pass back.
func (m rowMark) token(o Order) string {
	st := markState{Sort: o, Key: m.key}
	switch v := m.value.(type) {
	case string:
		st.Text = v
	case int64:
		st.Whole = v
	}
	text, err := json.Marshal(st) // an id that is not UTF-8 is converted; the position is then approximate
	if err != nil {
		panic(fmt.Sprintf("catalog: %v", err)) // texts and whole numbers can be encoded
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseMark(token string, o Order) (rowMark, error) {
	var st markState
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	if err != nil || st.Sort != o {
		return rowMark{}, &events.InvalidError{Field: "after", Reason: fmt.Sprintf("%q is not a page token of this list", token)}
	}
	switch o {
	case ByActive, ByCreated, ByID:
		return rowMark{st.Key, st.Text}, nil
	}
	return rowMark{st.Key, st.Whole}, nil
}
