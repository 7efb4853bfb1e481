package projector

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tallylog/tally/events"
)

// Kinds of run.progressed with which a worker, or the queue's daemon, changes the state of an item. All but ItemRenewed
// have leaseUntil 0.
const (
	ItemRenewed  = "renewed"  // the worker continues
	ItemReleased = "released" // the worker returns the item; the attempt does not count
	ItemFailed   = "failed"   // the attempt failed, and the item is to be retried
	ItemRequeued = "requeued" // a dead item starts over
)

// Outcomes that no worker reported.
const (
	OutcomeDead    = "stopped:dead"    // all attempts are used up
	OutcomeExpired = "stopped:expired" // it expired before a worker finished it
)

// QueueItem is the state of an item of a queue, without its body.
//
// At most one claim is in effect at a time, the newest. Its offset is the fence that its worker names in all events
// about the item. Events with another fence are too late and have no effect. The first effective run.finished is final,
// unless the item is dead and queued again.
type QueueItem struct {
	ID        string           `json:"id"`
	Run       events.RunRef    `json:"run"`
	At        events.Offset    `json:"at"`              // the record with its turn
	Index     int              `json:"index,omitempty"` // index of the turn within the record
	Owner     string           `json:"owner,omitempty"`
	DueAt     events.Timestamp `json:"dueAt,omitempty"`
	ExpiresAt events.Timestamp `json:"expiresAt,omitempty"`
	After     []string         `json:"after,omitempty"`
	Priority  int              `json:"priority,omitempty"`

	Attempts int           `json:"attempts,omitempty"` // in this series, without returned attempts
	Series   int           `json:"series,omitempty"`   // number of times it was queued again
	Fence    events.Offset `json:"fence,omitempty"`    // the claim in effect; 0: none
	Worker   string        `json:"worker,omitempty"`   // holder of the claim
	Until    int64         `json:"until,omitempty"`    // end of the lease: Unix milliseconds by the log's time
	Last     events.Offset `json:"last,omitempty"`     // newest record of its own session; 0: none
	Ended    events.Offset `json:"ended,omitempty"`    // the effective run.finished; 0: none
	Outcome  string        `json:"outcome,omitempty"`  // of the effective run.finished
	Error    string        `json:"error,omitempty"`    // reason of the last failed attempt, cut to 512 bytes
}

// Apply folds the next record of the session that holds the item's claims. Records of another run and rejected records
// have no effect. If Run has no kind, Apply accepts any kind.
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
		stopped := i.Fence == 0 && strings.HasPrefix(p.Outcome, "stopped:") // of an item without a claim
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

// lost notes that the current attempt, if any, ended without a report.
func (i *QueueItem) lost() {
	if i.Fence != 0 {
		i.Error = cutText("the lease of " + i.Worker + " was over")
	}
}

// LastError returns why the newest ended attempt did not finish the item. It returns "" if no attempt ended or no
// reason was reported.
func (i *QueueItem) LastError(now time.Time) string {
	last := *i
	if !i.IsHeld(now) {
		last.lost()
	}
	return last.Error
}

// cutText cuts a text to the length that is stored.
func cutText(s string) string {
	const limit = 512
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}

// free ends the claim in effect.
func (i *QueueItem) free() { i.Fence, i.Worker, i.Until = 0, "", 0 }

// IsDone reports whether the item completed.
func (i *QueueItem) IsDone() bool { return i.Outcome == "completed" }

// IsDead reports whether the item ended without completing. It is not tried again unless a user requeues it.
func (i *QueueItem) IsDead() bool { return i.Ended != 0 && !i.IsDone() }

// IsHeld reports whether a claim is in effect and its lease has not ended at a time.
func (i *QueueItem) IsHeld(now time.Time) bool { return i.Fence != 0 && i.Until > now.UnixMilli() }

// Due returns the earliest time of the next claim: the end of the lease, or the item's start time. Zero: now.
func (i *QueueItem) Due() time.Time {
	if i.Fence != 0 {
		return time.UnixMilli(i.Until)
	}
	due, _ := i.DueAt.Time()
	return due
}

// IsExpired reports whether the item expired while no worker held it.
func (i *QueueItem) IsExpired(now time.Time) bool {
	at, ok := i.ExpiresAt.Time()
	return ok && !at.After(now) && i.Ended == 0 && !i.IsHeld(now)
}

// Decides returns when the queue's daemon must decide on the item, even if no worker asks for it: at the end of a
// lease, when all attempts are used up, or when the item expires. Zero: never.
func (i *QueueItem) Decides(s QueueSettings) (at time.Time) {
	expires, ok := i.ExpiresAt.Time()
	switch {
	case i.Ended != 0:
	case i.Fence != 0:
		return i.Due()
	case i.Attempts >= s.Attempts() && (!ok || i.Due().Before(expires)):
		due, epoch := i.Due(), time.UnixMilli(0)
		if due.Before(epoch) {
			return epoch // due; the zero time would mean never
		}
		return due
	case ok:
		return expires
	}
	return time.Time{}
}

// CompareOrder orders items of one queue by their position in the log.
func (i *QueueItem) CompareOrder(o *QueueItem) int {
	return cmp.Or(cmp.Compare(i.At, o.At), cmp.Compare(i.Index, o.Index))
}

// CompareTurn orders the items of a queue as they are handed out: highest priority first, equal priorities in log
// order. A serial queue ignores priorities.
func (q *Queue) CompareTurn(a, b *QueueItem) int {
	if !q.Settings.Serial && a.Priority != b.Priority {
		return cmp.Compare(b.Priority, a.Priority)
	}
	return a.CompareOrder(b)
}

// ItemsIn returns the new items in a record of a queue's session.
func ItemsIn(f Fact) []*QueueItem {
	list, _ := itemsOf(f)
	return list
}

// itemsOf returns the new items in a record of a queue's session, and the number of turns of its thread main that are
// not items.
func itemsOf(f Fact) (list []*QueueItem, rejected int) {
	p, ok := f.Payload.(*events.TurnAppended)
	if !ok || f.Invalid != nil {
		return nil, 0
	}
	for n, e := range p.Entries {
		if e.Thread != events.MainThread {
			continue
		}
		meta, err := events.ItemMetaOf(e.Meta)
		if err != nil || len(ItemSession(strings.TrimPrefix(f.Subject.ID, QueueSession("")), meta.ID)) > events.MaxIDLen { // no worker could claim it
			rejected++
			continue
		}
		run := events.RunRef{Kind: events.KindItem, ID: meta.ID}
		if e.Run != nil && e.Run.ID == meta.ID {
			run = *e.Run
		}
		list = append(list, &QueueItem{ID: meta.ID, Run: run, At: f.Offset, Index: n, Owner: meta.Owner, DueAt: meta.DueAt, ExpiresAt: meta.ExpiresAt,
			After: slices.Compact(slices.Sorted(slices.Values(meta.After))), Priority: meta.Priority})
	}
	return list, rejected
}
