package tavern_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/catalog"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// campaignLease is the lease of items in a campaign. A worker that is not killed finishes earlier, except a slow one.
const campaignLease = 2 * time.Second

// A3, D-17, D-18: workers are processes. They, the store's owner and the daemons are killed at random. For each item
// exactly one finish is accepted. No item is lost, claimed while a worker holds it, or left after its lease, and all
// readers see the same order.
func TestQueueCampaign(t *testing.T) {
	testkit.OnlyFull(t, "TestKilledTeam kills members of a team")
	testkit.Long(t)
	testkit.NotUnderRace(t) // the members are not built with it
	besideOthers(t)
	workers, items, kills := 4, 60, 4
	switch {
	case testkit.Soak():
		workers, items, kills = 16, 10_000, 200
	case !testkit.Full():
		items, kills = 24, 2
	}
	c := &queueCampaign{finished: make(map[string]uint64)}
	r := newTroupe(t, filepath.Join(t.TempDir(), "store"), func(w word) { c.heard(t, w) })
	owner, daemon, watcher := member{Role: "owner", Name: "owner"}, member{Role: "daemon", Name: "daemon"}, member{Role: "watcher", Name: "watcher", Count: items}
	r.start(owner)
	r.until(func() bool { return c.owned > 0 })
	r.start(member{Role: "enqueuer", Name: "enqueuer", Count: items})
	r.start(daemon)
	list := []member{owner, daemon}
	for n := range workers {
		m := member{Role: "worker", Name: fmt.Sprint("w", n), Seed: uint64(n)}
		r.start(m)
		list = append(list, m)
	}
	random, killed := testkit.Random(t), make(map[string]int)
	for n := range kills {
		at := (n + 1) * items / (kills + 2)
		r.until(func() bool { return len(c.finished) >= at })
		time.Sleep(time.Duration(random.Int64N(int64(10 * time.Millisecond)))) // at any point of their work
		c.kills = append(c.kills, time.Now())
		killed[r.strike(random, list, 8)]++
	}
	r.start(watcher)
	r.until(func() bool { return c.empty })
	r.wait("enqueuer")
	r.end()
	c.check(t, r, workers, items)
	t.Logf("killed were %v; %d finishes were heard of; %s", killed, len(c.finished), c.told)
	c.checkReaders(t, r, items)
}

// queueCampaign collects the messages of members.
type queueCampaign struct {
	owned    int
	empty    bool
	finished map[string]uint64 // item -> fence of the accepted finish
	lists    []string
	kills    []time.Time
	told     string
}

func (c *queueCampaign) heard(t *testing.T, w word) {
	switch w.What {
	case "silence":
		t.Log(w.ID)
	case "owns":
		c.owned++
	case "finished":
		if was, twice := c.finished[w.ID]; twice {
			t.Errorf("two finishes of %s were accepted, of %d and %d", w.ID, was, w.Fence)
		}
		c.finished[w.ID] = w.Fence
	case "empty":
		c.empty = true
	case "list":
		c.lists = append(c.lists, w.ID)
	}
}

func enqueueTeam(ctx context.Context, m member) error {
	return m.ride(ctx, func(st *tally.Store) error {
		q := tavern.QueueOf(st, "law")
		err := q.Create(ctx, tavern.QueueSettings{Lease: campaignLease, MaxAttempts: 1000})
		if errors.Is(err, tally.ErrExists) {
			err = nil
		}
		all := queueItems(m.Count)
		for lot := range slices.Chunk(all, max(len(all)/20, 1)) {
			if err == nil {
				_, err = q.EnqueueMany(ctx, lot...)
			}
		}
		return err
	})
}

// workTeam claims and finishes items forever. It releases some, fails some, and holds some for long.
func workTeam(ctx context.Context, m member) error {
	random := rand.New(rand.NewPCG(m.Seed, 1))
	var mine *tavern.Claim // not finished when the store's owner was killed
	return m.ride(ctx, func(st *tally.Store) (err error) {
		q := tavern.QueueOf(st, "law")
		for err == nil {
			if mine != nil {
				mine, err = q.Resume(ctx, mine.Item.ID, mine.Fence)
			} else {
				mine, err = q.Next(ctx, m.Name)
			}
			if mine != nil && (err == nil || errors.Is(err, log.ErrConflict)) {
				err = workOn(ctx, mine, random)
			}
			if _, fenced := errors.AsType[*tally.FencedError](err); fenced || err == nil {
				mine, err = nil, nil
			}
		}
		return err
	})
}

func workOn(ctx context.Context, c *tavern.Claim, random *rand.Rand) error {
	switch random.IntN(20) {
	case 0:
		return c.Release(ctx)
	case 1:
		return c.Fail(ctx, "by chance", true)
	case 2:
		for range 3 {
			if _, err := c.Renew(ctx); err != nil {
				return err
			}
			time.Sleep(campaignLease / 2)
		}
	}
	err := c.Finish(ctx, fmt.Appendf(nil, "%d", c.Fence))
	if err == nil {
		speak(word{What: "finished", ID: c.Item.ID, Fence: uint64(c.Fence)})
	}
	return err
}

