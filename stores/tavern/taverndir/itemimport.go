package taverndir

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// atOnce bounds the items in one append.
const atOnce = 64

// runTypes are the types of events in an item's history.
var runTypes = []string{events.TypeRunStarted, events.TypeRunProgressed, events.TypeRunFinished}

// rest is the part of an item's history that the store lacks.
type rest struct {
	item   projector.QueueItem // with the claim in effect
	sub    events.Subject      // the session with the records about the item
	expect log.Expect          // no other record about it was appended
	at     events.Offset       // the offset in expect
	open   *step               // the claim in effect, with its end or a longer lease
	steps  []step              // the following steps
}

// appendHistories continues the items of a queue to the folder's state. An item that is completed in the folder becomes
// completed in the store, so that no worker gets it again. Completed work of the store is never undone.
func (im *importer) appendHistories(ctx context.Context, bf *boxFolder, s *projector.Session) error {
	if !slices.ContainsFunc(bf.histories, func(h itemHistory) bool { return len(h.Steps) > 0 }) {
		return nil
	}
	s, err := im.Load(ctx, s.Subject.ID)
	if err != nil {
		return err
	}
	items := itemsOf(bf.id, turnsOf(s, bf.box))
	items = items[:min(len(items), len(bf.histories))]
	have, err := historiesOf(ctx, im.Target, bf.id, s.Ledger, 0, items)
	if err != nil {
		return err
	}
	var list []*rest
	for n, i := range items {
		if i == nil {
			continue
		}
		r, ok := im.restOf(have, bf.id, i, bf.histories[n].Steps)
		if !ok {
			im.Problem(path.Join(bf.at, boxes[bf.box].sub), 0, fmt.Sprintf("item %s changed in the folder and in the store: the store keeps its state", i.ID))
		}
		if r != nil {
			list = append(list, r)
		}
	}
	if have.work.Queue.Settings.Serial {
		return im.appendSerial(ctx, s.Subject, list, max(have.newest, s.Offset()))
	}
	for part := range slices.Chunk(list, atOnce) {
		if err := im.appendRests(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// restOf returns the steps of an item that the store lacks, or nil. It returns false if the histories differ, unless
// the folder's item is completed: then the store's item becomes completed as well.
func (im *importer) restOf(have *itemHistories, queue string, i *projector.QueueItem, want []step) (*rest, bool) {
	had := have.steps[i.ID]
	r := &rest{item: *have.work.Items[i.ID], sub: events.Session(im.Target.Namespace(), projector.ItemSession(queue, i.ID)), at: have.last[i.ID]}
	r.expect = log.At(r.at)
	both := min(len(had), len(want))
	for n := range both {
		if !had[n].isSame(want[n]) {
			return r.finishedThere(want)
		}
	}
	if both > 0 {
		r.open = goesOn(had[both-1], want[both-1])
	}
	if r.steps = want[both:]; r.open == nil && len(r.steps) == 0 {
		return nil, true
	}
	return r, true
}

// goesOn returns the claim in effect in the store, if the folder has its end or a longer lease.
func goesOn(had, want step) *step {
	if !had.isOpen() || want.isOpen() && want.Until <= had.Until {
		return nil
	}
	return &want
}

// finishedThere is restOf for an item with another history in the store.
func (r *rest) finishedThere(want []step) (*rest, bool) {
	last := want[len(want)-1]
	if r.item.IsDone() || last.Outcome != "completed" {
		return nil, r.item.IsDone()
	}
	r.steps = nil
	if r.item.IsDead() {
		r.steps = append(r.steps, step{Returned: projector.ItemRequeued})
	}
	last.Attempt = r.item.Attempts + 1
	r.steps = append(r.steps, last)
	return r, true
}

// next returns the events up to the next claim, whose offset later events need. It returns none at the end.
func (r *rest) next() (list []events.Payload) {
	if r.open != nil {
		switch p := r.open.ended(r.item.Run, r.item.Fence); {
		case p != nil:
			list = append(list, p)
		default:
			until, _ := r.open.Until.Time()
			ms := until.UnixMilli()
			list = append(list, &events.RunProgressed{Run: r.item.Run, Kind: projector.ItemRenewed, LeaseUntil: &ms, Fence: r.item.Fence})
		}
		r.open = nil
	}
	for len(r.steps) > 0 {
		s := r.steps[0]
		r.steps = r.steps[1:]
		if s.Attempt > 0 {
			if r.open = &s; s.isOpen() {
				r.open = nil
			}
			return append(list, s.started(r.item.Run))
		}
		list = append(list, s.ended(r.item.Run, 0))
	}
	return list
}

// part returns the next append, or false at the end.
func (im *importer) part(r *rest) (log.Part, bool, error) {
	list := r.next()
	if len(list) == 0 {
		return log.Part{}, false, nil
	}
	p := log.Part{Subject: r.sub, Expect: r.expect}
	for n, payload := range list {
		e, err := events.New(im.Source, r.sub, payload)
		if err != nil {
			return p, false, err
		}
		p.Events = append(p.Events, im.Named(e, r.at, fmt.Sprint("item ", r.item.Run, " ", n), ""))
	}
	return p, true, nil
}

// appended notes the offset of the newest append, which may be a claim.
func (r *rest) appended(at events.Offset) {
	r.item.Fence, r.at, r.expect = at, at, log.At(at)
}

// appendRests continues items side by side. Each append ends with their next claims.
func (im *importer) appendRests(ctx context.Context, list []*rest) error {
	for {
		var parts []log.Part
		var of []*rest
		for _, r := range list {
			p, more, err := im.part(r)
			if err != nil {
				return err
			}
			if more {
				parts, of = append(parts, p), append(of, r)
			}
		}
		if len(parts) == 0 {
			return nil
		}
		acks, err := im.AppendAll(ctx, parts)
		if err != nil {
			return err
		}
		for n, r := range of {
			r.appended(acks[n].Last)
		}
	}
}

// appendSerial continues the items of a serial queue one after the other, because each claim ends the previous one.
// First the store's claim in effect ends. The item that a worker holds in the folder is last.
func (im *importer) appendSerial(ctx context.Context, queue events.Subject, list []*rest, after events.Offset) (err error) {
	for _, r := range list {
		if r.sub = queue; r.open != nil {
			steps := r.steps
			r.steps = nil
			if after, err = im.appendInTurn(ctx, r, after); err != nil {
				return err
			}
			r.steps = steps
		}
	}
	slices.SortStableFunc(list, func(a, b *rest) int { return cmp.Compare(a.held(), b.held()) })
	for _, r := range list {
		if after, err = im.appendInTurn(ctx, r, after); err != nil {
			return err
		}
	}
	return nil
}

// appendInTurn continues an item of a serial queue after an offset, and returns the last offset.
func (im *importer) appendInTurn(ctx context.Context, r *rest, after events.Offset) (events.Offset, error) {
	for {
		r.at, r.expect = after, log.Since(after, runTypes...)
		p, more, err := im.part(r)
		if err != nil || !more {
			return after, err
		}
		acks, err := im.AppendAll(ctx, []log.Part{p})
		if err != nil {
			return after, err
		}
		after = acks[0].Last
		r.appended(after)
	}
}

// held returns 1 if a worker holds the item at the end, or else 0.
func (r *rest) held() int {
	if n := len(r.steps); n > 0 && r.steps[n-1].isOpen() {
		return 1
	}
	return 0
}
