package tavern

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// queueSource makes what follows from facts alone, whoever states them: an item that is put
// in twice, a result that is reported twice, the end of an item whose attempts are used up.
const queueSource = "urn:tally:queue"

// Item is something to be done. In the log it is a turn of its queue.
type Item struct {
	ID        string    // within the queue; "": one is made
	Body      []byte    // any bytes, which come back as they are
	Owner     string    // whose it is
	DueAt     time.Time // not handed out before; zero: at once
	ExpiresAt time.Time // not handed out from then on, but ended as expired; zero: never
	After     []string  // ids of items of the queue that must be done first
	Priority  int       // 0 to 9: the highest goes first

	Offset events.Offset // of its turn, once it is in the queue
	kind   string        // of its run; "": item
	index  int           // of its turn among those of the record
}

// ItemExistsError says that another item has the id: its body, or what else is said of it,
// differs. It matches tally.ErrExists; nothing was written.
type ItemExistsError struct{ Queue, ID string }

func (e *ItemExistsError) Error() string {
	return fmt.Sprintf("queue %q has another item %q already", e.Queue, e.ID)
}

// Is reports whether target is tally.ErrExists.
func (e *ItemExistsError) Is(target error) bool { return target == tally.ErrExists }

// Enqueue puts an item into the queue, and returns it with its id and offset. It is one
// event, whatever else happens to the queue; items without ids that are put in at the same
// moment may share it. The same item, with an id, put in twice is one: the second call returns
// the first one's offset. Another item with its id is *ItemExistsError.
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

// enqueueNew puts an item in of which nobody else knows the id.
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

// manyItems and manyBytes bound what is put in by one append.
const (
	manyItems = 500
	manyBytes = 4 << 20
)

// EnqueueMany puts items in, in their order, and returns them with their ids. All of them
// are looked at before any is put in; then they go in by the hundreds, each lot all or
// none. The same call again, with ids, puts in what is missing.
func (q *Queue) EnqueueMany(ctx context.Context, items ...Item) ([]Item, error) {
	var unshown error // files do not show all of what is stored
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

// putMany puts in a lot, but for what is there already.
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

// itemEvent makes the event by which an item is put in.
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

// spelled spells a time of an item; the zero time is not said.
func spelled(field string, at time.Time) (events.Timestamp, error) {
	if at.IsZero() {
		return "", nil
	}
	text := events.TimestampOf(at)
	if text == "" {
		return "", &events.InvalidError{Field: field, Reason: fmt.Sprintf("%v cannot be written", at)}
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
			return &events.InvalidError{Field: "after", Reason: fmt.Sprintf("item %q comes after itself", id)}
		}
	}
	return nil
}

// itemSubject names the session that has the life of an item.
func (q *Queue) itemSubject(id string) events.Subject {
	return q.st.Session(projector.ItemSession(q.id, id)).Subject()
}

// turnOf returns a body as a turn: JSON, or bytes that are not, or that JSON would lose.
func turnOf(body []byte) (events.Raw, []byte) {
	if len(body) > 0 && len(rawjson.Trim(body)) == len(body) && rawjson.Check(body) == nil {
		return body, nil
	}
	return nil, append([]byte{}, body...)
}

// readItem reads an item from its turn, body and all.
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

// itemIn returns an item of which a record has the turn.
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
			it.After = meta.After // what is done already is not in the state any more
		}
	}
	return it
}
