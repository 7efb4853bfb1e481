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

// statusArchived is that of a session that was put away.
const statusArchived = "archived"

// IsArchived reports whether a session was put away: it has no files that follow it.
func IsArchived(l *projector.Ledger) bool { return l.Text("status") == statusArchived }

// IsPath reports whether a path is one below a root.
func IsPath(name string) bool {
	return name != "" && name != "." && path.Clean(name) == name && !strings.HasPrefix(name, "/") && name != ".." && !strings.HasPrefix(name, "../")
}

// Removed is the append by which a document is deleted whose file is gone; nothing if it is not
// there.
func (s Stamp) Removed(ctx context.Context, src layouts.Source, doc events.Subject) ([]log.Part, error) {
	have, err := Load(ctx, src, doc)
	if err != nil || !have.Exists {
		return nil, err
	}
	e, err := events.New(s.Source, doc, &events.DocumentDeleted{Reason: "the file was removed"})
	e.ID = events.DerivedID(s.Format, doc.String(), have.Last.String(), "gone")
	return []log.Part{{Subject: doc, Expect: log.At(have.Last), Events: []events.Event{e}}}, err
}

// Archived is the append by which a session is put away whose files are gone; nothing if it is
// not there, or put away already. What follows from the state of the session may be set with it.
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

// Now is the time by a store's log, or if the source does not say it that of the session's
// newest record.
func Now(ctx context.Context, src layouts.Source, l *projector.Ledger) (time.Time, error) {
	if st, ok := src.(logTimer); ok {
		return st.LogTime(ctx)
	}
	at, _ := l.LastAt.Time()
	return at, nil
}

// logTimer is a source that has a clock, as a store does.
type logTimer interface {
	LogTime(ctx context.Context) (time.Time, error)
}
