package tavern

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Claim is an item that a worker holds until its lease has ended and another worker claims it. It is safe for
// concurrent use. All its state is in the log: [Queue.Resume] makes it again from the item and the fence.
type Claim struct {
	*tally.Claim
	Item    Item
	Attempt int // from 1, since the item was queued or requeued

	q   *Queue
	run events.RunRef
	sub events.Subject // the session with the records about the item: its own, or a serial queue's
}

// runTypes are the types of events that change an item's holder.
var runTypes = []string{events.TypeRunStarted, events.TypeRunProgressed, events.TypeRunFinished}

// EmptyError reports that a queue has no item to hand out now.
type EmptyError struct {
	Queue   string
	OnEmpty string    // the queue's present instruction for this case, or ""
	Claimed int       // items that workers hold
	Waiting int       // items that are not due or wait for others
	Dead    int       // items that are not tried again
	Next    time.Time // when the next item is due or a lease ends, by the log's time; zero: time alone changes nothing
}

func (e *EmptyError) Error() string {
	return fmt.Sprintf("queue %q has nothing to hand out: %d claimed, %d waiting, %d dead", e.Queue, e.Claimed, e.Waiting, e.Dead)
}

// Next waits until an item is free, and claims it. A free item is due, is not done, has no lease in effect, and waits
// for no other item. The highest priority goes first, then the order of the log. A serial queue has one claim at a
// time, in the order of the log alone. If workers of other processes are often faster, Next chooses one of the first
// items of a priority by chance. Items that have expired or have used up their attempts are ended, not claimed.
//
// When ctx is done, Next returns its error. After that error, or log.ErrUnknown, the item may be claimed nevertheless;
// it is free again when the lease ends. If files of a tree do not show the claim, Next returns it together with a
// *events.TreeError.
func (q *Queue) Next(ctx context.Context, worker string) (*Claim, error) {
	qc, err := q.attend(ctx, worker)
	if err != nil {
		return nil, err
	}
	defer qc.leave()
	c, err := q.next(ctx, qc, worker)
	if err != nil {
		qc.pass()
	}
	return c, err
}

// next is Next on a cache. A worker that returns with an error may have been woken before.
func (q *Queue) next(ctx context.Context, qc *queueCache, worker string) (*Claim, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p, wait, err := qc.pick(ctx, worker)
		if err != nil {
			return nil, err
		}
		if wait == nil {
			if c, err := q.claim(ctx, qc, p, worker); c != nil || err != nil {
				return c, err
			}
			continue
		}
		select {
		case <-wait:
		case <-ctx.Done():
			qc.quit(wait)
		case <-qc.gone:
			return nil, fmt.Errorf("queue %q: %w", q.id, qc.followErr)
		}
	}
}

// TryClaim claims an item as Next does, if an item is free now. Otherwise the error is *EmptyError, with the queue's
// present instruction for this case.
func (q *Queue) TryClaim(ctx context.Context, worker string) (*Claim, error) {
	qc, err := q.attend(ctx, worker)
	if err != nil {
		return nil, err
	}
	defer qc.leave()
	for {
		if err := qc.catchUp(ctx); err != nil {
			return nil, err
		}
		p, wait, err := qc.pick(ctx, worker)
		if err != nil {
			return nil, err
		}
		if wait != nil {
			qc.quit(wait)
			return nil, qc.empty()
		}
		if c, err := q.claim(ctx, qc, p, worker); c != nil || err != nil {
			return c, err
		}
	}
}

func (q *Queue) attend(ctx context.Context, worker string) (*queueCache, error) {
	if worker == "" || !utf8.ValidString(worker) {
		return nil, &events.InvalidError{Field: "worker", Reason: fmt.Sprintf("%q is not a name of a worker", worker)}
	}
	return q.enterFirst(ctx)
}

// empty counts the items that cannot be handed out.
func (qc *queueCache) empty() *EmptyError {
	qc.mu.Lock()
	defer qc.mu.Unlock()
	e := &EmptyError{Queue: qc.queue.id, OnEmpty: qc.work.Queue.OnEmpty}
	now := qc.nowLocked()
	for _, i := range qc.work.Items {
		_, taken := qc.flight[i.ID]
		switch {
		case i.IsDead():
			e.Dead++
		case taken || i.IsHeld(now):
			e.Claimed++
		default:
			e.Waiting++
		}
	}
	if first := qc.timed.first(); first != nil {
		e.Next = time.UnixMilli(first.due)
	}
	return e
}

