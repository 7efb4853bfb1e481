package sessiondir

import (
	"context"
	"errors"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// idOf returns the id of the session whose folder has a name.
func idOf(name string) string {
	if id, ok := layouts.ParseFileName(name); ok {
		return id
	}
	return name
}

// SessionOf returns the id of the session whose folder has a name. If the name was shortened, SessionOf searches the
// existing sessions.
func SessionOf(ctx context.Context, src layouts.Source, name string) (string, bool) {
	if !layouts.IsShortened(name) {
		return idOf(name), true
	}
	sub, ok := FindSession(ctx, src, func(id string) bool { return layouts.FileName(id) == name })
	return sub.ID, ok
}

// FindSession returns the first session whose id satisfies is.
func FindSession(ctx context.Context, src layouts.Source, is func(id string) bool) (events.Subject, bool) {
	for info, err := range src.Subjects(ctx, events.KindSession) {
		if err != nil {
			break
		}
		if is(info.Subject.ID) {
			return info.Subject, true
		}
	}
	return events.Subject{}, false
}

// Imported returns the file that session.created or session.updated carries from the last import; nil if neither has
// one.
func Imported(ctx context.Context, src layouts.Source, s *projector.Session) (events.Raw, error) {
	at := max(s.Ledger.Raw[events.TypeSessionCreated], s.Ledger.Raw[events.TypeSessionUpdated])
	if at == 0 {
		return nil, nil
	}
	payload, err := Payload(ctx, src, at)
	if err != nil {
		return nil, err
	}
	switch p := payload.(type) {
	case *events.SessionCreated:
		return p.Raw, nil
	case *events.SessionUpdated:
		return p.Raw, nil
	}
	return nil, nil
}

// Head returns the events for the parts of a session that are neither turns nor runs. created is nil if the session
// exists. updated is nil unless set, or something in c that differs, is missing from the session.
func Head(s *projector.Session, c events.SessionCreated, set events.Fields) (
	created *events.SessionCreated, updated *events.SessionUpdated, err error) {
	raw, formats := c.Raw, c.Formats
	if have := s.Ledger.Origin(); s.Ledger.Created == 0 {
		created, raw, formats = &c, nil, nil
	} else if have == nil || *have != *c.Origin {
		origin, err := rawjson.Marshal(c.Origin)
		if err != nil {
			return nil, nil, err
		}
		set = append(set, events.Field{Name: "origin", Value: origin})
	}
	if len(set) > 0 || raw != nil || len(formats) > 0 {
		updated = &events.SessionUpdated{Set: append(events.Fields{}, set...), Reason: "import", Raw: raw, Formats: formats}
	}
	return created, updated, nil
}

// KeepFirst returns the event that cuts a thread to its first n turns and sets its metadata.
func KeepFirst(thread string, n int, meta events.Raw) *events.ThreadReplaced {
	r := events.Replacement{Items: []events.Item{}, Meta: meta}
	if n > 0 {
		r.Items = append(r.Items, events.Item{Keep: &[2]int{0, n}})
	}
	return &events.ThreadReplaced{Threads: map[string]events.Replacement{thread: r}, Others: "keep", Reason: "import"}
}

// ChangedSince returns the types of the events that others appended to a session after the last event of a source.
func ChangedSince(ctx context.Context, src layouts.Source, sub events.Subject, source string) (map[string]bool, error) {
	types := make(map[string]bool)
	for rec, err := range src.Loader().Source.Read(ctx, events.Range{Subject: sub}) {
		if _, damaged := errors.AsType[*events.DamageError](err); damaged {
			continue
		}
		switch {
		case err != nil:
			return nil, err
		case rec.Source == source:
			clear(types)
		default:
			types[rec.Type] = true
		}
	}
	return types, nil
}

// MovesThreads reports whether one of the types changes threads by other means than a rewind.
func MovesThreads(types map[string]bool) bool {
	return slices.ContainsFunc(events.ThreadTypes(), func(typ string) bool { return types[typ] })
}
