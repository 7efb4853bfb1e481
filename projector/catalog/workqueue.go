package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// kindChangeset is the kind of the runs of items that are changesets.
const kindChangeset = "changeset"

// How items stand in the table. A reader tells more by the time: see itemState.
const (
	itemFree    = "free"
	itemClaimed = "claimed"
	itemDone    = "done"
	itemDead    = "dead"
)

// foldQueue folds a record of a queue's session. The fold is that of the whole queue, given
// the items only that the record can be about.
func (w *Work) foldQueue(ctx context.Context, queue string, f projector.Fact) error {
	work, _, err := w.queue(ctx, f.Subject.Namespace, queue)
	if err != nil {
		return err
	}
	attempts := work.Queue.Settings.Attempts()
	for _, id := range itemsNamed(&work.Queue, f) {
		if err := w.addItem(ctx, work, f.Subject.Namespace, queue, id); err != nil {
			return err
		}
	}
	work.Apply(f)
	if err := w.storeQueue(ctx, f.Subject.Namespace, work); err != nil {
		return err
	}
	if work.Queue.Settings.Attempts() != attempts {
		if err := w.addTried(ctx, work, f.Subject.Namespace, queue); err != nil {
			return err
		}
	}
	for _, i := range work.Items {
		if err := w.storeItem(ctx, f.Subject.Namespace, work, i); err != nil {
			return err
		}
	}
	return nil
}

// itemsNamed lists the items that a record of a queue's session can change.
func itemsNamed(q *projector.Queue, f projector.Fact) (ids []string) {
	for _, i := range projector.ItemsIn(f) {
		ids = append(ids, i.ID)
	}
	if ref := projector.RunOf(f.Payload); ref != nil {
		ids = append(ids, ref.ID, q.Open)
	}
	return ids
}

// foldItem folds a record of an item's session. One of an item that is not queued says
// nothing.
func (w *Work) foldItem(ctx context.Context, f projector.Fact) error {
	ns := f.Subject.Namespace
	queue, id, ok := projector.ItemOf(f.Subject.ID)
	if !ok || projector.ItemSession(queue, id) != f.Subject.ID {
		return nil
	}
	work, found, err := w.queue(ctx, ns, queue)
	if err != nil || !found {
		return err
	}
	if err := w.addItem(ctx, work, ns, queue, id); err != nil || work.Items[id] == nil {
		return err
	}
	work.Apply(f)
	return w.storeItem(ctx, ns, work, work.Items[id])
}

// queue returns a queue as it is stored, without its items.
func (w *Work) queue(ctx context.Context, ns, queue string) (*projector.Work, bool, error) {
	work := projector.NewWork(ns, queue, false)
	var data []byte
	found, err := w.find(ctx, "SELECT data FROM queues{set} WHERE namespace=? AND id=?", []any{ns, queue}, []any{&data})
	if err == nil && found {
		err = rawjson.Unmarshal(data, &work.Queue)
		work.Queue.ID = queue
	}
	return work, found, err
}

// addItem adds an item to its queue, if there is one of that id.
func (w *Work) addItem(ctx context.Context, work *projector.Work, ns, queue, id string) error {
	var data []byte
	found, err := w.find(ctx, "SELECT data FROM items{set} WHERE namespace=? AND queue=? AND id=?", []any{ns, queue, id}, []any{&data})
	if err != nil || !found {
		return err
	}
	i := new(projector.QueueItem)
	work.Items[id] = i
	return rawjson.Unmarshal(data, i)
}

// addTried adds the items of which attempts were made and that nobody has: how many there may
// be is another number now.
func (w *Work) addTried(ctx context.Context, work *projector.Work, ns, queue string) error {
	st, err := w.prepare(ctx, "SELECT data FROM items{set} WHERE namespace=? AND queue=? AND state=?")
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(ctx, ns, queue, itemFree)
	return each(rows, err, func() error {
		var data []byte
		i := new(projector.QueueItem)
		if err := rows.Scan(&data); err != nil {
			return err
		}
		if err := rawjson.Unmarshal(data, i); err != nil {
			return err
		}
		if i.Attempts > 0 && work.Items[i.ID] == nil {
			work.Items[i.ID] = i
		}
		return nil
	})
}

func (w *Work) storeQueue(ctx context.Context, ns string, work *projector.Work) error {
	q := work.Queue
	id := q.ID
	q.ID = "" // it need not be text, as JSON is
	data, err := rawjson.Marshal(q)
	if err != nil {
		return err
	}
	return w.put(ctx, "queues", ns, id, q.Title, q.Owner, int64(q.Created), q.Settings.Serial, q.Settings.Dead == projector.PassDead, int64(q.Last), []byte(data))
}

