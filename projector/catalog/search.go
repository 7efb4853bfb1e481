package catalog

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// searchForm has the version that changes whenever the tables do, or what is made
// of a turn.
var searchForm = form{
	view:    "search",
	version: 2,
	tables:  []string{"turns"},
	schema: `
CREATE VIRTUAL TABLE turns{set} USING fts5(
	text, namespace UNINDEXED, session UNINDEXED, offset UNINDEXED, thread UNINDEXED, number UNINDEXED, roles UNINDEXED, at UNINDEXED,
	tokenize='unicode61 remove_diacritics 2');
`}

// Text makes of a turn what is searched, and says who speaks in it.
type Text func(projector.Turn) (roles, text string)

// Search is the view of the text of all turns, for the process that writes it. It
// is a projector.View; Finder reads it. A turn that was rewound stays in it: what
// is in effect is known to the catalog.
type Search struct {
	file
	text    Text
	pending []found
	held    int64 // bytes of those
}

// found is a turn and its text.
type found struct {
	subject       events.Subject
	thread        string
	offset        events.Offset
	number        int // among those that its event brought to the thread, from 0
	at            events.Timestamp
	roles, spoken string
}

// maxText is how much of one turn is searched, in bytes.
const maxText = 1 << 20

// NewSearch returns the view in a directory, to be run by a projector.Runner.
func NewSearch(dir string, text Text, lg *slog.Logger) *Search {
	return newSearch(filepath.Join(dir, SearchFileName), current, text, lg)
}

func newSearch(path, set string, text Text, lg *slog.Logger) *Search {
	return &Search{file: file{form: searchForm, path: path, set: set, logger: lg}, text: text}
}

// Name implements projector.View.
func (s *Search) Name() string { return s.view }

// Begin implements projector.View.
func (s *Search) Begin(ctx context.Context) (projector.Cursor, []projector.Quarantine, error) {
	s.pending, s.held = nil, 0
	return s.begin(ctx)
}

// Reset implements projector.View.
func (s *Search) Reset(ctx context.Context) error {
	s.pending, s.held = nil, 0
	return s.reset(ctx)
}

// Apply implements projector.View.
func (s *Search) Apply(_ context.Context, f projector.Fact) error {
	for _, t := range s.turnsOf(f) {
		s.pending = append(s.pending, t)
		s.held += t.size()
	}
	return nil
}

// Held implements projector.View.
func (s *Search) Held() int64 { return s.held }

// size is about how many bytes of memory a turn takes.
func (t *found) size() int64 { return int64(400 + len(t.spoken)) }

// turnsOf returns the turns that a record brings and that say something.
func (s *Search) turnsOf(f projector.Fact) []found {
	var list []found
	brought := f.Brings()
	for _, name := range brought.Names() {
		for _, t := range brought.Turns(name) {
			roles, text := s.text(t)
			if text == "" {
				continue
			}
			list = append(list, found{f.Subject, name, f.Offset, t.Index, cmp.Or(t.Timestamp, f.Happened()), roles, cut(text, maxText)})
		}
	}
	return list
}

// cut shortens a text to so many bytes, between two characters.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// Quarantine implements projector.View.
func (s *Search) Quarantine(q projector.Quarantine) {
	s.aside = append(s.aside, q)
	s.pending = slices.DeleteFunc(s.pending, func(t found) bool { return t.subject == q.Subject })
}

// Forget implements projector.View.
func (s *Search) Forget(_ context.Context, sub events.Subject) error {
	s.forgotten = append(s.forgotten, sub)
	return nil
}