// claim claims a picked item. It returns neither a claim nor an error if another worker was faster or the item was
// ended.
func (q *Queue) claim(ctx context.Context, qc *queueCache, p picked, worker string) (*Claim, error) {
	end, err := ending(q.sub.Namespace, p.queue, p.item, p.now)
	if err != nil {
		return nil, errors.Join(err, qc.missed(ctx, p.item.ID, 0))
	}
	if len(end.Parts) > 0 {
		return nil, q.end(ctx, qc, p, end)
	}
	if p.body == nil {
		p.body = new(Item)
		if *p.body, err = q.readItem(ctx, p.item); err != nil {
			return nil, errors.Join(err, qc.missed(ctx, p.item.ID, 0))
		}
	}
	c := &Claim{Item: *p.body, Attempt: p.item.Attempts + 1, q: q, run: p.item.Run, sub: q.lifeOf(p.item.ID, p.queue.Settings.Serial)}
	l := tally.Lease{Holder: worker, Until: p.from.Add(p.queue.Settings.LeaseTime()).Truncate(time.Millisecond)}
	e, err := events.New(q.st.Source(), c.sub, &events.RunStarted{Run: c.run, Worker: worker, Attempt: int64(c.Attempt), LeaseUntil: l.Until.UnixMilli()})
	if err != nil {
		return nil, errors.Join(err, qc.missed(ctx, p.item.ID, 0))
	}
	e = q.st.Stamp(e)
	ack, err := q.st.Append(ctx, c.sub, p.expect(), e)
	if errors.Is(err, log.ErrUnknown) && ctx.Err() == nil {
		ack, err = q.claimed(ctx, c.sub, p, e.ID, err)
	}
	if !events.IsStored(err) {
		return nil, q.beaten(ctx, qc, p, err)
	}
	qc.took(p.item.ID, ack.Last)
	c.hold(l, ack.Last, p.queue.Settings)
	return c, err
}

// hold sets the claim's lease to that of a record.
func (c *Claim) hold(l tally.Lease, fence events.Offset, s projector.QueueSettings) {
	terms := tally.ClaimTerms{In: c.sub, While: s.LeaseTime(), Until: c.until, Look: c.inEffect}
	if s.Serial {
		terms.Types = runTypes
	}
	c.Claim = c.q.st.Hold(c.q.itemSubject(c.run.ID), l, fence, terms)
}

// lifeOf names the session with the records about an item.
func (q *Queue) lifeOf(id string, serial bool) events.Subject {
	if serial {
		return q.sub
	}
	return q.itemSubject(id)
}

// expect is the condition of a claim: no other worker was faster.
func (p picked) expect() log.Expect {
	if p.queue.Settings.Serial {
		return log.Since(max(p.queue.LastRun, p.item.At), runTypes...)
	}
	return log.At(p.item.Last)
}

// claimed looks for a claim whose append got no answer.
func (q *Queue) claimed(ctx context.Context, sub events.Subject, p picked, id string, unknown error) (log.Ack, error) {
	for rec, err := range q.st.Log.Read(ctx, events.Range{Subject: sub, After: max(p.item.Last, p.queue.LastRun), Buffered: true}) {
		if err != nil {
			return log.Ack{}, errors.Join(unknown, err)
		}
		if rec.ID == id {
			return log.Ack{First: rec.Offset, Last: rec.Offset}, nil
		}
	}
	return log.Ack{}, unknown
}

// beaten returns an item to the cache after a failed claim. It is not an error if another worker was faster.
func (q *Queue) beaten(ctx context.Context, qc *queueCache, p picked, err error) error {
	conflict, ok := errors.AsType[*log.ConflictError](err)
	switch {
	case ok && conflict.Have != 0:
		return qc.missed(ctx, p.item.ID, conflict.Have)
	case errors.Is(err, log.ErrConflict): // the log does not say by which record
		err = qc.catchUp(ctx)
		return errors.Join(err, qc.missed(ctx, p.item.ID, 1))
	}
	return errors.Join(err, qc.missed(ctx, p.item.ID, 0))
}

