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

// kindChangeset is the kind of the runs of changeset items.
const kindChangeset = "changeset"

// Stored states of items. Readers derive the current state with the time: see itemState.
const (
	itemFree    = "free"
	itemClaimed = "claimed"
	itemDone    = "done"
	itemDead    = "dead"
)

// foldQueue folds a record of a queue's session. It uses the fold of the whole queue, with only the items that the
// record can affect.
func (w *Work) foldQueue(ctx context.Context, queue string, f projector.Fact) error {
	q, err := w.queue(ctx, f.Subject.Namespace, queue)
	if err != nil {
		return err
	}
	attempts := q.work.Queue.Settings.Attempts()
	for _, id := range itemsNamed(&q.work.Queue, f) {
		if err := w.addItem(ctx, q, id); err != nil {
			return err
		}
		q.changed[id] = true
	}
	q.work.Apply(f)
	q.is, q.news = true, true
	if q.work.Queue.Settings.Attempts() != attempts {
		return w.addTried(ctx, q)
	}
	return nil
}

// itemsNamed lists the items that a record of a queue's session can affect.
func itemsNamed(q *projector.Queue, f projector.Fact) (ids []string) {
	for _, i := range projector.ItemsIn(f) {
		ids = append(ids, i.ID)
	}
	if ref := projector.RunOf(f.Payload); ref != nil {
		ids = append(ids, ref.ID, q.Open)
	}
	return ids
}

// foldItem folds a record of an item's session. If the item is not queued, the record has no effect.
func (w *Work) foldItem(ctx context.Context, f projector.Fact) error {
	queue, id, ok := projector.ItemOf(f.Subject.ID)
	if !ok || projector.ItemSession(queue, id) != f.Subject.ID {
		return nil
	}
	q, err := w.queue(ctx, f.Subject.Namespace, queue)
	if err != nil || !q.is {
		return err
	}
	if err := w.addItem(ctx, q, id); err != nil || q.work.Items[id] == nil {
		return err
	}
	q.work.Apply(f)
	q.changed[id] = true
	return nil
}

// queueRows holds the rows of a queue during a commit. Each row is read once, at the first record that concerns it, and
// written once, after the last record.
type queueRows struct {
	namespace string
	work      *projector.Work // with the items that were read or added
	is        bool            // the queue has a record
	news      bool            // the queue's own row changed
	looked    map[string]bool // items that were looked up, and whether a row exists
	changed   map[string]bool // items that may have changed
}

// queue returns the rows of a queue, at first without its items.
func (w *Work) queue(ctx context.Context, ns, queue string) (*queueRows, error) {
	key := [2]string{ns, queue}
	if q := w.queues[key]; q != nil {
		return q, nil
	}
	q := &queueRows{namespace: ns, work: projector.NewWork(ns, queue, false), looked: make(map[string]bool), changed: make(map[string]bool)}
	var data []byte
	found, err := w.find(ctx, "SELECT data FROM queues{set} WHERE namespace=? AND id=?", []any{ns, queue}, []any{&data})
	if err == nil && found {
		q.is = true
		err = rawjson.Unmarshal(data, &q.work.Queue)
		q.work.Queue.ID = queue
	}
	if err == nil {
		w.queues[key] = q
	}
	return q, err
}

// addItem adds an item to its queue, if a row exists.
func (w *Work) addItem(ctx context.Context, q *queueRows, id string) error {
	if _, looked := q.looked[id]; looked {
		return nil
	}
	var data []byte
	found, err := w.find(ctx, "SELECT data FROM items{set} WHERE namespace=? AND queue=? AND id=?", []any{q.namespace, q.work.Queue.ID, id}, []any{&data})
	if err != nil {
		return err
	}
	q.looked[id] = found
	if !found {
		return nil
	}
	i := new(projector.QueueItem)
	q.work.Items[id] = i
	return rawjson.Unmarshal(data, i)
}

