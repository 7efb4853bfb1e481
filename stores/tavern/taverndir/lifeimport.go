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

// atOnce bounds the items whose lives go on in one append.
const atOnce = 64

// runTypes are the types of events by which something becomes of an item.
var runTypes = []string{events.TypeRunStarted, events.TypeRunProgressed, events.TypeRunFinished}

// rest is what the store lacks of the life of an item.
type rest struct {
	item   projector.QueueItem // with the claim in effect
	sub    events.Subject      // whose records say what becomes of it
	expect log.Expect          // that nothing else was said of it
	at     events.Offset       // that is expected
	open   *step               // the claim in effect, with its end or a longer lease
	steps  []step              // that follow
}

// appendLives has the items of a queue go on to where the folder has them. Work that is done is
// done here too: an item that somebody finished there is not handed out again. What was done here is
// never taken back.
func (im *importer) appendLives(ctx context.Context, u *boxFolder, s *projector.Session) error {
	if !slices.ContainsFunc(u.lives, func(li life) bool { return len(li.Steps) > 0 }) {
		return nil
	}
	s, err := im.Load(ctx, s.Subject.ID)
	if err != nil {
		return err
	}
	items := itemsOf(u.id, turnsOf(s, u.box))
	items = items[:min(len(items), len(u.lives))]
	have, err := livesOf(ctx, im.Target, u.id, s.Ledger, 0, items)
	if err != nil {
		return err
	}
	var list []*rest
	for n, i := range items {
		if i == nil {
			continue
		}
		r, ok := im.restOf(have, u.id, i, u.lives[n].Steps)
		if !ok {
			im.Problem(path.Join(u.at, boxes[u.box].sub), 0, fmt.Sprintf("item %s was worked on there and here since: its state stays as the store has it", i.ID))
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

// restOf returns what a store lacks of the steps of an item, nil if nothing. It is false if the item
// went another way here, unless it is done there: then it is done here as well.
func (im *importer) restOf(have *lives, queue string, i *projector.QueueItem, want []step) (*rest, bool) {
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

// goesOn returns the claim that a store has in effect, if a folder knows its end or a longer lease.
func goesOn(had, want step) *step {
	if !had.isOpen() || want.isOpen() && want.Until <= had.Until {
		return nil
	}
	return &want
}

// finishedThere is restOf for an item that went another way in the store.
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

// next returns the events up to the next claim, of which the offset is to be known before anything
// can be said of it. Without events nothing is left.
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

// part returns the next append, false if there is none.
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

// appended notes where the newest append is: it may be a claim.
func (r *rest) appended(at events.Offset) {
	r.item.Fence, r.at, r.expect = at, at, log.At(at)
}

// appendRests has items go on side by side: each append ends with their next claims.
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

// appendSerial has the items of a serial queue go on one after the other, as each claim ends the
// claim before it: first the claim ends that is in effect here, last the item goes on that a worker
// has there.
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

// appendInTurn has an item of a serial queue go on, behind an offset, and returns the last one.
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

// held is 1 for an item that a worker has in the end.
func (r *rest) held() int {
	if n := len(r.steps); n > 0 && r.steps[n-1].isOpen() {
		return 1
	}
	return 0
}
