package tavern

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
	"unicode/utf8"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Queue is a handle on a work queue: the session queue/<id>, of kind queue. Its items are the turns of the session's
// thread main, in the order in which they were queued. The records about an item are in a session of its own,
// item/<queue>/<id>, which begins with the first claim.
//
// A store follows the log with one reader for all handles on a queue. So a worker gets a new item at once, wherever the
// item was queued, and a claim does not read the queue. The state in memory can be rebuilt from the log at any time.
type Queue struct {
	st  *tally.Store
	id  string
	sub events.Subject
}

// QueueOf returns a handle on a queue, whether the queue exists or not. The first item or [Queue.Create] creates it.
func QueueOf(st *tally.Store, id string) *Queue {
	return &Queue{st, id, st.Session(projector.QueueSession(id)).Subject()}
}

// ID returns the queue's id.
func (q *Queue) ID() string { return q.id }

// Subject names the queue's session in the log.
func (q *Queue) Subject() events.Subject { return q.sub }

// QueueSettings are the settings of a queue. The zero value is the default.
type QueueSettings struct {
	Title       string
	Owner       string
	Lease       time.Duration // of a claim, in whole milliseconds; default 2 minutes, at most a year
	MaxAttempts int           // attempts at an item before it is dead; default 5
	Serial      bool          // one claim at a time, in the order of the log; cannot change once the queue exists
	OnEmpty     string        // instruction for a worker that finds nothing to do
	Dead        string        // how a dead item affects items that come after it: hold, the default (they wait), or pass

	// Revision is the queue's offset when the settings were read.
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

// stored encodes the settings over those of the session. Unknown members stay.
func (s QueueSettings) stored(over projector.QueueSettings) (events.Raw, error) {
	over.Lease, over.MaxAttempts, over.Dead, over.Serial = s.Lease.Milliseconds(), s.MaxAttempts, s.Dead, s.Serial
	return rawjson.Marshal(over)
}

// Create creates an empty queue. If the queue exists, the error is tally.ErrExists.
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

// textFields returns text fields of a session. An empty value removes the field.
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

// Settings returns the queue's present settings. If the queue does not exist, the error is tally.ErrNotFound.
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

// QueueConflictError reports that a queue's settings have changed since they were read. It matches log.ErrConflict;
// nothing was written.
type QueueConflictError struct {
	Queue string
	Base  events.Offset // the revision that the change was based on
	Have  QueueSettings // the present settings
}

func (e *QueueConflictError) Error() string {
	return fmt.Sprintf("queue %q: the settings have changed since %v", e.Queue, e.Base)
}

// Is reports whether target is log.ErrConflict.
func (e *QueueConflictError) Is(target error) bool { return target == log.ErrConflict }

// Configure replaces all settings of the queue. If they have changed since s.Revision, the error is
// *QueueConflictError; Revision 0 replaces any settings. New items do not conflict. If the queue does not exist, the
// error is tally.ErrNotFound. Serial cannot change.
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
			return &events.InvalidError{Field: "serial", Reason: fmt.Sprintf("serial cannot change after the queue %q was created: it is %v", q.id, have.Serial)}
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

// maxQueueTries bounds the attempts of an operation that others interrupt by faster writes.
const maxQueueTries = 31

func (s QueueSettings) update(over projector.QueueSettings) (*events.SessionUpdated, error) {
	settings, err := s.stored(over)
	if err != nil {
		return nil, err
	}
	set, err := textFields("onEmpty", s.OnEmpty, "title", s.Title, "owner", s.Owner)
	return &events.SessionUpdated{Set: append(events.Fields{{Name: "settings", Value: settings}}, set...)}, err
}

// queueSource is the source of events whose ids follow from facts alone, whatever process writes them: an item that is
// queued twice, a result that is reported twice, the end of an item whose attempts are used up.
const queueSource = "urn:tally:queue"

// Item is a piece of work. In the log it is a turn of its queue.
type Item struct {
	ID        string    // within the queue; "": Enqueue makes one
	Body      []byte    // any bytes; they are returned unchanged
	Owner     string    // subject or person that owns the item
	DueAt     time.Time // no worker gets the item before; zero: at once
	ExpiresAt time.Time // from then on the item is ended as expired; zero: never
	After     []string  // ids of items of the queue that must be done first
	Priority  int       // 0 to 9, highest first

	Offset events.Offset // of its turn, once it is queued
	kind   string        // kind of its run; "": item
	index  int           // of its turn within the record
}

// ItemExistsError reports that another item, with another body or other fields, has the id. It matches tally.ErrExists;
// nothing was written.
type ItemExistsError struct{ Queue, ID string }

func (e *ItemExistsError) Error() string {
	return fmt.Sprintf("queue %q has another item with the id %q", e.Queue, e.ID)
}

// Is reports whether target is tally.ErrExists.
func (e *ItemExistsError) Is(target error) bool { return target == tally.ErrExists }

// Enqueue appends an item to the queue, and returns it with its id and offset. Items without ids that are queued at the
// same moment may share one event. If an item with the caller's id is queued twice, the queue has it once, and the
// second call returns the first offset. If another item has the id, the error is *ItemExistsError.
func (q *Queue) Enqueue(ctx context.Context, it Item) (Item, error) {
	if it.ID == "" {
		return q.enqueueNew(ctx, it)
	}
	e, it, err := q.itemEvent(it)
	if err != nil {
		return it, err
	}
	ack, err := q.st.Append(ctx, q.sub, log.Any, e)
	it.Offset = ack.First
	return it, q.itemError(it, err)
}

// enqueueNew queues an item with a new id.
func (q *Queue) enqueueNew(ctx context.Context, it Item) (Item, error) {
	it.ID = q.st.Log.NewID()
	entry, err := q.itemEntry(it)
	if err == nil {
		it.Offset, err = q.put(ctx, entry)
	}
	return it, err
}

func (q *Queue) itemError(it Item, err error) error {
	if wrong, ok := errors.AsType[*events.InvalidError](err); ok && wrong.Field == "id" {
		return &ItemExistsError{q.id, it.ID}
	}
	return err
}

// manyItems and manyBytes bound one append.
const (
	manyItems = 500
	manyBytes = 4 << 20
)

// EnqueueMany queues items in their order, and returns them with their ids. It checks all items before it appends the
// first. It appends lots of some hundred items, and each lot is stored wholly or not at all. If the items have ids, the
// same call again queues those that are missing.
func (q *Queue) EnqueueMany(ctx context.Context, items ...Item) ([]Item, error) {
	var unshown error // an error of trees: the items are stored, but files do not show all of them
	list, evs := make([]Item, len(items)), make([]events.Event, len(items))
	for i, it := range items {
		var err error
		if evs[i], list[i], err = q.itemEvent(it); err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		evs[i] = q.st.Stamp(evs[i])
	}
	for from := 0; from < len(evs); {
		n, size := from, 0
		for ; n < len(evs) && n-from < manyItems && (n == from || size+len(evs[n].Data) <= manyBytes); n++ {
			size += len(evs[n].Data)
		}
		err := q.putMany(ctx, evs[from:n])
		if !events.IsStored(err) {
			return nil, err
		}
		unshown = cmp.Or(unshown, err)
		from = n
	}
	return list, unshown
}

// putMany appends a lot without the items that are there already.
func (q *Queue) putMany(ctx context.Context, evs []events.Event) error {
	for {
		_, err := q.st.Append(ctx, q.sub, log.Any, evs...)
		some, ok := errors.AsType[*log.PartialError](err)
		if !ok {
			return err
		}
		there := make(map[int]bool, len(some.Have))
		for _, h := range some.Have {
			there[h.Index] = true
		}
		var rest []events.Event
		for i, e := range evs {
			if !there[i] {
				rest = append(rest, e)
			}
		}
		evs = rest
	}
}

// itemEvent makes the event that queues an item.
func (q *Queue) itemEvent(it Item) (events.Event, Item, error) {
	made := it.ID == ""
	if made {
		it.ID = q.st.Log.NewID()
	}
	entry, err := q.itemEntry(it)
	if err != nil {
		return events.Event{}, it, err
	}
	e, err := q.entriesEvent(entry)
	e.ID = it.ID
	if !made {
		e.ID = events.DerivedID("item", it.ID)
	}
	return e, it, err
}

// itemEntry makes the turn of an item.
func (q *Queue) itemEntry(it Item) (events.Entry, error) {
	if err := q.checkItem(it); err != nil {
		return events.Entry{}, err
	}
	meta := events.ItemMeta{ID: it.ID, Owner: it.Owner, After: it.After, Priority: it.Priority}
	var err error
	if meta.DueAt, err = spelled("dueAt", it.DueAt); err == nil {
		meta.ExpiresAt, err = spelled("expiresAt", it.ExpiresAt)
	}
	if err != nil {
		return events.Entry{}, err
	}
	raw, err := rawjson.Marshal(meta)
	if err == nil {
		_, err = events.ItemMetaOf(raw)
	}
	if err != nil {
		return events.Entry{}, err
	}
	entry := events.Entry{Thread: events.MainThread, ID: it.ID, Meta: raw}
	entry.Turn, entry.Bytes = turnOf(it.Body)
	if it.kind != "" {
		entry.Run = &events.RunRef{Kind: it.kind, ID: it.ID}
	}
	return entry, nil
}

// spelled formats a time of an item. It returns "" for the zero time.
func spelled(field string, at time.Time) (events.Timestamp, error) {
	if at.IsZero() {
		return "", nil
	}
	text := events.TimestampOf(at)
	if text == "" {
		return "", &events.InvalidError{Field: field, Reason: fmt.Sprintf("%v is not a time that JSON can express", at)}
	}
	return text, nil
}

func (q *Queue) checkItem(it Item) error {
	if err := q.sub.Validate(); err != nil {
		return err
	}
	for _, id := range append([]string{it.ID}, it.After...) {
		if err := q.itemSubject(id).Validate(); id == "" || err != nil {
			return &events.InvalidError{Field: "id", Reason: fmt.Sprintf("%q cannot be an item of queue %q: %v", id, q.id, err)}
		}
	}
	if len(it.Owner) > events.MaxIDLen {
		return &events.InvalidError{Field: "owner", Reason: fmt.Sprintf("has %d bytes, at most %d are allowed", len(it.Owner), events.MaxIDLen)}
	}
	for _, id := range it.After {
		if id == it.ID {
			return &events.InvalidError{Field: "after", Reason: fmt.Sprintf("item %q waits for itself", id)}
		}
	}
	return nil
}

// itemSubject names the session with the records about an item.
func (q *Queue) itemSubject(id string) events.Subject {
	return q.st.Session(projector.ItemSession(q.id, id)).Subject()
}

// turnOf returns a body as a turn if JSON keeps it exactly, and else as bytes.
func turnOf(body []byte) (events.Raw, []byte) {
	if len(body) > 0 && len(rawjson.Trim(body)) == len(body) && rawjson.Check(body) == nil {
		return body, nil
	}
	return nil, append([]byte{}, body...)
}

// readItem reads an item, with its body, from its turn.
func (q *Queue) readItem(ctx context.Context, i projector.QueueItem) (Item, error) {
	rec, err := q.st.Log.Record(ctx, i.At)
	if err == nil {
		rec, err = projector.Resolve(ctx, q.st.Log, rec, q.st.MaxValue())
	}
	if err != nil {
		return Item{}, fmt.Errorf("queue %q, item %q: %w", q.id, i.ID, err)
	}
	return itemIn(projector.Decode(rec), i), nil
}

// itemIn returns the item whose turn is in a record.
func itemIn(f projector.Fact, i projector.QueueItem) Item {
	it := Item{ID: i.ID, Owner: i.Owner, After: i.After, Priority: i.Priority, Offset: i.At, kind: i.Run.Kind, index: i.Index}
	it.DueAt, _ = i.DueAt.Time()
	it.ExpiresAt, _ = i.ExpiresAt.Time()
	if p, ok := f.Payload.(*events.TurnAppended); ok && i.Index < len(p.Entries) {
		e := p.Entries[i.Index]
		it.Body = e.Bytes
		if len(e.Turn) > 0 {
			it.Body = e.Turn
		}
		if meta, err := events.ItemMetaOf(e.Meta); err == nil {
			it.After = meta.After // the state has only ids that are not done
		}
	}
	return it
}

// QueueDecision is the work that time has made due in a queue.
type QueueDecision struct {
	Ends []Decision // each ends an item that no worker holds
	Next time.Time  // when to look again, because a lease ends or an item becomes due; zero: after the next record
}

// DecideQueue returns the work that is due in a queue at the log's time now. The parts are guarded, and equal decisions
// have equal event ids, so two daemons that decide at once write one event. waits reports whether an item waits for
// others, as projector.Work.Waits does.
func DecideQueue(namespace string, q projector.Queue, items iter.Seq[*projector.QueueItem], waits func(*projector.QueueItem) bool, now time.Time) (d QueueDecision, err error) {
	for i := range items {
		if i.Ended != 0 {
			continue
		}
		end, err := ending(namespace, q, *i, now)
		if err != nil {
			return d, err
		}
		due, waiting := i.Due(), i.Fence == 0 && waits(i)
		expires, _ := i.ExpiresAt.Time()
		switch {
		case i.IsExpired(now), len(end.Parts) > 0 && !waiting && !due.After(now):
			d.Ends = append(d.Ends, end)
			continue
		case waiting:
			due = time.Time{}
		}
		for _, at := range []time.Time{due, expires} {
			if at.After(now) && (d.Next.IsZero() || at.Before(d.Next)) {
				d.Next = at
			}
		}
	}
	return d, nil
}

// ending returns the decision that ends an item: it is expired, or its attempts are used up and no worker holds it. For
// any other item it returns the zero Decision.
func ending(namespace string, q projector.Queue, i projector.QueueItem, now time.Time) (d Decision, err error) {
	p := &events.RunFinished{Run: i.Run, Result: events.Raw("null"), Fence: i.Fence}
	switch {
	case i.IsExpired(now):
		d.Why, p.Outcome = "expired", projector.OutcomeExpired
	case i.Ended == 0 && !i.IsHeld(now) && i.Attempts >= q.Settings.Attempts():
		d.Why, p.Outcome = "dead", projector.OutcomeDead
		p.Result, err = failure(i.LastError(now), i.Attempts)
	default:
		return d, nil
	}
	if err == nil {
		d.Parts = make([]log.Part, 1)
		d.Parts[0], err = stopping(namespace, q, i, p)
	}
	return d, err
}

// stopping makes the append that ends an item, on the condition that the item has not changed.
func stopping(namespace string, q projector.Queue, i projector.QueueItem, p *events.RunFinished) (log.Part, error) {
	sub, expect := events.Session(namespace, projector.ItemSession(q.ID, i.ID)), log.At(i.Last)
	last := i.Last
	if q.Settings.Serial {
		last = max(q.LastRun, i.At)
		sub, expect = events.Session(namespace, projector.QueueSession(q.ID)), log.Since(last, runTypes...)
	}
	e, err := events.New(queueSource, sub, p)
	e.ID = events.DerivedID(p.Outcome, i.Run.String(), last.String())
	return log.Part{Subject: sub, Expect: expect, Events: []events.Event{e}}, err
}

// open returns an open item as it is now, with its queue, or nil.
func (q *Queue) open(ctx context.Context, id string) (*projector.QueueItem, projector.Queue, error) {
	qc, err := q.enter(ctx)
	if err != nil {
		return nil, projector.Queue{}, err
	}
	defer qc.leave()
	if err := qc.catchUp(ctx); err != nil {
		return nil, projector.Queue{}, err
	}
	qc.mu.Lock()
	defer qc.mu.Unlock()
	i := qc.work.Items[id]
	if i == nil || i.Ended != 0 {
		return nil, qc.work.Queue, nil
	}
	now := *i
	return &now, qc.work.Queue, nil
}
