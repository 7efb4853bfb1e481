package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// maxTries bounds how often Register decides again because another program was faster.
const maxTries = 8

// Register registers a type in a store, unless the store has it. If the store has it with another schema, replace
// decides whether the schema is replaced. Register returns the type as it is registered then, and whether it wrote a
// document. If the store has the type with another movement or other offsets, the error is an *events.TypeError.
func Register(ctx context.Context, st *tally.Store, t events.Type, replace bool) (e Entry, wrote bool, err error) {
	data, err := Encode(t)
	if err != nil {
		return Entry{}, false, err
	}
	home, err := st.In(events.DefaultNamespace)
	if err != nil {
		return Entry{}, false, err
	}
	for range maxTries {
		have, err := Find(ctx, st.Log, t.Name)
		if err != nil {
			return Entry{}, false, fmt.Errorf("type %s: %w", t.Name, err)
		}
		w := tally.Write{Data: data, ContentType: events.ContentTypeJSON}
		if have != nil {
			if err := have.Agree(t); err != nil || have.HasSchema(t) || !replace {
				return *have, false, err
			}
			w.Base = have.Last
		}
		save := home.Documents().Create
		if have != nil {
			save = home.Documents().Save
		}
		rev, err := save(ctx, events.KindType, t.Name, w)
		switch {
		case errors.Is(err, tally.ErrExists), errors.Is(err, log.ErrConflict):
			continue
		case err != nil:
			return Entry{}, false, fmt.Errorf("type %s: %w", t.Name, err)
		case have == nil:
			return Entry{t, rev.Offset, rev.Offset}, true, nil
		}
		return Entry{t, have.Since, rev.Offset}, true, nil
	}
	return Entry{}, false, fmt.Errorf("type %s: %w: others keep writing its document", t.Name, log.ErrConflict)
}
