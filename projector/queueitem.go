package projector

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
)

// Kinds of run.progressed by which a worker, or who looks after a queue, says what becomes
// of an item. Each but ItemRenewed has leaseUntil 0.
const (
	ItemRenewed  = "renewed"  // the worker goes on
	ItemReleased = "released" // it gives the item back, and the attempt does not count
	ItemFailed   = "failed"   // it failed, and the item is to be tried again
	ItemRequeued = "requeued" // a dead item begins anew
)

// Outcomes of items that no worker reported.
const (
	OutcomeDead    = "stopped:dead"    // its attempts are used up
	OutcomeExpired = "stopped:expired" // its time was over before anybody had it
)

// QueueItem is what is known of an item of a queue, without its body.
//
// At any time at most one claim is in effect, the newest: its offset is the fence that its
// worker names in all that it says of the item. What has another fence came too late and
// changes nothing; the first run.finished that does not is the item's, for ever, unless it
// is dead and queued again.
type QueueItem struct {
	ID        string           `json:"id"`
	Run       events.RunRef    `json:"run"`
	At        events.Offset    `json:"at"`              // the record that has its turn
	Index     int              `json:"index,omitempty"` // of the turn among those of the record
	Owner     string           `json:"owner,omitempty"`
	DueAt     events.Timestamp `json:"dueAt,omitempty"`
	ExpiresAt events.Timestamp `json:"expiresAt,omitempty"`
	After     []string         `json:"after,omitempty"`
	Priority  int              `json:"priority,omitempty"`

	Attempts int           `json:"attempts,omitempty"` // of this series, without those given back
	Series   int           `json:"series,omitempty"`   // how often it was queued again
	Fence    events.Offset `json:"fence,omitempty"`    // the claim in effect; 0: none
	Worker   string        `json:"worker,omitempty"`   // whose it is
	Until    int64         `json:"until,omitempty"`    // Unix milliseconds by the log's time
	Last     events.Offset `json:"last,omitempty"`     // newest record of its own session; 0: there is none
	Ended    events.Offset `json:"ended,omitempty"`    // the run.finished that counts; 0: none
	Outcome  string        `json:"outcome,omitempty"`  // of that
	Error    string        `json:"error,omitempty"`    // why the last attempt that failed did, cut to 512 bytes
}

// Apply folds the next record of the session in which the item's claims are. What is about
// another run, or void, changes nothing. An item whose Run has no kind takes any.
func (i *QueueItem) Apply(f Fact) {
	ref := RunOf(f.Payload)
	if f.Invalid != nil || ref == nil || ref.ID != i.Run.ID || i.Run.Kind != "" && ref.Kind != i.Run.Kind {
		return
	}
	switch p := f.Payload.(type) {
	case *events.RunStarted:
		if i.Ended == 0 {
			i.lost()
			i.Attempts++
			i.Fence, i.Worker, i.Until = f.Offset, p.Worker, p.LeaseUntil
		}
	case *events.RunProgressed:
		i.progressed(p)
	case *events.RunFinished:
		stopped := i.Fence == 0 && strings.HasPrefix(p.Outcome, "stopped:") // of what nobody has
		if i.Ended == 0 && p.Fence == i.Fence && (i.Fence != 0 || stopped) {
			i.Ended, i.Outcome = f.Offset, p.Outcome
			i.free()
		}
	}
}

func (i *QueueItem) progressed(p *events.RunProgressed) {
	switch {
	case p.Kind == ItemRequeued:
		if i.IsDead() {
			i.Ended, i.Outcome, i.Attempts = 0, "", 0
			i.Series++
		}
	case i.Fence == 0 || p.Fence != i.Fence || p.LeaseUntil == nil:
	case *p.LeaseUntil > 0:
		i.Until = *p.LeaseUntil
	default:
		if p.Kind == ItemReleased {
			i.Attempts--
		} else {
			i.Error = cutText(p.Note)
		}
		i.free()
	}
}

// lost notes that an attempt ended without a word, if there is one.
func (i *QueueItem) lost() {
	if i.Fence != 0 {
		i.Error = cutText("the lease of " + i.Worker + " was over")
	}
}