// watchTeam returns when all items are done.
func watchTeam(ctx context.Context, m member) error {
	return m.ride(ctx, func(st *tally.Store) error {
		for {
			done, _, err := tavern.QueueOf(st, "law").List(ctx, tavern.ListQuery{States: []tavern.ItemState{tavern.ItemDone}})
			if err != nil {
				return err
			}
			if len(done) == m.Count {
				speak(word{What: "empty"})
				return nil
			}
			speak(word{What: "done", N: len(done)})
			time.Sleep(200 * time.Millisecond)
		}
	})
}

// listTeam reports a list of all items.
func listTeam(ctx context.Context, m member) error {
	return m.ride(ctx, func(st *tally.Store) error {
		ids, err := campaignList(ctx, st, m.Count)
		if err == nil {
			speak(word{What: "list", ID: campaignSum(ids)})
		}
		return err
	})
}

func campaignList(ctx context.Context, st *tally.Store, page int) (ids []string, err error) {
	query := tavern.ListQuery{States: []tavern.ItemState{tavern.ItemReady, tavern.ItemClaimed, tavern.ItemWaiting, tavern.ItemDead, tavern.ItemDone}, Limit: page}
	for {
		list, next, err := tavern.QueueOf(st, "law").List(ctx, query)
		if err != nil {
			return nil, err
		}
		if ids = append(ids, queueIDs(list)...); next == "" {
			return ids, nil
		}
		query.After = next
	}
}

func campaignSum(ids []string) string { return fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, ids))) }

// checkReaders checks that all readers get the same order: owner and attached processes, by pages of any size, from the
// view and from the log.
func (c *queueCampaign) checkReaders(t *testing.T, r *troupe, items int) {
	t.Helper()
	var want []string
	for _, i := range queueItems(items) {
		want = append(want, i.ID+" done")
	}
	st := need(embedded.Open(t.Context(), embedded.Options{Store: r.store, Backend: "local"}))
	defer st.Close()
	if got := need(campaignList(t.Context(), st, 0)); !slices.Equal(got, want) {
		t.Errorf("the owner's list of %d items is not in the order of their enqueueing", len(got))
	}
	for n, page := range []int{items/7 + 1, items} {
		r.start(member{Role: "lister", Name: fmt.Sprint("lister", n), Count: page})
	}
	r.until(func() bool { return len(c.lists) == 2 })
	for _, sum := range c.lists {
		if sum != campaignSum(want) {
			t.Error("an attached process got another order")
		}
	}
	head := need(st.Log.Durable(t.Context()))
	must(t, st.Wait(t.Context(), "work", head))
	view := need(catalog.OpenWork(t.Context(), st.ViewsDir()))
	defer view.Close()
	var got []string
	for _, i := range need(view.Items(t.Context(), catalog.ItemQuery{Namespace: st.Namespace(), Queue: "law", State: catalog.StateDone})) {
		got = append(got, i.ID+" "+i.State)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the view's list of %d items is in another order", len(got))
	}
}

// claims are the claims on one item, from its records.
type claims struct {
	holder events.Offset
	until  int64 // end of the holder's lease
	freed  time.Time
	ended  int // accepted finishes
	fence  events.Offset
}

