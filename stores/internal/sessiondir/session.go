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

// idOf returns the id that a folder's name stands for.
func idOf(name string) string {
	if id, ok := layouts.ParseFileName(name); ok {
		return id
	}
	return name
}

// SessionOf returns the id of the session whose folder has a name. A shortened name
// is looked for among the sessions there are.
func SessionOf(ctx context.Context, src layouts.Source, name string) (string, bool) {
	if !layouts.IsShortened(name) {
		return idOf(name), true
	}
	sub, ok := FindSession(ctx, src, func(id string) bool { return layouts.FileName(id) == name })
	return sub.ID, ok
}

// FindSession returns the first session with an id that is as it should be.
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

// Imported returns the file that session.created or session.updated carries, as it
// was imported last; nil if there is none.
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

// Head returns the events by which an import says of a session what is no turn and no run:
// created if there is none yet, and updated if set, or else what c says, is not in it. What
// is not needed is nil.
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

// KeepFirst makes a thread hold the first n of its turns, and these members beside.
func KeepFirst(thread string, n int, meta events.Raw) *events.ThreadReplaced {
	r := events.Replacement{Items: []events.Item{}, Meta: meta}
	if n > 0 {
		r.Items = append(r.Items, events.Item{Keep: &[2]int{0, n}})
	}
	return &events.ThreadReplaced{Threads: map[string]events.Replacement{thread: r}, Others: "keep", Reason: "import"}
}

// ChangedSince returns the types of the events that others appended to a session
// after the last one of a source.
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

// MovesThreads reports whether one of the types changes threads otherwise than by
// moving the head.
func MovesThreads(types map[string]bool) bool {
	return slices.ContainsFunc(events.ThreadTypes(), func(typ string) bool { return types[typ] })
}