func (w *Work) storeItem(ctx context.Context, ns string, work *projector.Work, i *projector.QueueItem) error {
	queue := work.Queue.ID
	data, err := rawjson.Marshal(i)
	if err != nil {
		return err
	}
	state, due := stands(i)
	if err := w.put(ctx, "items", ns, queue, i.ID, int64(i.At), i.Index, state, due, expires(i), []byte(data)); err != nil {
		return err
	}
	for _, after := range i.After {
		if err := w.put(ctx, "waits", ns, queue, i.ID, after); err != nil {
			return err
		}
	}
	at := i.Decides(work.Queue.Settings)
	if err := w.due(ctx, when{what: projector.DueQueue, subject: events.Session(ns, projector.QueueSession(queue)), about: i.At, number: i.Index}, millis(at), !at.IsZero()); err != nil {
		return err
	}
	if i.Run.Kind != kindChangeset {
		return nil
	}
	owner := i.Owner
	if i.Ended != 0 {
		owner = "" // what is over is nobody's
	}
	return w.belong(ctx, projector.DueOrphan, events.Session(ns, projector.ItemSession(queue, i.ID)), owner)
}

// expires is when the time of an item is over, 0: never.
func expires(i *projector.QueueItem) int64 {
	at, ok := i.ExpiresAt.Time()
	if !ok {
		return 0
	}
	return millis(at)
}

// stands says how an item stands in the table, and when that may be another by time alone.
func stands(i *projector.QueueItem) (state string, due int64) {
	switch {
	case i.IsDone():
		return itemDone, 0
	case i.IsDead():
		return itemDead, 0
	case i.Fence != 0:
		return itemClaimed, i.Until
	}
	at, _ := i.DueAt.Time()
	if at.IsZero() {
		return itemFree, 0
	}
	return itemFree, millis(at)
}

// Queue returns a queue without what is done, to be gone on with from the log: the offset is
// the last one that is in it. None of it may have been left aside, or the error is ErrNoView.
func (r WorkReader) Queue(ctx context.Context, namespace, id string) (*projector.Work, events.Offset, error) {
	tx, err := r.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // all of it as of one offset
	if err != nil {
		return nil, 0, r.wrap(err)
	}
	defer tx.Rollback() // it changed nothing
	q, at := projector.Queue{ID: id}, events.Offset(0)
	c, _, err := readCursor(ctx, tx, r.view)
	if at = c.Offset; err == nil {
		err = r.whole(ctx, tx, namespace, id)
	}
	var data []byte
	if err == nil {
		err = tx.QueryRowContext(ctx, "SELECT data FROM queues WHERE namespace=? AND id=?", namespace, id).Scan(&data)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return projector.NewWork(namespace, id, true), at, nil
	}
	if err == nil {
		err = rawjson.Unmarshal(data, &q)
		q.ID = id
	}
	if err != nil {
		return nil, 0, r.wrap(err)
	}
	items, err := openItems(ctx, tx, namespace, id)
	return projector.RestoreWork(namespace, q, items, true), at, r.wrap(err)
}

// whole reports an error if something of a queue was left aside.
func (r WorkReader) whole(ctx context.Context, tx querier, namespace, queue string) error {
	aside, err := readQuarantine(ctx, tx, current)
	work := projector.NewWork(namespace, queue, true)
	for _, a := range aside {
		if work.Concerns(a.Subject) {
			return fmt.Errorf("%w: %s was left aside", ErrNoView, a.Subject)
		}
	}
	return err
}

// openItems reads the items of a queue that are not done. What they come after and that is done
// is not in them any more.
func openItems(ctx context.Context, tx querier, namespace, queue string) (list []*projector.QueueItem, err error) {
	done := make(map[string]bool)
	rows, err := tx.QueryContext(ctx, `SELECT DISTINCT w.after FROM waits w JOIN items o ON o.namespace=w.namespace AND o.queue=w.queue AND o.id=w.after
		WHERE w.namespace=? AND w.queue=? AND o.state=?`, namespace, queue, itemDone)
	err = each(rows, err, func() error {
		var id string
		err := rows.Scan(&id)
		done[id] = true
		return err
	})
	if err != nil {
		return nil, err
	}
	rows, err = tx.QueryContext(ctx, "SELECT data FROM items WHERE namespace=? AND queue=? AND state<>?", namespace, queue, itemDone)
	err = each(rows, err, func() error {
		var data []byte
		i := new(projector.QueueItem)
		if err := rows.Scan(&data); err != nil {
			return err
		}
		list = append(list, i)
		err := rawjson.Unmarshal(data, i)
		i.After = slices.DeleteFunc(i.After, func(id string) bool { return done[id] })
		return err
	})
	return list, err
}
