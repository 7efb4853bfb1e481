package tavern

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Queue is a handle on a work queue: the session queue/<id>, of kind queue. Its items are
// the turns of the session's thread main, in the order in which they were put in; the life
// of each is in a session of its own, item/<queue>/<id>, which begins with the first claim.
//
// What a process knows of a queue it learns by following the log, with one reader for all
// handles on the queue, so that an item that is put in anywhere is handed out at once and
// a claim does not read the queue. To lose that costs time and nothing else.
type Queue struct {
	st  *tally.Store
	id  string
	sub events.Subject
}

// QueueOf returns a handle on a queue, whether it exists or not. A queue comes to be with
// its first item, or by [Queue.Create].
func QueueOf(st *tally.Store, id string) *Queue {
	return &Queue{st, id, st.Session(projector.QueueSession(id)).Subject()}
}

// ID is the queue's id.
func (q *Queue) ID() string { return q.id }

// Subject names the queue's session in the log.
func (q *Queue) Subject() events.Subject { return q.sub }

// QueueSettings say how a queue is worked on. The zero value is the default.
type QueueSettings struct {
	Title       string
	Owner       string
	Lease       time.Duration // of a claim, in whole milliseconds; default 2 minutes, at most a year
	MaxAttempts int           // of an item, then it is dead; default 5
	Serial      bool          // one claim at a time, in the order of the log: for good, once the queue exists
	OnEmpty     string        // what a worker is told that finds nothing to do
	Dead        string        // what a dead item is to those that come after it: hold, the default (they wait), or pass

	// Revision is the queue's offset as it was when the settings were read.
	Revision events.Offset
}

func (s QueueSettings) check() error {
	switch {
	case s.Lease < 0 || s.Lease > 366*24*time.Hour || s.Lease%time.Millisecond != 0:
		return &events.InvalidError{Field: "lease", Reason: fmt.Sprintf("%v: want whole milliseconds, a year at most", s.Lease)}
	case s.MaxAttempts < 0:
		return &events.InvalidError{Field: "maxAttempts", Reason: fmt.Sprintf("%d is negative", s.MaxAttempts)}
	case s.Dead != "" && s.Dead != "hold" && s.Dead != projector.PassDead:
		return &events.InvalidError{Field: "dead", Reason: fmt.Sprintf("%q: want hold or pass", s.Dead)}
	}
	for name, text := range map[string]string{"title": s.Title, "owner": s.Owner, "onEmpty": s.OnEmpty} {
		if !utf8.ValidString(text) {
			return &events.InvalidError{Field: name, Reason: fmt.Sprintf("%q is not UTF-8", text)}
		}
	}
	return nil
}

// stored writes the settings over what the session has of them: members that nobody here
// knows stay.
func (s QueueSettings) stored(over projector.QueueSettings) (events.Raw, error) {
	over.Lease, over.MaxAttempts, over.Dead, over.Serial = s.Lease.Milliseconds(), s.MaxAttempts, s.Dead, s.Serial
	return rawjson.Marshal(over)
}

// Create makes the queue, of which there is no item yet. A queue that exists is tally.ErrExists.
func (q *Queue) Create(ctx context.Context, s QueueSettings) error {
	if err := s.check(); err != nil {
		return err
	}
	settings, err := s.stored(projector.QueueSettings{})
	if err != nil {
		return err
	}
	list := []events.Payload{&events.SessionCreated{Kind: events.KindQueue, CreatedAt: events.TimestampOf(q.st.Now()), Title: s.Title, Owner: s.Owner, Settings: settings}}
	if s.OnEmpty != "" {
		set, err := textFields("onEmpty", s.OnEmpty)
		if err != nil {
			return err
		}
		list = append(list, &events.SessionUpdated{Set: set})
	}
	_, err = q.st.Session(q.sub.ID).Append(ctx, log.At(0), list...)
	if errors.Is(err, log.ErrConflict) {
		return fmt.Errorf("queue %q: %w", q.id, tally.ErrExists)
	}
	return err
}

