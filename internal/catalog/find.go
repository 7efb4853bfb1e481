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

// Finder searches turns by text. It is safe for concurrent use.
type Finder struct {
	*viewReader
	catalog *viewReader
}

// OpenSearch opens the search view in a directory for reading. The catalog supplies the sessions and which turns are in
// effect. If the directory has no readable view, the error is ErrNoView.
func OpenSearch(ctx context.Context, dir string, catalog Reader) (Finder, error) {
	r, err := openReader(ctx, searchForm, filepath.Join(dir, SearchFileName))
	return Finder{r, catalog.viewReader}, err
}

// Ranking is the sort order of hits.
type Ranking string

// The rankings.
const (
	ByNewest Ranking = "newest" // newest turn first
	ByRank   Ranking = "rank"   // best match first: most of the words in the shortest text
)

// Lookup selects turns of one namespace. A zero field selects all.
type Lookup struct {
	Namespace string

	// Text is the search text. A turn must contain all its words, in any order, regardless of case and accents. "Words
	// in quotes" must be consecutive. refun* matches any word that begins so. a OR b matches either. -x excludes turns
	// with x. Other signs have no meaning, so no text is malformed. A text without a required word is an InvalidError.
	Text string

	Session string    // the whole id
	Thread  string    // "": all threads but the thread log of transcripts
	Role    string    // one of the speakers in the turn
	Since   time.Time // time of the turn at or after
	Until   time.Time // time of the turn before
	Kind    string    // of the session, like the next two
	Project string
	CWD     string

	All   bool    // include rewound turns
	Sort  Ranking // "": ByNewest
	Limit int     // 0: everything
}

// Hit is a turn that matches.
type Hit struct {
	Session string `json:"session"`
	Kind    string `json:"kind,omitempty"` // kind, title and project of the session; "" if the catalog does not have the session yet
	Title   string `json:"title,omitempty"`
	Project string `json:"project,omitempty"`

	Offset   events.Offset    `json:"offset"` // of the event that added the turn
	Thread   string           `json:"thread"`
	Number   int              `json:"index"` // index among the turns that the event added to the thread, from 0
	Roles    string           `json:"roles"` // the speakers, joined with spaces
	Speakers []string         `json:"speakers"`
	At       events.Timestamp `json:"time,omitempty"`
	Snippet  string           `json:"snippet"` // text around the matches
	Spans    []Span           `json:"spans"`   // pieces of the snippet
	Live     bool             `json:"live"`    // the record is in effect
}

// Span is a piece of a snippet.
type Span struct {
	Text  string `json:"text"`
	Match bool   `json:"match"` // the query matches the piece
}

// Found is the result of a search.
type Found struct {
	Hits    []Hit
	Rewound int // number of rewound turns that were skipped before the limit was reached
}

// snippetWords is the maximum number of words in a snippet.
const snippetWords = 32

// Find searches turns.
func (f Finder) Find(ctx context.Context, l Lookup) (Found, error) {
	match, err := matchOf(l.Text)
	if err != nil {
		return Found{}, err
	}
	mark := rand.Text() // unpredictable, so no turn can contain it
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

// attached calls do with a connection that has the catalog attached to the search view, as lists.
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

// read reads hits up to the limit.
func (l Lookup) read(rows *sql.Rows, mark string) (Found, error) {
	var found Found
	known := make(map[string]Intervals)
	seen := make(map[string]bool) // lines of agents' files that were repeated when a file was rewritten
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
		// Records that the catalog has not folded yet count as live.
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

// spansOf splits a snippet at the marks before and after each match.
func spansOf(snippet, mark string) []Span {
	spans := []Span{}
	for i, text := range strings.Split(snippet, mark) {
		if text = joined(text); text != "" {
			spans = append(spans, Span{text, i%2 == 1})
		}
	}
	return spans
}

// kindOfHit is an SQL expression for the kind of a hit's session. The catalog has no rows of items.
const kindOfHit = "coalesce(s.kind, iif(turns.session GLOB '" + events.KindItem + "/?*/?*', '" + events.KindItem + "', ''))"

// sql returns the statement of a lookup. It reads turns in the requested order and looks up the session of each, so
// that it can stop at the limit.
func (l Lookup) sql(match, mark string) (string, []any, error) {
	order, err := l.Sort.order()
	if err != nil {
		return "", nil, err
	}
	where, values := l.where()
	text := `SELECT turns.session, turns.offset, turns.thread, turns.number, turns.roles, turns.at, snippet(turns.turns, 0, ?, ?, '…', ?),
		` + kindOfHit + `, coalesce(s.title, ''), coalesce(s.project, ''), coalesce(s.live, ''), coalesce(s.head_offset, 0)
		FROM turns LEFT JOIN lists.sessions s ON s.namespace=turns.namespace AND s.id=turns.session
		WHERE turns.turns MATCH ? AND turns.rank MATCH 'bm25(1, 0, 0, 0, 0, 0, 0, 0, 0)' AND ` + l.logs() + strings.Join(where, " AND ") + " ORDER BY " + order
	return text, append([]any{mark, mark, snippetWords, match}, values...), nil
}

// logs excludes the log entries of agents, which repeat much of their conversations, unless a thread is requested.
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
	return conditions([]sqlCondition{
		{"turns.namespace=?", l.Namespace}, {"turns.session=?", l.Session}, {"turns.thread=?", l.Thread}, {"instr(' '||turns.roles||' ', ' '||?||' ')>0", l.Role},
		{"turns.at>=?", stamp(l.Since)}, {"turns.at<?", stamp(l.Until)},
		// The expressions prevent SQLite from starting with the sessions and searching in each.
		{kindOfHit + "=?", l.Kind}, {"coalesce(s.project, '')=?", l.Project}, {"coalesce(s.cwd, '')=?", l.CWD},
	})
}

// sqlCondition is an SQL condition with one value. "" selects all, except in the first condition of a list, the
// namespace.
type sqlCondition struct{ text, value string }

func conditions(list []sqlCondition) (where []string, args []any) {
	for i, c := range list {
		if i == 0 || c.value != "" {
			where, args = append(where, c.text), append(args, c.value)
		}
	}
	return where, args
}

// stamp formats a time, or returns "" for the zero time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return string(events.TimestampOf(t))
}