// Commit implements projector.View.
func (s *Search) Commit(ctx context.Context, c projector.Cursor) error {
	err := s.commit(ctx, c, func(ctx context.Context) error {
		for _, sub := range s.forgotten {
			if err := s.run(ctx, "DELETE FROM turns{set} WHERE namespace=? AND session=?", sub.Namespace, sub.ID); err != nil {
				return err
			}
		}
		for _, t := range s.pending {
			if err := s.run(ctx, "INSERT INTO turns{set}(text, namespace, session, offset, thread, number, roles, at) VALUES(?,?,?,?,?,?,?,?)",
				t.spoken, t.subject.Namespace, t.subject.ID, int64(t.offset), t.thread, t.number, t.roles, string(t.at)); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		clear(s.pending)
		s.pending, s.held = s.pending[:0], 0
	}
	return err
}

// Close closes the file. What was not committed is read again by the next.
func (s *Search) Close() error { return s.close() }

// Finder finds turns by their text. It is safe for concurrent use.
type Finder struct {
	*reader
	catalog Reader
}

// OpenSearch opens the search view in a directory to read it; the catalog says
// which turns are in effect. If there is no view that can be read, that is
// ErrNoView.
func OpenSearch(ctx context.Context, dir string, catalog Reader) (Finder, error) {
	r, err := openReader(ctx, searchForm, filepath.Join(dir, SearchFileName))
	return Finder{r, catalog}, err
}

// Lookup selects turns of one namespace. Fields that are zero select all.
type Lookup struct {
	Namespace string
	Text      string // words, all of which a turn must have; "quoted" ones in this order
	Session   string
	All       bool // also turns that were rewound
	Limit     int  // 0: everything
}

// What stands around a word that was searched for, in a snippet.
const (
	MatchBegin = "\x01"
	MatchEnd   = "\x02"
)

// Hit is a turn that was found.
type Hit struct {
	Session string
	Offset  events.Offset // of the event that brought it
	Thread  string
	Number  int // among the turns that the event brought to the thread, from 0
	Roles   string
	At      events.Timestamp
	Snippet string // what stands around the words, which are between \x01 and \x02
	Live    bool   // the record is in effect
}

// Find returns turns, the newest first.
func (f Finder) Find(ctx context.Context, l Lookup) ([]Hit, error) {
	match, err := matchOf(l.Text)
	if err != nil {
		return nil, err
	}
	text := "SELECT session, offset, thread, number, roles, at, snippet(turns, 0, char(1), char(2), '…', 16) FROM turns WHERE turns MATCH ? AND namespace=?"
	args := []any{match, l.Namespace}
	if l.Session != "" {
		text, args = text+" AND session=?", append(args, l.Session)
	}
	rows, err := f.db.QueryContext(ctx, text+" ORDER BY rowid DESC", args...)
	if err != nil {
		return nil, f.wrap(err)
	}
	defer rows.Close()
	var hits []Hit
	known := make(map[string]Session)
	for rows.Next() && (l.Limit == 0 || len(hits) < l.Limit) {
		var h Hit
		if err := rows.Scan(&h.Session, offset(&h.Offset), &h.Thread, &h.Number, &h.Roles, &h.At, &h.Snippet); err != nil {
			return nil, f.wrap(err)
		}
		if h.Live, err = f.isLive(ctx, known, l.Namespace, h); err != nil {
			return nil, err
		}
		if h.Live || l.All {
			hits = append(hits, h)
		}
	}
	return hits, f.wrap(rows.Err())
}

// isLive asks the catalog, once for each session. What the catalog does not know
// yet was never rewound as far as it knows.
func (f Finder) isLive(ctx context.Context, known map[string]Session, namespace string, h Hit) (bool, error) {
	s, asked := known[h.Session]
	if !asked {
		var err error
		if s, _, err = f.catalog.Session(ctx, namespace, h.Session); err != nil {
			return false, err
		}
		known[h.Session] = s
	}
	return h.Offset > s.Head || s.Live.Contains(h.Offset), nil
}

// matchOf turns words into what FTS5 understands: each one is itself, whatever
// signs are in it.
func matchOf(text string) (string, error) {
	var terms []string
	for i, part := range strings.Split(text, `"`) {
		if quoted := i%2 == 1; quoted {
			terms = append(terms, strings.TrimSpace(part))
		} else {
			terms = append(terms, strings.Fields(part)...)
		}
	}
	match := ""
	for _, term := range terms {
		if term != "" {
			match += fmt.Sprintf(` "%s"`, strings.ReplaceAll(term, "\x00", " "))
		}
	}
	if match == "" {
		return "", &events.InvalidError{Field: "text", Reason: "there is no word to search for"}
	}
	return match, nil
}
