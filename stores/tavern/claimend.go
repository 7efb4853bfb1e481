package tavern

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// FencedError says that a claim is not in effect any more: its lease was over and the item
// went on to another worker, or it was ended. It matches log.ErrConflict.
type FencedError struct {
	Queue, Item string
	Fence       events.Offset // of the claim
	Have        events.Offset // of the claim that is in effect; 0: none is
	Worker      string        // whose that is
	Outcome     string        // of the item, if it is finished
	Late        events.Offset // where what was reported is kept, without effect; 0: it is not
}

func (e *FencedError) Error() string {
	now := "nobody has it"
	switch {
	case e.Outcome != "":
		now = "it is finished (" + e.Outcome + ")"
	case e.Have != 0:
		now = fmt.Sprintf("%q has it since %v", e.Worker, e.Have)
	}
	return fmt.Sprintf("queue %q: the claim %v on item %q is over: %s", e.Queue, e.Fence, e.Item, now)
}

// Is reports whether target is log.ErrConflict.
func (e *FencedError) Is(target error) bool { return target == log.ErrConflict }

// Renew keeps the claim for as long again as it was given, from now on. If the item went on
// to another worker, the error is *FencedError. A worker renews at half its lease.
func (c *Claim) Renew(ctx context.Context) (until time.Time, err error) {
	b, err := c.q.enterFirst(ctx)
	if err != nil {
		return time.Time{}, err
	}
	lease := b.lease()
	b.leave()
	now, err := c.q.st.LeaseTime(ctx)
	if err != nil {
		return time.Time{}, err
	}
	until = now.Add(lease).Truncate(time.Millisecond)
	ms := until.UnixMilli()
	return until, c.renew(ctx, &events.RunProgressed{Run: c.run, Kind: projector.ItemRenewed, LeaseUntil: &ms, Fence: c.Fence})
}

// renew has the log know of a longer lease.
func (c *Claim) renew(ctx context.Context, p *events.RunProgressed) error {
	e, err := events.New(c.q.st.Source(), c.sub, p)
	if err != nil {
		return err
	}
	return c.append(ctx, e)
}

// lease is how long a claim lasts.
func (b *board) lease() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.work.Queue.Settings.LeaseTime()
}

// attempts is how often an item is tried.
func (b *board) attempts() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.work.Queue.Settings.Attempts()
}

// Finish says that the item is done, with a result: JSON, text or any
// bytes. It is done once, and for
// good. If the item went on to another worker, the result is kept as late, without effect,
// and the error is *FencedError. The same call again is the same event.
func (c *Claim) Finish(ctx context.Context, result []byte) error {
	p := &events.RunFinished{Run: c.run, Outcome: "completed", Fence: c.Fence}
	var text error
	if p.Result, text = claimResult(result); text != nil {
		return text
	}
	return c.say(ctx, "completed", p)
}

// claimResult returns a result as JSON: what is not is a string, or, if it is not text, an object
// with the member bytes, in base64.
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

// Fail says that the item failed, and why. With retry it is handed out again, unless its
// attempts are used up; else, and without retry, it is dead. If it went on to another worker,
// this is kept as late, without effect, and the error is *FencedError.
func (c *Claim) Fail(ctx context.Context, cause string, retry bool) error {
	cause = strings.ToValidUTF8(cause, "\ufffd")
	b, err := c.q.enterFirst(ctx)
	if err != nil {
		return err
	}
	most := b.attempts()
	b.leave()
	if retry && c.Attempt < most {
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

// failure is the result of an item that is dead.
func failure(cause string, attempts int) (events.Raw, error) {
	return rawjson.Marshal(struct {
		Error    string `json:"error"`
		Attempts int    `json:"attempts"`
	}{cause, attempts})
}

// Release gives the item back as if it had not been claimed: the attempt does not count.
func (c *Claim) Release(ctx context.Context) error {
	return c.say(ctx, "released", &events.RunProgressed{Run: c.run, Kind: projector.ItemReleased, LeaseUntil: new(int64), Fence: c.Fence})
}

// say appends what follows from the claim and its end alone: to say the same again is the
// same event. It is kept as late if the claim is not in effect any more.
func (c *Claim) say(ctx context.Context, end string, p events.Payload) error {
	e, err := events.New(queueSource, c.sub, p)
	if err != nil {
		return err
	}
	e.ID = events.DerivedID(end, c.run.String(), c.Fence.String())
	fenced := c.append(ctx, e)
	late, ok := errors.AsType[*FencedError](fenced)
	if !ok || late.Late != 0 || end == "released" {
		return fenced
	}
	ack, err := c.q.st.Append(ctx, c.sub, log.Any, e)
	if events.IsStored(err) {
		late.Late = ack.Last
	}
	return errors.Join(fenced, err)
}

// append appends an event if the claim is in effect.
func (c *Claim) append(ctx context.Context, e events.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e = c.q.st.Stamp(e)
	for try := 1; ; try++ {
		ack, err := c.q.st.Append(ctx, c.sub, c.expect(), e)
		unshown, stored := err, events.IsStored(err)
		if stored && !ack.Duplicate {
			c.last = ack.Last
			return unshown
		}
		if !stored && (!errors.Is(err, log.ErrConflict) || try == maxQueueTries) {
			return err
		}
		now, counts, err := c.look(ctx, ack.Last)
		if err != nil {
			return err
		}
		if stored {
			return errors.Join(c.again(ack.Last, now, counts), unshown)
		}
		if now.Fence != c.Fence {
			return c.fencedBy(now)
		}
		c.last = now.Last // something else was said of it, as a note
	}
}

// again says what became of an event that was there already: it counts, or came too late.
// The caller holds mu.
func (c *Claim) again(at events.Offset, now projector.QueueItem, counts bool) error {
	if counts {
		c.last = max(c.last, at)
		return nil
	}
	late := c.fencedBy(now)
	late.Late = at
	return late
}

// expect is what a worker's word on its item rests on: that nobody has said anything of the
// item that it does not know.
func (c *Claim) expect() log.Expect {
	if c.isSerial() {
		return log.Since(c.last, runTypes...)
	}
	return log.At(c.last)
}

// isSerial reports whether the claim is on a serial queue's session.
func (c *Claim) isSerial() bool { return c.sub == c.q.sub }

// look folds what came since the claim. counts says whether the record at an offset is one
// by which something became of it.
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
			now.Fence, now.Worker = rec.Offset, started.Worker // its next claim may be on another item
		}
		now.Last = rec.Offset
	}
	return now, counts, nil
}

func (c *Claim) fencedBy(now projector.QueueItem) *FencedError {
	return &FencedError{Queue: c.q.id, Item: c.run.ID, Fence: c.Fence, Have: now.Fence, Worker: now.Worker, Outcome: now.Outcome}
}
