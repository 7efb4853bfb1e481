package tavern_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// changesetKit is a merge queue with documents, and an agent's overlays of them.
type changesetKit struct {
	t  *testing.T
	st *tally.Store
	m  *tavern.Changesets
}

func (k changesetKit) doc(id string) events.Subject {
	return events.Document(k.st.Namespace(), "doc", id)
}

func (k changesetKit) read(id string) string {
	doc, err := k.st.Documents().Read(k.t.Context(), "doc", id)
	if errors.Is(err, tally.ErrNotFound) {
		return "-"
	}
	must(k.t, err)
	return string(doc.Data)
}

// change makes an overlay with other content of a document.
func (k changesetKit) change(id string, base events.Offset, text string) tavern.Change {
	rev := need(k.st.Documents().Save(k.t.Context(), "overlay", "a1/"+id, tally.Write{Data: []byte(text), ContentType: "text/plain", Attributes: map[string]string{"overlay.base": base.String(), "lang": "en"}}))
	return tavern.Change{Document: k.doc(id), Base: base, Overlay: events.Document(k.st.Namespace(), "overlay", "a1/"+id), Revision: rev.Offset}
}

func TestChangesets(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		t.Run("D-43 applied, refused and expired changesets are visible", func(t *testing.T) { changesetsSeen(t, st) })
		t.Run("one after the other", func(t *testing.T) { changesetsInOrder(t, st) })
	})
}

func changesetsSeen(t *testing.T, st *tally.Store) {
	ctx := queueSoon(t)
	k := changesetKit{t, st, tavern.ChangesetsOf(st, "main")}
	if _, err := k.m.Propose(ctx, tavern.Changeset{Changes: []tavern.Change{k.change("x", 0, "x")}}); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("propose without a queue: %v", err)
	}
	must(t, k.m.Create(ctx, tavern.QueueSettings{}))
	a := need(st.Documents().Create(ctx, "doc", "a", tally.Write{Data: []byte("a1"), Owner: "ada"}))
	b := need(st.Documents().Create(ctx, "doc", "b", tally.Write{Data: []byte("b1")}))
	good := need(k.m.Propose(ctx, tavern.Changeset{ID: "good", Owner: "a1", Changes: []tavern.Change{k.change("a", a.Offset, "a2"), {Document: k.doc("b"), Base: b.Offset}, k.change("c", 0, "c1")}}))
	stale := k.change("a", a.Offset, "a3")
	need(k.m.Propose(ctx, tavern.Changeset{ID: "stale", Changes: []tavern.Change{k.change("d", 0, "d1"), stale, k.change("c", 0, "c2")}}))
	need(k.m.Propose(ctx, tavern.Changeset{ID: "old", ExpiresAt: time.Now().Add(-time.Hour), Changes: []tavern.Change{k.change("e", 0, "e1")}}))

	m := need(k.m.Next(ctx, "merger"))
	if m.Changeset.ID != "good" || m.Changeset.Offset != good.Offset || len(m.Changeset.Changes) != 3 {
		t.Errorf("got %+v", m.Changeset)
	}
	must(t, m.Apply(ctx))
	must(t, m.Apply(ctx)) // as after an unknown outcome
	if got := []string{k.read("a"), k.read("b"), k.read("c")}; !slices.Equal(got, []string{"a2", "-", "c1"}) {
		t.Errorf("got %q", got)
	}
	if doc := need(st.Documents().Read(ctx, "doc", "a")); doc.Meta.Owner != "ada" || doc.ContentType != "text/plain" || len(doc.Meta.Attributes) != 1 || doc.Meta.Attributes["lang"] != "en" || doc.Meta.Base != a.Offset {
		t.Errorf("got %+v", doc.Revision)
	}
	m = need(k.m.Next(ctx, "merger"))
	before := queueHead(t, st)
	conflict, ok := errors.AsType[*tavern.ChangesetConflictError](m.Apply(ctx))
	if !ok || len(conflict.Documents) != 2 || conflict.Documents[0].Document != k.doc("a") || conflict.Documents[0].SHA256 == "" || conflict.Documents[1].Document != k.doc("c") || queueHead(t, st) != before {
		t.Errorf("got %+v", conflict)
	}
	must(t, m.Fail(ctx, conflict.Error(), false))
	if _, err := k.m.TryClaim(ctx, "merger"); err == nil {
		t.Error("an expired changeset was claimed")
	}
	if got := []string{k.read("a"), k.read("c"), k.read("d"), k.read("e")}; !slices.Equal(got, []string{"a2", "c1", "-", "-"}) {
		t.Errorf("got %q", got)
	}
	list, _, err := k.m.List(ctx, tavern.ListQuery{States: []tavern.ItemState{tavern.ItemDone, tavern.ItemDead, tavern.ItemReady}})
	must(t, err)
	var seen []string
	for _, s := range list {
		seen = append(seen, fmt.Sprint(s.Changeset.ID, " ", s.Item.Outcome))
	}
	if want := []string{"good completed", "stale failed", "old stopped:expired"}; !slices.Equal(seen, want) {
		t.Errorf("got %q", seen)
	}
	secret := need(st.Documents().Create(ctx, "secret", "key", tally.Write{Data: []byte("s")}))
	for _, wrong := range [][]tavern.Change{nil, {{Document: k.doc("g"), Overlay: events.Document(st.Namespace(), "secret", "key"), Revision: secret.Offset}}, {{Document: k.doc("a")}}, {stale, stale}, {{Document: k.doc("a"), Base: 1, Overlay: k.doc("o")}}, {{Document: events.Session("", "s"), Base: 1}}} {
		if _, invalid := errors.AsType[*events.InvalidError](changesetRefusal(k.m.Propose(ctx, tavern.Changeset{Changes: wrong}))); !invalid {
			t.Errorf("the invalid changeset %+v was accepted", wrong)
		}
	}
}