// end ends an item instead of handing it out.
func (q *Queue) end(ctx context.Context, qc *queueCache, p picked, end Decision) error {
	part := end.Parts[0]
	ack, err := q.st.Append(ctx, part.Subject, part.Expect, part.Events...)
	if !events.IsStored(err) {
		return q.beaten(ctx, qc, p, err)
	}
	qc.took(p.item.ID, ack.Last)
	return nil // the item is due to end, whichever caller notices: no caller gets an error about files
}

// Resume returns the claim that a fence names, whatever process made it: a restarted worker goes on with it. If the
// claim is not in effect any more, the error is *tally.FencedError, and reports by the claim are recorded without
// effect.
func (q *Queue) Resume(ctx context.Context, item string, fence events.Offset) (*Claim, error) {
	found, err := q.find(ctx, item)
	if err != nil {
		return nil, err
	}
	c := &Claim{q: q, run: found.item.Run, sub: q.lifeOf(item, found.queue.Settings.Serial)}
	if c.Item, err = q.readItem(ctx, found.item); err != nil {
		return nil, err
	}
	rec, err := q.st.Log.Record(ctx, fence)
	if err != nil {
		return nil, err
	}
	started, ok := projector.Decode(rec).Payload.(*events.RunStarted)
	if !ok || rec.Subject != c.sub || started.Run != c.run {
		return nil, &events.InvalidError{Field: "fence", Reason: fmt.Sprintf("%v is not a claim on item %q of queue %q", fence, item, q.id)}
	}
	c.Attempt = int(started.Attempt)
	c.hold(tally.Lease{Holder: started.Worker, Until: time.UnixMilli(started.LeaseUntil)}, fence, found.queue.Settings)
	now, _, err := c.look(ctx, 0)
	if err != nil {
		return nil, err
	}
	if now.Fence != fence {
		return c, c.fencedBy(now)
	}
	c.Until = time.UnixMilli(now.Until)
	return c, nil
}

// until returns the event that extends the lease to a time. For the zero time it returns the event that releases the
// item, so that the attempt does not count.
func (c *Claim) until(_ context.Context, at time.Time) (events.Event, error) {
	if at.IsZero() {
		return c.word("released", &events.RunProgressed{Run: c.run, Kind: projector.ItemReleased, LeaseUntil: new(int64), Fence: c.Fence})
	}
	ms := at.UnixMilli()
	return events.New(c.q.st.Source(), c.sub, &events.RunProgressed{Run: c.run, Kind: projector.ItemRenewed, LeaseUntil: &ms, Fence: c.Fence})
}

// attempts returns how often an item is tried.
func (qc *queueCache) attempts() int {
	qc.mu.Lock()
	defer qc.mu.Unlock()
	return qc.work.Queue.Settings.Attempts()
}

// Finish completes the item with a result: JSON, text or any bytes. An item is completed once. If another worker has
// claimed the item meanwhile, the result is recorded without effect, and the error is *tally.FencedError. The same call
// again writes the same event.
func (c *Claim) Finish(ctx context.Context, result []byte) error {
	p := &events.RunFinished{Run: c.run, Outcome: "completed", Fence: c.Fence}
	var text error
	if p.Result, text = claimResult(result); text != nil {
		return text
	}
	return c.say(ctx, "completed", p)
}

// claimResult returns a result as JSON. Text becomes a string; other bytes become an object with the member bytes, in
// base64.
func claimResult(result []byte) (events.Raw, error) {
	switch {
	case len(result) == 0:
		return events.Raw("null"), nil
	case rawjson.Check(result) == nil:
		return rawjson.Trim(result), nil
	case !utf8.Valid(result):
		return rawjson.Marshal(struct {
			Bytes []byte `json:"bytes"`
		}{result})
	}
	return rawjson.Marshal(string(result))
}