// LastError says why the newest attempt that is over did not finish the item, "" if there
// is none, or nobody said.
func (i *QueueItem) LastError(now time.Time) string {
	last := *i
	if !i.IsHeld(now) {
		last.lost()
	}
	return last.Error
}

// cutText cuts a text to what is kept of it.
func cutText(s string) string {
	const limit = 512
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}

// free ends the claim in effect.
func (i *QueueItem) free() { i.Fence, i.Worker, i.Until = 0, "", 0 }

// IsDone reports whether the item was completed.
func (i *QueueItem) IsDone() bool { return i.Outcome == "completed" }

// IsDead reports whether the item ended in another way: it is not tried again unless
// somebody queues it again.
func (i *QueueItem) IsDead() bool { return i.Ended != 0 && !i.IsDone() }

// IsHeld reports whether a claim is in effect whose lease is not over at a time.
func (i *QueueItem) IsHeld(now time.Time) bool { return i.Fence != 0 && i.Until > now.UnixMilli() }

// Due is when the item may be claimed at the earliest, as far as that is a matter of time:
// when its lease is over, or when it is due. Zero: now.
func (i *QueueItem) Due() time.Time {
	if i.Fence != 0 {
		return time.UnixMilli(i.Until)
	}
	due, _ := i.DueAt.Time()
	return due
}

// IsExpired reports whether the time of an item is over that nobody has.
func (i *QueueItem) IsExpired(now time.Time) bool {
	at, ok := i.ExpiresAt.Time()
	return ok && !at.After(now) && i.Ended == 0 && !i.IsHeld(now)
}

// Decides is when the item is to be looked at by who looks after the queue, whether a worker
// asks for it or not: a lease is over, its attempts are used up, or its time is. Zero: never.
func (i *QueueItem) Decides(s QueueSettings) (at time.Time) {
	expires, ok := i.ExpiresAt.Time()
	switch {
	case i.Ended != 0:
	case i.Fence != 0:
		return i.Due()
	case i.Attempts >= s.Attempts() && (!ok || i.Due().Before(expires)):
		due, epoch := i.Due(), time.UnixMilli(0)
		if due.Before(epoch) {
			return epoch // it is due, and zero is never
		}
		return due
	case ok:
		return expires
	}
	return time.Time{}
}

// CompareOrder orders items of one queue by the log.
func (i *QueueItem) CompareOrder(o *QueueItem) int {
	return cmp.Or(cmp.Compare(i.At, o.At), cmp.Compare(i.Index, o.Index))
}

// CompareTurn orders the items of a queue in the way in which they are handed out: those of
// the highest priority first, of equals by the log. In a serial queue priorities say nothing.
func (q *Queue) CompareTurn(a, b *QueueItem) int {
	if !q.Settings.Serial && a.Priority != b.Priority {
		return cmp.Compare(b.Priority, a.Priority)
	}
	return a.CompareOrder(b)
}

// ItemsIn returns the items that a record of a queue's session brings, as they are then.
func ItemsIn(f Fact) []*QueueItem {
	list, _ := itemsOf(f)
	return list
}

// itemsOf returns the items that a record of a queue's session brings, and how many turns
// of its thread main are not items.
func itemsOf(f Fact) (list []*QueueItem, void int) {
	p, ok := f.Payload.(*events.TurnAppended)
	if !ok || f.Invalid != nil {
		return nil, 0
	}
	for n, e := range p.Entries {
		if e.Thread != events.MainThread {
			continue
		}
		meta, err := events.ItemMetaOf(e.Meta)
		if err != nil || len(ItemSession(strings.TrimPrefix(f.Subject.ID, QueueSession("")), meta.ID)) > events.MaxIDLen { // nobody could claim it
			void++
			continue
		}
		run := events.RunRef{Kind: events.KindItem, ID: meta.ID}
		if e.Run != nil && e.Run.ID == meta.ID {
			run = *e.Run
		}
		list = append(list, &QueueItem{ID: meta.ID, Run: run, At: f.Offset, Index: n, Owner: meta.Owner, DueAt: meta.DueAt, ExpiresAt: meta.ExpiresAt,
			After: slices.Compact(slices.Sorted(slices.Values(meta.After))), Priority: meta.Priority})
	}
	return list, void
}