// textFields are fields of a session that are texts; an empty one is no field.
func textFields(pairs ...string) (list events.Fields, err error) {
	for n := 0; n < len(pairs); n += 2 {
		value := []byte("null")
		if pairs[n+1] != "" {
			if value, err = rawjson.Marshal(pairs[n+1]); err != nil {
				return nil, err
			}
		}
		list = append(list, events.Field{Name: pairs[n], Value: value})
	}
	return list, nil
}

// Settings returns the queue's settings as they are now. A queue that does not exist is
// tally.ErrNotFound.
func (q *Queue) Settings(ctx context.Context) (QueueSettings, error) {
	o, err := q.st.Loader().Outline(ctx, q.sub, 0)
	if err != nil {
		return QueueSettings{}, fmt.Errorf("queue %q: %w", q.id, err)
	}
	s, _, err := q.settingsIn(o)
	return s, err
}

func (q *Queue) settingsIn(o *projector.Outline) (QueueSettings, projector.QueueSettings, error) {
	l := o.Ledger()
	if err := tally.CheckKind(q.sub, l, events.KindQueue); err != nil {
		return QueueSettings{}, projector.QueueSettings{}, err
	}
	raw, _ := l.Fields.Get("settings")
	p := projector.QueueSettingsOf(raw)
	return QueueSettings{Title: l.Text("title"), Owner: l.Text("owner"), OnEmpty: l.Text("onEmpty"), Lease: p.LeaseTime(), MaxAttempts: p.Attempts(),
		Serial: p.Serial, Dead: cmp.Or(p.Dead, "hold"), Revision: o.Offset()}, p, nil
}

// QueueConflictError says that a queue's settings are not what they were when they were
// read. It matches log.ErrConflict; nothing was written.
type QueueConflictError struct {
	Queue string
	Base  events.Offset // that the change rests on
	Have  QueueSettings // as they are now
}

func (e *QueueConflictError) Error() string {
	return fmt.Sprintf("queue %q: its settings are not those of %v any more", e.Queue, e.Base)
}

// Is reports whether target is log.ErrConflict.
func (e *QueueConflictError) Is(target error) bool { return target == log.ErrConflict }

// Configure gives the queue other settings, all of them. If they were changed since
// s.Revision, the error is *QueueConflictError; Revision 0 changes whatever there is. Items
// that are put in meanwhile are not in the way. A queue that does not exist is
// tally.ErrNotFound, and one that is serial or not stays that.
func (q *Queue) Configure(ctx context.Context, s QueueSettings) error {
	if err := s.check(); err != nil {
		return err
	}
	types := []string{events.TypeSessionCreated, events.TypeSessionUpdated}
	for try := 1; ; try++ {
		o, err := q.st.Loader().Outline(ctx, q.sub, 0)
		if err != nil {
			return fmt.Errorf("queue %q: %w", q.id, err)
		}
		have, stored, err := q.settingsIn(o)
		if err != nil {
			return err
		}
		if s.Serial != have.Serial {
			return &events.InvalidError{Field: "serial", Reason: fmt.Sprintf("queue %q is serial or not from its beginning: it is %v", q.id, have.Serial)}
		}
		update, err := s.update(stored)
		if err != nil {
			return err
		}
		_, err = q.st.Session(q.sub.ID).Append(ctx, log.Since(cmp.Or(s.Revision, have.Revision), types...), update)
		if !errors.Is(err, log.ErrConflict) {
			return err
		}
		if s.Revision != 0 || try == maxQueueTries {
			have, err := q.Settings(ctx)
			return errors.Join(err, &QueueConflictError{q.id, s.Revision, have})
		}
	}
}

// maxQueueTries bounds how often something is decided anew because others were faster.
const maxQueueTries = 31

func (s QueueSettings) update(over projector.QueueSettings) (*events.SessionUpdated, error) {
	settings, err := s.stored(over)
	if err != nil {
		return nil, err
	}
	set, err := textFields("onEmpty", s.OnEmpty, "title", s.Title, "owner", s.Owner)
	return &events.SessionUpdated{Set: append(events.Fields{{Name: "settings", Value: settings}}, set...)}, err
}