// addTried adds the unclaimed items with attempts: the maximum number of attempts has changed.
func (w *Work) addTried(ctx context.Context, q *queueRows) error {
	for id := range q.work.Items {
		q.changed[id] = true
	}
	st, err := w.prepare(ctx, "SELECT data FROM items{set} WHERE namespace=? AND queue=? AND state=?")
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(ctx, q.namespace, q.work.Queue.ID, itemFree)
	return each(rows, err, func() error {
		var data []byte
		i := new(projector.QueueItem)
		if err := rows.Scan(&data); err != nil {
			return err
		}
		if err := rawjson.Unmarshal(data, i); err != nil {
			return err
		}
		if _, looked := q.looked[i.ID]; i.Attempts > 0 && !looked {
			q.work.Items[i.ID], q.looked[i.ID], q.changed[i.ID] = i, true, true
		}
		return nil
	})
}

// storeQueues writes the changed rows of queues.
func (w *Work) storeQueues(ctx context.Context) error {
	for _, q := range w.queues {
		if q.news {
			if err := w.storeQueue(ctx, q); err != nil {
				return err
			}
		}
		for id := range q.changed {
			if i := q.work.Items[id]; i != nil {
				if err := w.storeItem(ctx, q, i); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (w *Work) storeQueue(ctx context.Context, rows *queueRows) error {
	q := rows.work.Queue
	id := q.ID
	q.ID = "" // an id need not be valid text, unlike JSON
	data, err := rawjson.Marshal(q)
	if err != nil {
		return err
	}
	return w.put(ctx, "queues", rows.namespace, id, q.Title, q.Owner, int64(q.Created), q.Settings.Serial, q.Settings.Dead == projector.PassDead, int64(q.Last), []byte(data))
}

func (w *Work) storeItem(ctx context.Context, q *queueRows, i *projector.QueueItem) error {
	ns, queue, isNew := q.namespace, q.work.Queue.ID, !q.looked[i.ID]
	data, err := rawjson.Marshal(i)
	if err != nil {
		return err
	}
	state, due := stands(i)
	if isNew {
		err = w.put(ctx, "items", ns, queue, i.ID, int64(i.At), i.Index, state, due, expiryOf(i), -i.Priority, []byte(data))
	} else { // unchanged columns keep their index entries
		err = w.run(ctx, "UPDATE items{set} SET state=?, due=?, data=? WHERE namespace=? AND queue=? AND id=?", state, due, []byte(data), ns, queue, i.ID)
	}
	if err != nil {
		return err
	}
	for _, after := range i.After {
		if !isNew {
			break
		}
		if err := w.put(ctx, "waits", ns, queue, i.ID, after); err != nil {
			return err
		}
	}
	if at := i.Decides(q.work.Queue.Settings); !isNew || !at.IsZero() {
		d := dueKey{what: projector.DueQueue, subject: events.Session(ns, projector.QueueSession(queue)), about: i.At, number: i.Index}
		if err := w.due(ctx, d, millis(at), !at.IsZero()); err != nil {
			return err
		}
	}
	if i.Run.Kind != kindChangeset {
		return nil
	}
	owner := i.Owner
	if i.Ended != 0 {
		owner = "" // a finished item has no owner
	}
	return w.belong(ctx, projector.DueOrphan, events.Session(ns, projector.ItemSession(queue, i.ID)), owner)
}

// expiryOf returns when an item expires; 0: never.
func expiryOf(i *projector.QueueItem) int64 {
	at, ok := i.ExpiresAt.Time()
	if !ok {
		return 0
	}
	return millis(at)
}

// stands returns the stored state of an item, and when time alone may change it.
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

// Queue returns a queue without its done items, to be folded further from the log after the returned offset. If limit
// is not 0, free items without further conditions may be missing, but not the first limit ones: see
// projector.Work.Upto. If a subject of the queue is quarantined, the error is ErrNoView.
func (r WorkReader) Queue(ctx context.Context, namespace, id string, limit int) (*projector.Work, events.Offset, error) {
	tx, err := r.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // a consistent read at one offset
	if err != nil {
		return nil, 0, r.wrap(err)
	}
	defer tx.Rollback() // a read-only transaction
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
	o := openItems{ctx: ctx, tx: tx, namespace: namespace, queue: id}
	if limit == 0 || q.Settings.Serial {
		err = o.all()
	} else {
		err = o.first(limit)
	}
	if err != nil {
		return nil, 0, r.wrap(err)
	}
	w := projector.RestoreWork(namespace, q, o.list, true)
	w.Upto, w.Known = o.upto, at
	return w, at, nil
}

// whole returns an error if a subject of a queue is quarantined.
func (r WorkReader) whole(ctx context.Context, tx querier, namespace, queue string) error {
	aside, err := readQuarantine(ctx, tx, current)
	work := projector.NewWork(namespace, queue, true)
	for _, a := range aside {
		if work.Concerns(a.Subject) {
			return fmt.Errorf("%w: %s is quarantined", ErrNoView, a.Subject.Name())
		}
	}
	return err
}

// openItems reads the items of a queue that are not done. Done items are removed from the lists of items they wait for.
type openItems struct {
	ctx              context.Context
	tx               querier
	namespace, queue string

	list []*projector.QueueItem
	upto *projector.QueueItem
}

// all reads all open items.
func (o *openItems) all() error {
	done, err := o.done()
	if err != nil {
		return err
	}
	_, err = o.read(done, "SELECT data FROM items WHERE namespace=? AND queue=? AND state IN ('free', 'claimed', 'dead')")
	return err
}

// SQL for free items that depend on time or on other items.
const (
	itemsOf   = " FROM items i WHERE i.namespace=?1 AND i.queue=?2"
	itemWaits = "EXISTS(SELECT 1 FROM waits w WHERE w.namespace=i.namespace AND w.queue=i.queue AND w.id=i.id)"
	waitsOf   = " FROM waits w JOIN items i ON i.namespace=w.namespace AND i.queue=w.queue"
)

// first reads the first limit free items, and all others.
func (o *openItems) first(limit int) error {
	done, err := o.done()
	if err != nil {
		return err
	}
	for _, text := range []string{
		"SELECT i.data" + itemsOf + " AND i.state IN ('claimed', 'dead')",
		"SELECT i.data" + itemsOf + " AND i.state='free' AND i.due>0",
		"SELECT DISTINCT i.data" + waitsOf + " AND i.id=w.id WHERE w.namespace=?1 AND w.queue=?2 AND i.state='free' AND i.due=0",
		"SELECT DISTINCT i.data" + waitsOf + " AND i.id=w.after WHERE w.namespace=?1 AND w.queue=?2 AND i.state='free' AND i.due=0 AND NOT " + itemWaits,
	} {
		if _, err := o.read(done, text); err != nil {
			return err
		}
	}
	n, err := o.read(done, "SELECT i.data"+itemsOf+" AND i.state='free' AND i.due=0 AND NOT "+itemWaits+" ORDER BY i.rank, i.offset, i.number LIMIT ?3", limit)
	if err == nil && n == limit {
		o.upto = o.list[len(o.list)-1]
	}
	return err
}

// done returns the done items that other items wait for.
func (o *openItems) done() (map[string]bool, error) {
	done := make(map[string]bool)
	rows, err := o.tx.QueryContext(o.ctx, "SELECT DISTINCT w.after"+waitsOf+" AND i.id=w.after WHERE w.namespace=?1 AND w.queue=?2 AND i.state='done'", o.namespace, o.queue)
	return done, each(rows, err, func() error {
		var id string
		err := rows.Scan(&id)
		done[id] = true
		return err
	})
}

// read adds the items that a statement selects, and returns their number.
func (o *openItems) read(done map[string]bool, text string, args ...any) (n int, err error) {
	rows, err := o.tx.QueryContext(o.ctx, text, append([]any{o.namespace, o.queue}, args...)...)
	return n, each(rows, err, func() error {
		var data sql.RawBytes
		i := new(projector.QueueItem)
		if err := rows.Scan(&data); err != nil {
			return err
		}
		n++
		o.list = append(o.list, i)
		err := rawjson.Unmarshal(data, i)
		i.After = slices.DeleteFunc(i.After, func(id string) bool { return done[id] })
		return err
	})
}
