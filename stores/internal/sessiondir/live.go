package sessiondir

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// statusArchived is the status of an archived session.
const statusArchived = "archived"

// IsArchived reports whether a session was archived. An archived session has no files in a tree.
func IsArchived(l *projector.Ledger) bool { return l.Text("status") == statusArchived }

// IsPath reports whether name is a clean path below a root.
func IsPath(name string) bool {
	return name != "" && name != "." && path.Clean(name) == name && !strings.HasPrefix(name, "/") && name != ".." && !strings.HasPrefix(name, "../")
}

// Removed returns the append that deletes a document whose file was removed. If the document does not exist, Removed
// returns nil.
func (s Stamp) Removed(ctx context.Context, src layouts.Source, doc events.Subject) ([]log.Part, error) {
	have, err := Load(ctx, src, doc)
	if err != nil || !have.Exists {
		return nil, err
	}
	e, err := events.New(s.Source, doc, &events.DocumentDeleted{Reason: "the file was removed"})
	e.ID = events.DerivedID(s.Format, doc.String(), have.Last.String(), "gone")
	return []log.Part{{Subject: doc, Expect: log.At(have.Last), Events: []events.Event{e}}}, err
}

// Archived returns the append that archives a session whose files were removed. If the session does not exist or is
// archived already, Archived returns nil. more returns further fields to set, computed from the session's state.
func (s Stamp) Archived(ctx context.Context, src layouts.Source, session events.Subject, more func(*projector.Outline) (events.Fields, error)) ([]log.Part, error) {
	o, err := src.Loader().Peek(ctx, session)
	if err != nil || o.Offset() == 0 || IsArchived(o.Ledger()) {
		return nil, err
	}
	p := &events.SessionUpdated{Set: events.Fields{{Name: "status", Value: events.Raw(`"` + statusArchived + `"`)}}, Reason: "its files were removed"}
	if more != nil {
		set, err := more(o)
		if err != nil {
			return nil, err
		}
		p.Set = append(p.Set, set...)
	}
	e, err := events.New(s.Source, session, p)
	return []log.Part{{Subject: session, Expect: log.At(o.Offset()), Events: []events.Event{s.Named(e, o.Offset(), "archived", "")}}}, err
}

// Now returns the time of the store's log. If the source has no clock, it returns the time of the session's newest
// record.
func Now(ctx context.Context, src layouts.Source, l *projector.Ledger) (time.Time, error) {
	if st, ok := src.(logTimer); ok {
		return st.LogTime(ctx)
	}
	at, _ := l.LastAt.Time()
	return at, nil
}

// logTimer is a source with a clock, as a store is.
type logTimer interface {
	LogTime(ctx context.Context) (time.Time, error)
}
