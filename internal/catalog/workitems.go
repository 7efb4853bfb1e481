package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// States of items in lists, relative to their queue.
const (
	StateReady   = "ready"   // can be handed out to the next worker
	StateClaimed = "claimed" // a worker holds it
	StateWaiting = "waiting" // not due yet, or waits for other items
	StateDone    = "done"
	StateDead    = "dead" // no more attempts
)

// itemState is an SQL expression for the state of an item i of a queue q at the time ?1.
const itemState = `CASE WHEN i.state NOT IN ('free', 'claimed') THEN i.state
	WHEN i.state='claimed' AND i.due>?1 THEN 'claimed'
	WHEN i.expires>0 AND i.expires<=?1 THEN 'dead'
	WHEN i.state='claimed' THEN 'ready'
	WHEN i.due>?1 OR EXISTS(SELECT 1 FROM waits w LEFT JOIN items o ON o.namespace=w.namespace AND o.queue=w.queue AND o.id=w.after
		WHERE w.namespace=i.namespace AND w.queue=i.queue AND w.id=i.id AND (o.id IS NULL OR o.state<>'done' AND NOT (q.pass AND o.state='dead')))
	THEN 'waiting' ELSE 'ready' END`

const itemsOfQueues = " FROM items i JOIN queues q ON q.namespace=i.namespace AND q.id=i.queue"

// QueueListed is a row of the list of queues: the number of its items by state, as of the newest record in the view.
type QueueListed struct {
	Namespace string
	ID        string
	Title     string
	Owner     string
	Created   events.Offset // 0: items exist, but no session.created
	Serial    bool
	Lease     time.Duration // of a claim
	Attempts  int           // attempts before an item is dead
	Pass      bool          // items after a dead item go on
	OnEmpty   string        // message for a worker that finds no item
	Head      events.Offset
	Ready     int
	Claimed   int
	Waiting   int
	Done      int
	Dead      int

	data string
}

func (l *QueueListed) columns() []any {
	return []any{&l.Namespace, &l.ID, &l.Title, &l.Owner, offset(&l.Created), &l.Serial, offset(&l.Head), &l.data}
}

// restore decodes the data of a row beside its columns.
func (l *QueueListed) restore() error {
	var q projector.Queue
	if err := rawjson.Unmarshal([]byte(l.data), &q); err != nil {
		return err
	}
	l.Lease, l.Attempts, l.Pass, l.OnEmpty, l.data = q.Settings.LeaseTime(), q.Settings.Attempts(), q.Settings.Dead == projector.PassDead, q.OnEmpty, ""
	return nil
}

// Queues lists queues.
func (r WorkReader) Queues(ctx context.Context, page WorkPage) ([]QueueListed, error) {
	now, err := r.now(ctx)
	if err != nil {
		return nil, err
	}
	text, args := page.with("SELECT namespace, id, title, owner, created, serial, head_offset, data FROM queues WHERE namespace=? AND id>?")
	rows, err := r.db.QueryContext(ctx, text, args...)
	list, err := collect(rows, err, (*QueueListed).columns)
	for i := range list {
		if err == nil {
			err = list[i].restore()
		}
		if err == nil {
			err = r.count(ctx, &list[i], now)
		}
	}
	return list, r.wrap(err)
}

// count counts the items of a queue.
func (r WorkReader) count(ctx context.Context, l *QueueListed, now int64) error {
	rows, err := r.db.QueryContext(ctx, "SELECT "+itemState+" AS stands, count(*)"+itemsOfQueues+" WHERE i.namespace=?2 AND i.queue=?3 GROUP BY stands", now, l.Namespace, l.ID)
	return each(rows, err, func() error {
		var state string
		var n int
		if err := rows.Scan(&state, &n); err != nil {
			return err
		}
		switch state {
		case StateReady:
			l.Ready = n
		case StateClaimed:
			l.Claimed = n
		case StateWaiting:
			l.Waiting = n
		case StateDone:
			l.Done = n
		case StateDead:
			l.Dead = n
		}
		return nil
	})
}

// ItemListed is an item with its state.
type ItemListed struct {
	projector.QueueItem
	State string
}

// ItemQuery selects items of one queue.
type ItemQuery struct {
	Namespace string
	Queue     string
	State     string        // "": all but done items
	Limit     int           // 0: all
	After     events.Offset // offset of the last item of the previous page,
	Index     int           // and its index
}

// Items lists items of a queue in log order. A page begins behind the item at After, Index; with After 0 it is the
// first page. An unknown state is an *events.InvalidError.
func (r WorkReader) Items(ctx context.Context, q ItemQuery) (list []ItemListed, err error) {
	switch q.State {
	case "", StateReady, StateClaimed, StateWaiting, StateDone, StateDead:
	default:
		return nil, &events.InvalidError{Field: "state", Reason: fmt.Sprintf("%q: want ready, claimed, waiting, done or dead", q.State)}
	}
	now, err := r.now(ctx)
	if err != nil {
		return nil, err
	}
	text := "SELECT i.data, " + itemState + " AS stands" + itemsOfQueues +
		` WHERE i.namespace=?2 AND i.queue=?3 AND (i.offset, i.number)>(?4, ?5) AND iif(?6='', i.state<>'done', stands=?6) ORDER BY i.offset, i.number`
	args := []any{now, q.Namespace, q.Queue, int64(q.After), q.Index, q.State}
	if q.Limit > 0 {
		text, args = text+" LIMIT ?7", append(args, q.Limit)
	}
	rows, err := r.db.QueryContext(ctx, text, args...)
	err = each(rows, err, func() error {
		var l ItemListed
		var data []byte
		if err := rows.Scan(&data, &l.State); err != nil {
			return err
		}
		list = append(list, l)
		return rawjson.Unmarshal(data, &list[len(list)-1].QueueItem)
	})
	return list, r.wrap(err)
}
