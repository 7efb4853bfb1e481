package tavern

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// until is the event by which the claim lasts until a time, the zero time: by which the item
// is given back as if it had not been claimed, so that the attempt does not count.
func (c *Claim) until(_ context.Context, at time.Time) (events.Event, error) {
	if at.IsZero() {
		return c.word("released", &events.RunProgressed{Run: c.run, Kind: projector.ItemReleased, LeaseUntil: new(int64), Fence: c.Fence})
	}
	ms := at.UnixMilli()
	return events.New(c.q.st.Source(), c.sub, &events.RunProgressed{Run: c.run, Kind: projector.ItemRenewed, LeaseUntil: &ms, Fence: c.Fence})
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
// and the error is *tally.FencedError. The same call again is the same event.
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
// this is kept as late, without effect, and the error is *tally.FencedError.
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

// word makes an event that follows from the claim and its end alone: to say the same again is
// the same event.
func (c *Claim) word(end string, p events.Payload) (events.Event, error) {
	e, err := events.New(queueSource, c.sub, p)
	e.ID = events.DerivedID(end, c.run.String(), c.Fence.String())
	return e, err
}

// say appends the claim's last word. It is kept as late if the claim is not in effect any more.
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
		late.Late = ack.Last
		return late // a *tally.TreeError beside it would say that the word counts
	case events.IsStored(err) && acks[0].Duplicate:
		return cmp.Or(c.again(ctx, acks[0].Last), err)
	}
	return err
}

// again says what became of a last word that was there already: it counts, or came too late.
func (c *Claim) again(ctx context.Context, at events.Offset) error {
	now, counts, err := c.look(ctx, at)
	if err != nil || counts {
		return err
	}
	late := c.fencedBy(now)
	late.Late = at
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

func (c *Claim) fencedBy(now projector.QueueItem) *tally.FencedError {
	return &tally.FencedError{Subject: c.Subject, Fence: c.Fence, Have: now.Fence, Holder: now.Worker, Outcome: now.Outcome}
}
