package catalog

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// searchForm is the search view's form. Its version changes with the tables and with the extraction of turns.
var searchForm = form{
	view:    "search",
	version: 8,
	tables:  append([]string{"turns"}, activityTables...),
	schema: `
CREATE VIRTUAL TABLE turns{set} USING fts5(
	text, namespace UNINDEXED, session UNINDEXED, offset UNINDEXED, thread UNINDEXED, number UNINDEXED, roles UNINDEXED, at UNINDEXED, scope,
	tokenize='unicode61 remove_diacritics 2');
INSERT INTO turns{set}(turns{set}, rank) VALUES('secure-delete', 1);
` + activitySchema}

// dropTurns finds the turns of a session by its word: the other columns have no index.
const dropTurns = "DELETE FROM turns{set} WHERE rowid IN (SELECT rowid FROM turns{set} WHERE turns{set} MATCH ? AND namespace=? AND session=?)"

// Text extracts the searchable text and the counts from a turn.
type Text func(projector.Turn) projector.Said

// Search is the view of the text of all turns, with usage and tool calls, for the process that writes it. It is a
// projector.View. Finder and Activity read it. Rewound turns stay in the view: the catalog determines which turns are
// in effect.
type Search struct {
	viewFile
	text     Text
	pending  []foundTurn
	activity activity
	held     int64 // memory of pending and activity, in bytes
}

// foundTurn is a turn and its text.
type foundTurn struct {
	turnLocation
	at            events.Timestamp
	roles, spoken string
}

// maxText is the maximum searchable text of one turn, in bytes.
const maxText = 1 << 20

// NewSearch returns the view in a directory, for a projector.Runner.
func NewSearch(dir string, text Text, lg *slog.Logger) *Search {
	return newSearch(filepath.Join(dir, SearchFileName), current, text, lg)
}

func newSearch(path, set string, text Text, lg *slog.Logger) *Search {
	return &Search{viewFile: viewFile{form: searchForm, path: path, set: set, logger: lg}, text: text}
}

// Name implements projector.View.
func (s *Search) Name() string { return s.view }

// Begin implements projector.View.
func (s *Search) Begin(ctx context.Context) (projector.Cursor, []projector.Quarantine, error) {
	s.pending, s.activity, s.held = nil, activity{}, 0
	return s.begin(ctx)
}

// Reset implements projector.View.
func (s *Search) Reset(ctx context.Context) error {
	s.pending, s.activity, s.held = nil, activity{}, 0
	return s.reset(ctx)
}

// Apply implements projector.View. Documents have no turns.
func (s *Search) Apply(_ context.Context, f projector.Fact) error {
	if !f.Subject.IsSession() {
		return nil
	}
	blocks := len(s.activity.strip)
	s.activity.strip.record(f)
	s.held += int64(len(s.activity.strip)-blocks) * rowSize
	for _, t := range s.turnsOf(f) {
		s.pending = append(s.pending, t)
		s.held += t.size()
	}
	if p, ok := f.Payload.(*events.CostAccrued); ok {
		s.held += s.activity.cost(f, p)
	}
	return nil
}

// Held implements projector.View.
func (s *Search) Held() int64 { return s.held }

// size returns the approximate memory of a turn, in bytes.
func (t *foundTurn) size() int64 { return int64(400 + len(t.spoken)) }

// turnsOf returns the turns with text in a record, and counts their usage and calls.
func (s *Search) turnsOf(f projector.Fact) []foundTurn {
	var list []foundTurn
	brought := f.Brings()
	_, isReplacement := f.Payload.(*events.ThreadReplaced)
	for _, name := range brought.Names() {
		for _, t := range brought.Turns(name) {
			said, place, at := s.text(t), turnLocation{f.Subject, f.Offset, name, t.Index}, timeOf(t, f)
			isLine := events.IsAgentLine(f.Event)
			if isLine { // a cost event reports its usage
				said.Usage = events.Tokens{}
			}
			s.held += s.activity.turn(turnRow{place, at, t.Run, isReplacement, !isLine || name != events.LogThread, len(t.Raw) + len(t.Bytes)}, said)
			if said.Text != "" {
				list = append(list, foundTurn{place, at, said.Roles, spreadLetters(projector.Cut(said.Text, maxText))})
			}
		}
	}
	return list
}

// timeOf returns the time of a turn, else of its event. All times of the views have the same format, so they compare as
// text.
func timeOf(t projector.Turn, f projector.Fact) events.Timestamp {
	if at, ok := t.Timestamp.Time(); ok {
		return events.TimestampOf(at)
	}
	return f.Happened()
}

// dayOf returns the day of a time, in UTC.
func dayOf(at events.Timestamp) string { return string(at)[:len(time.DateOnly)] }

// Quarantine implements projector.View.
func (s *Search) Quarantine(q projector.Quarantine) {
	s.aside = append(s.aside, q)
	s.pending = slices.DeleteFunc(s.pending, func(t foundTurn) bool { return t.subject == q.Subject })
	s.activity.drop(q.Subject)
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
			if !sub.IsSession() {
				continue
			}
			if err := s.run(ctx, dropTurns, "scope : "+sessionWord(sub), sub.Namespace, sub.ID); err != nil {
				return err
			}
			for _, table := range activityTables {
				if err := s.run(ctx, "DELETE FROM "+table+"{set} WHERE namespace=? AND session=?", sub.Namespace, sub.ID); err != nil {
					return err
				}
			}
		}
		for _, t := range s.pending {
			if err := s.run(ctx, "INSERT INTO turns{set}(namespace, session, offset, thread, number, text, roles, at, scope) VALUES(?,?,?,?,?,?,?,?,?)",
				append(t.columns(), t.spoken, t.roles, string(t.at), sessionWord(t.subject)+" "+dayWord(t.at))...); err != nil {
				return err
			}
		}
		return s.activity.store(ctx, &s.viewFile)
	})
	if err == nil {
		clear(s.pending)
		s.pending, s.activity, s.held = s.pending[:0], activity{}, 0
	}
	return err
}

// Close closes the file. The next writer reads uncommitted records again.
func (s *Search) Close() error { return s.close() }