func changesetRefusal[T any](_ T, err error) error { return err }

// With eight proposers and two mergers, each changeset is applied in its turn, or refused as a whole.
func changesetsInOrder(t *testing.T, st *tally.Store) {
	ctx := queueSoon(t)
	k := changesetKit{t, st, tavern.ChangesetsOf(st, "order")}
	must(t, k.m.Create(ctx, tavern.QueueSettings{}))
	left := need(st.Documents().Create(ctx, "doc", "left", tally.Write{Data: []byte("0")}))
	right := need(st.Documents().Create(ctx, "doc", "right", tally.Write{Data: []byte("0")}))
	const n = 8
	for i := range n { // each has the original base, so only one can be applied
		text := fmt.Sprint(i)
		need(k.m.Propose(ctx, tavern.Changeset{ID: text, Changes: []tavern.Change{k.change("left", left.Offset, text), k.change("right", right.Offset, text)}}))
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var order []string
	applied := 0
	for w := range 2 {
		wg.Go(func() {
			for {
				m, err := k.m.TryClaim(ctx, fmt.Sprint("merger ", w))
				if empty, ok := errors.AsType[*tavern.EmptyError](err); ok {
					if empty.Claimed+empty.Waiting == 0 {
						return
					}
					time.Sleep(time.Millisecond)
					continue
				}
				must(t, err)
				mu.Lock()
				order = append(order, m.Changeset.ID)
				mu.Unlock()
				err = m.Apply(ctx)
				if conflict, ok := errors.AsType[*tavern.ChangesetConflictError](err); ok {
					must(t, m.Fail(ctx, conflict.Error(), false))
					continue
				}
				must(t, err)
				mu.Lock()
				applied++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if l, r := k.read("left"), k.read("right"); applied != 1 || l != r || l != "0" {
		t.Errorf("%d of two conflicting changesets were applied: %s, %s", applied, l, r)
	}
	if !slices.IsSorted(order) || len(order) != n {
		t.Errorf("the order of merges is %q", order)
	}
}

// A changeset that another merger has claimed meanwhile is not applied. Any process may end an expired changeset, and
// it ends once.
func TestChangesetLate(t *testing.T) {
	st, clock := queueStore(t)
	ctx := queueSoon(t)
	k := changesetKit{t, st, tavern.ChangesetsOf(st, "late")}
	must(t, k.m.Create(ctx, tavern.QueueSettings{Lease: time.Minute}))
	need(k.m.Propose(ctx, tavern.Changeset{ID: "a", Changes: []tavern.Change{k.change("a", 0, "late")}}))
	old := need(k.m.Propose(ctx, tavern.Changeset{ID: "b", ExpiresAt: need(st.LogTime(ctx)).Add(time.Hour).Truncate(time.Second), Changes: []tavern.Change{k.change("b", 0, "b")}}))
	slow := need(k.m.Next(ctx, "slow"))
	queueJump(t, st, clock, 2*time.Minute)
	fast := need(k.m.Next(ctx, "fast"))
	if fenced, ok := errors.AsType[*tally.FencedError](slow.Apply(ctx)); !ok || fenced.Holder != "fast" || k.read("a") != "-" {
		t.Errorf("got the error %+v, and document a is %q", fenced, k.read("a"))
	}
	must(t, fast.Apply(ctx))
	if fenced, ok := errors.AsType[*tally.FencedError](slow.Apply(ctx)); !ok || fenced.Outcome != "completed" {
		t.Errorf("got the error %+v", fenced)
	}
	expire := func(at time.Time) (made bool, next time.Time) {
		d := need(k.m.Queue().Decide(ctx, at))
		for _, end := range d.Ends {
			made = need(end.Make(ctx, st)) || made
		}
		return made, d.Next
	}
	if made, next := expire(old.ExpiresAt.Add(-1)); made || !next.Equal(old.ExpiresAt) {
		t.Errorf("%v, %v", made, next)
	}
	first, _ := expire(old.ExpiresAt)
	second, _ := expire(old.ExpiresAt)
	if s := need(k.m.Queue().Get(ctx, "b")); !first || second || s.Outcome != projector.OutcomeExpired {
		t.Errorf("the two calls returned %v and %v, the status is %+v", first, second, s)
	}
}