// Fail reports that the attempt failed, with its cause. If retry is set and attempts are left, the item is handed out
// again; otherwise it is dead. If another worker has claimed the item meanwhile, the report is recorded without effect,
// and the error is *tally.FencedError.
func (c *Claim) Fail(ctx context.Context, cause string, retry bool) error {
	cause = strings.ToValidUTF8(cause, "\ufffd")
	qc, err := c.q.enterFirst(ctx)
	if err != nil {
		return err
	}
	maxAttempts := qc.attempts()
	qc.leave()
	if retry && c.Attempt < maxAttempts {
		return c.say(ctx, "again", &events.RunProgressed{Run: c.run, Kind: projector.ItemFailed, Note: cause, LeaseUntil: new(int64), Fence: c.Fence})
	}
	outcome := "failed"
	if retry {
		outcome = projector.OutcomeDead
	}
	result, err := failure(cause, c.Attempt)
	if err != nil {
		return err
	}
	return c.say(ctx, outcome, &events.RunFinished{Run: c.run, Outcome: outcome, Result: result, Fence: c.Fence})
}

// failure returns the result of a dead item.
func failure(cause string, attempts int) (events.Raw, error) {
	return rawjson.Marshal(struct {
		Error    string `json:"error"`
		Attempts int    `json:"attempts"`
	}{cause, attempts})
}

// word makes an event whose id follows from the claim and its end alone, so that a repeated report is the same event.
func (c *Claim) word(end string, p events.Payload) (events.Event, error) {
	e, err := events.New(queueSource, c.sub, p)
	e.ID = events.DerivedID(end, c.run.String(), c.Fence.String())
	return e, err
}

// say appends the claim's last report. If the claim is not in effect any more, the report has no effect.
func (c *Claim) say(ctx context.Context, end string, p events.Payload) error {
	e, err := c.word(end, p)
	if err != nil {
		return err
	}
	acks, err := c.Append(ctx, log.Part{Subject: c.sub, Events: []events.Event{e}})
	late, fenced := errors.AsType[*tally.FencedError](err)
	switch {
	case fenced:
		ack, err := c.q.st.Append(ctx, c.sub, log.Any, e)
		if !events.IsStored(err) {
			return errors.Join(late, err)
		}
		late.Stale = ack.Last
		return late // a *events.TreeError beside it would suggest that the report counts
	case events.IsStored(err) && acks[0].Duplicate:
		return cmp.Or(c.again(ctx, acks[0].Last), err)
	}
	return err
}

// again returns nil if a report that was stored before counts, and else *tally.FencedError.
func (c *Claim) again(ctx context.Context, at events.Offset) error {
	now, counts, err := c.look(ctx, at)
	if err != nil || counts {
		return err
	}
	late := c.fencedBy(now)
	late.Stale = at
	return late
}

// isSerial reports whether the claim is on a serial queue's session.
func (c *Claim) isSerial() bool { return c.sub == c.q.sub }

// inEffect returns the newest record about the item, if the claim is in effect.
func (c *Claim) inEffect(ctx context.Context) (events.Offset, error) {
	now, _, err := c.look(ctx, 0)
	if err == nil && now.Fence != c.Fence {
		err = c.fencedBy(now)
	}
	return now.Last, err
}

// look folds the records after the claim. counts reports whether the record at an offset changed the item.
func (c *Claim) look(ctx context.Context, at events.Offset) (now projector.QueueItem, counts bool, err error) {
	now = projector.QueueItem{ID: c.run.ID, Run: c.run, Fence: c.Fence, Until: c.Until.UnixMilli(), Attempts: c.Attempt, Last: c.Fence}
	for rec, err := range c.q.st.Log.Read(ctx, events.Range{Subject: c.sub, After: c.Fence, Buffered: true}) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			now.Last = damage.Offset
			continue
		}
		if err != nil {
			return now, false, err
		}
		f, before := projector.Decode(rec), now
		now.Apply(f)
		if rec.Offset == at {
			counts = now.Fence != before.Fence || now.Until != before.Until || now.Ended != before.Ended
		}
		if started, ok := f.Payload.(*events.RunStarted); ok && c.isSerial() && now.Ended == 0 {
			now.Fence, now.Worker = rec.Offset, started.Worker // the worker's next claim may be on another item
		}
		now.Last = rec.Offset
	}
	return now, counts, nil
}

func (c *Claim) fencedBy(now projector.QueueItem) *tally.FencedError {
	return &tally.FencedError{Subject: c.Subject, Fence: c.Fence, Have: now.Fence, Holder: now.Worker, Outcome: now.Outcome}
}
