package catalog

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
)

// Finder finds turns by their text. It is safe for concurrent use.
type Finder struct {
	*reader
	catalog *reader
}

// OpenSearch opens the search view in a directory to read it; the catalog says
// which turns are in effect, and what their sessions are. If there is no view that can be
// read, that is ErrNoView.
func OpenSearch(ctx context.Context, dir string, catalog Reader) (Finder, error) {
	r, err := openReader(ctx, searchForm, filepath.Join(dir, SearchFileName))
	return Finder{r, catalog.reader}, err
}

// Ranking is what hits are sorted by.
type Ranking string

// The rankings.
const (
	ByNewest Ranking = "newest" // the turn that came last is first
	ByRank   Ranking = "rank"   // the turn that says most of the words, in the fewest words, is first
)

// Lookup selects turns of one namespace. Fields that are zero select all.
type Lookup struct {
	Namespace string

	// Text is what a turn must say: all words of it, in any order, and whatever the case or
	// the accents; "words between quotes" one after the other; refun* is any word that
	// begins so; a OR b one of the two; and no turn that says -x. Other signs have no
	// meaning: no text is malformed. Without a word that must be there it is an InvalidError.
	Text string

	Session string    // the whole id
	Thread  string    // "": all but the thread log of transcripts
	Role    string    // one of those who speak in the turn
	Since   time.Time // the turn was then or after
	Until   time.Time // the turn was before
	Kind    string    // of the session, as are the next two
	Project string
	CWD     string

	All   bool    // also turns that were rewound
	Sort  Ranking // "": ByNewest
	Limit int     // 0: everything
}

// Hit is a turn that was found.
type Hit struct {
	Session string `json:"session"`
	Kind    string `json:"kind,omitempty"` // kind, title and project of the session; "" if the catalog does not have the session yet
	Title   string `json:"title,omitempty"`
	Project string `json:"project,omitempty"`

	Offset   events.Offset    `json:"offset"` // of the event that brought the turn
	Thread   string           `json:"thread"`
	Number   int              `json:"index"` // index among the turns that the event brought to the thread, from 0
	Roles    string           `json:"roles"` // the speakers, with spaces between them
	Speakers []string         `json:"speakers"`
	At       events.Timestamp `json:"time,omitempty"`
	Snippet  string           `json:"snippet"` // text around the words
	Spans    []Span           `json:"spans"`   // pieces of the snippet
	Live     bool             `json:"live"`    // the record is in effect
}

// Span is a piece of a snippet.
type Span struct {
	Text  string `json:"text"`
	Match bool   `json:"match"` // the query matches the piece
}

// Found is what a search found.
type Found struct {
	Hits    []Hit
	Rewound int // turns that were left out before the limit was reached, as they were rewound
}

// snippetWords is how many words a snippet has at most.
const snippetWords = 32

// Find returns turns.
func (f Finder) Find(ctx context.Context, l Lookup) (Found, error) {
	match, err := matchOf(l.Text)
	if err != nil {
		return Found{}, err
	}
	mark := rand.Text() // nobody who wrote a turn can know it
	var found Found
	err = f.attached(ctx, func(conn *sql.Conn) error {
		match, err := l.narrow(ctx, conn, match)
		if err != nil || match == "" {
			return err
		}
		text, args, err := l.sql(match, mark)
		if err != nil {
			return err
		}
		rows, err := conn.QueryContext(ctx, text, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		found, err = l.read(rows, mark)
		return err
	})
	if _, invalid := errors.AsType[*events.InvalidError](err); invalid {
		return Found{}, err
	}
	return found, f.wrap(err)
}

// attached calls do with a connection that has the catalog beside the search view, as
// lists.
func (f Finder) attached(ctx context.Context, do func(*sql.Conn) error) error {
	conn, err := f.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "ATTACH ? AS lists", dsn(f.catalog.path, "rw")); err != nil {
		return err
	}
	err = do(conn)
	_, detached := conn.ExecContext(context.WithoutCancel(ctx), "DETACH lists")
	return errors.Join(err, detached)
}