// check reads only the log, and checks the rules.
func (c *queueCampaign) check(t *testing.T, r *troupe, workers, items int) {
	t.Helper()
	st := need(embedded.Open(t.Context(), embedded.Options{Store: r.store, Backend: "local"}))
	defer st.Close()
	all := make(map[string]*claims)
	var had []*tenure
	tenures := make(map[events.Offset]*tenure)
	var over, late int
	var times, claimed []time.Time // of workers' reports, and of their claims
	var gaps [][2]time.Time        // in which an item that had been claimed was free
	for rec, err := range st.Log.Read(t.Context(), events.Range{Namespace: st.Namespace()}) {
		must(t, err)
		_, id, is := projector.ItemOf(rec.Subject.ID)
		if !is {
			continue
		}
		times = append(times, rec.Recorded)
		i := all[id]
		if i == nil {
			i = new(claims)
			all[id] = i
		}
		switch p := projector.Decode(rec).Payload.(type) {
		case *events.RunStarted:
			if i.ended > 0 {
				t.Errorf("item %s: %s claimed it at %v, after its finish", id, p.Worker, rec.Offset)
			}
			if i.holder != 0 {
				over++
				if rec.Recorded.UnixMilli() < i.until {
					t.Errorf("item %s: %s claimed it at %v, while the claim %v lasts another %d ms", id, p.Worker, rec.Offset, i.holder, i.until-rec.Recorded.UnixMilli())
				}
				i.freed = time.UnixMilli(i.until)
			}
			if !i.freed.IsZero() {
				gaps = append(gaps, [2]time.Time{i.freed, rec.Recorded})
			}
			claimed = append(claimed, rec.Recorded)
			tenures[rec.Offset] = &tenure{worker: p.Worker, from: rec.Recorded, upto: rec.Recorded}
			had = append(had, tenures[rec.Offset])
			i.holder, i.until = rec.Offset, p.LeaseUntil
		case *events.RunProgressed:
			tenures[p.Fence].said(rec.Recorded, p.LeaseUntil != nil && *p.LeaseUntil > 0)
			switch {
			case p.Fence != i.holder || p.LeaseUntil == nil:
				late++
			case *p.LeaseUntil == 0:
				i.holder, i.freed = 0, rec.Recorded
			default:
				i.until = *p.LeaseUntil
			}
		case *events.RunFinished:
			tenures[p.Fence].said(rec.Recorded, false)
			if p.Fence != i.holder || i.holder == 0 {
				late++
				continue
			}
			i.ended++
			i.fence, i.holder = p.Fence, 0
		}
	}
	if len(all) != items {
		t.Errorf("%d items were claimed, want %d", len(all), items)
	}
	for id, i := range all {
		if i.ended != 1 {
			t.Errorf("item %s: %d finishes were accepted", id, i.ended)
		}
		if heard, ok := c.finished[id]; ok && events.Offset(heard) != i.fence {
			t.Errorf("item %s: the finish of the fence %v was accepted, but a worker got the acknowledgement for %d", id, i.fence, heard)
		}
	}
	for id := range maps.Keys(c.finished) {
		if all[id] == nil {
			t.Errorf("item %s is lost", id)
		}
	}
	full := fullTimes(had, r.kills, workers)
	longest, without, passed := time.Duration(0), time.Duration(0), 0
	for _, g := range gaps {
		from, _ := slices.BinarySearchFunc(claimed, g[0], time.Time.Compare)
		to, _ := slices.BinarySearchFunc(claimed, g[1], time.Time.Compare)
		longest, without, passed = max(longest, g[1].Sub(g[0])), max(without, busy(times, c.kills, full, g[0], g[1])), max(passed, to-from)
	}
	c.told = fmt.Sprintf("%d leases were over, %d words came too late; an item was left for %v at most, and for %v at most while a worker could claim, who made %d claims meanwhile", over, late, longest, without, passed)
	// However slow the machine is, a worker takes one of the first 64 free items.
	if passed > 64+32 || testkit.Soak() && without > time.Second {
		t.Error(c.told)
	}
}

// tenure is the time in which a worker held an item, from the log.
type tenure struct {
	worker     string
	from, upto time.Time
	goes       bool // the last record means that it continues
}

// said notes a record by the claim, if there is one.
func (n *tenure) said(at time.Time, goes bool) {
	if n != nil {
		n.upto, n.goes = at, goes
	}
}

// fullTimes returns the times in which each of the workers held an item. A worker whose last record means that it
// continues held the item until it was killed.
func fullTimes(had []*tenure, kills map[string][]time.Time, workers int) (full [][2]time.Time) {
	type step struct {
		at time.Time
		by int
	}
	var steps []step
	begun := make(map[string]time.Time) // the next tenure of a worker
	for _, n := range slices.Backward(had) {
		if next := slices.IndexFunc(kills[n.worker], n.upto.Before); next >= 0 && n.goes {
			n.upto = earlier(kills[n.worker][next], n.upto.Add(campaignLease/2))
		}
		if next, ok := begun[n.worker]; ok {
			n.upto = earlier(n.upto, next)
		}
		begun[n.worker] = n.from
		steps = append(steps, step{n.from, 1}, step{n.upto, -1})
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	count, since := 0, time.Time{}
	for _, s := range steps {
		if count == workers {
			full = append(full, [2]time.Time{since, s.at})
		}
		if count += s.by; count == workers {
			since = s.at
		}
	}
	return full
}

// busy returns the time between two times without the parts in which no worker could claim: from the kill of a member,
// possibly the store's owner, to the next record of a worker, and while each worker held an item.
func busy(times, kills []time.Time, full [][2]time.Time, from, to time.Time) time.Duration {
	away := slices.Clone(full)
	for _, killed := range kills {
		if n, _ := slices.BinarySearchFunc(times, killed, time.Time.Compare); n < len(times) {
			away = append(away, [2]time.Time{killed, times[n]})
		}
	}
	slices.SortFunc(away, func(a, b [2]time.Time) int { return a[0].Compare(b[0]) })
	d, counted := to.Sub(from), from
	for _, a := range away {
		begin, end := later(a[0], counted), earlier(a[1], to)
		if end.After(begin) {
			d, counted = d-end.Sub(begin), end
		}
	}
	return d
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