// read reads hits until there are enough.
func (l Lookup) read(rows *sql.Rows, mark string) (Found, error) {
	var found Found
	known := make(map[string]Intervals)
	seen := make(map[string]bool) // lines of agents' files that came again when a file was written again
	for (l.Limit == 0 || len(found.Hits) < l.Limit) && rows.Next() {
		h, snippet, live, head := Hit{}, "", "", events.Offset(0)
		if err := rows.Scan(&h.Session, offset(&h.Offset), &h.Thread, &h.Number, &h.Roles, &h.At, &snippet, &h.Kind, &h.Title, &h.Project, &live, offset(&head)); err != nil {
			return found, err
		}
		intervals, ok := known[h.Session]
		if !ok {
			if err := intervals.Scan(live); err != nil {
				return found, err
			}
			known[h.Session] = intervals
		}
		// What the catalog does not know yet was never rewound as far as it knows.
		if h.Live = h.Offset > head || intervals.Contains(h.Offset); !h.Live && !l.All {
			found.Rewound++
			continue
		}
		if h.Kind == events.KindTranscript && !l.All {
			key := strings.Join([]string{h.Session, h.Thread, h.Roles, string(h.At), snippet}, "\x00")
			if seen[key] {
				continue
			}
			seen[key] = true
		}
		h.Speakers, h.Spans = slices.AppendSeq([]string{}, strings.FieldsSeq(h.Roles)), spansOf(snippet, mark)
		for _, s := range h.Spans {
			h.Snippet += s.Text
		}
		found.Hits = append(found.Hits, h)
	}
	return found, rows.Err()
}

// spansOf splits a snippet at the marks that stand before and after each match.
func spansOf(snippet, mark string) []Span {
	spans := []Span{}
	for i, text := range strings.Split(snippet, mark) {
		if text = joined(text); text != "" {
			spans = append(spans, Span{text, i%2 == 1})
		}
	}
	return spans
}

// sql returns the statement of a lookup. It goes through turns in the order asked for and
// asks for the session of each, so that it can stop when there are enough.
func (l Lookup) sql(match, mark string) (string, []any, error) {
	order, err := l.Sort.order()
	if err != nil {
		return "", nil, err
	}
	where, values := l.where()
	text := `SELECT turns.session, turns.offset, turns.thread, turns.number, turns.roles, turns.at, snippet(turns.turns, 0, ?, ?, '…', ?),
		coalesce(s.kind, ''), coalesce(s.title, ''), coalesce(s.project, ''), coalesce(s.live, ''), coalesce(s.head_offset, 0)
		FROM turns LEFT JOIN lists.sessions s ON s.namespace=turns.namespace AND s.id=turns.session
		WHERE turns.turns MATCH ? AND turns.rank MATCH 'bm25(1, 0, 0, 0, 0, 0, 0, 0, 0)' AND ` + l.logs() + strings.Join(where, " AND ") + " ORDER BY " + order
	return text, append([]any{mark, mark, snippetWords, match}, values...), nil
}

// logs leaves out what agents log, which says much of their conversations again, unless a
// thread is asked for.
func (l Lookup) logs() string {
	if l.Thread != "" {
		return ""
	}
	return "NOT (turns.thread='" + events.LogThread + "' AND coalesce(s.kind, '')='" + events.KindTranscript + "') AND "
}

func (r Ranking) order() (string, error) {
	switch r {
	case ByNewest, "":
		return "turns.rowid DESC", nil
	case ByRank:
		return "turns.rank", nil
	}
	return "", &events.InvalidError{Field: "sort", Reason: fmt.Sprintf("%q: want newest or rank", string(r))}
}

func (l Lookup) where() (where []string, args []any) {
	return conditions([]condition{
		{"turns.namespace=?", l.Namespace}, {"turns.session=?", l.Session}, {"turns.thread=?", l.Thread}, {"instr(' '||turns.roles||' ', ' '||?||' ')>0", l.Role},
		{"turns.at>=?", stamp(l.Since)}, {"turns.at<?", stamp(l.Until)},
		// So that SQLite does not begin with the sessions, and search in each of them.
		{"coalesce(s.kind, '')=?", l.Kind}, {"coalesce(s.project, '')=?", l.Project}, {"coalesce(s.cwd, '')=?", l.CWD},
	})
}

// condition is one of SQL with one value. "" selects all, but for the first of a list, which
// is that of the namespace.
type condition struct{ text, value string }

func conditions(list []condition) (where []string, args []any) {
	for i, c := range list {
		if i == 0 || c.value != "" {
			where, args = append(where, c.text), append(args, c.value)
		}
	}
	return where, args
}

// stamp spells a time, "" for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return string(events.TimestampOf(t))
}
