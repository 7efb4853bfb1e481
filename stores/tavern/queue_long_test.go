package tavern_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
)

// A process that starts on a long queue loads only its first items. All items are still handed out in their turn: those
// that were not loaded, those that come after them, and those that are added meanwhile.
func TestLongQueueInTurn(t *testing.T) {
	testkit.OnlyFull(t, "TestQueue plays short queues")
	testkit.Long(t)
	testkit.NotUnderRace(t) // one claim after the other
	t.Run("one who comes again and again", func(t *testing.T) { longQueue(t, false) })
	t.Run("one who stays, and an item with an id that is there", func(t *testing.T) { longQueue(t, true) })
}

func longQueue(t *testing.T, stays bool) {
	count := 600
	if !testkit.Full() {
		count = 150
	}
	ctx, random := t.Context(), rand.New(rand.NewPCG(1, 2))
	st := need(embedded.Open(ctx, embedded.Options{Store: filepath.Join(t.TempDir(), "store"), Backend: "local"}))
	defer st.Close()
	q, left := tavern.QueueOf(st, "long"), queueItems(count)
	for n := range left {
		left[n].Priority = random.IntN(3)
	}
	for n := 0; n < count; n += 50 {
		left[n].Priority, left[n].After = 2, []string{left[n+7].ID}
	}
	last := &left[count-1] // after all first items
	last.Priority = 0
	need(q.EnqueueMany(ctx, left...))
	tavern.ForgetQueues(st)
	again := fmt.Appendf(nil, `{"id":%q,"priority":9}`, last.ID)
	must(t, st.Wait(ctx, "work", need(st.Log.Durable(ctx))))
	is := func(id string) func(tavern.Item) bool { return func(i tavern.Item) bool { return i.ID == id } }
	next := func() (first int) {
		first = -1
		for n, i := range left {
			waits := slices.ContainsFunc(i.After, func(id string) bool { return slices.ContainsFunc(left, is(id)) })
			if !waits && (first < 0 || i.Priority > left[first].Priority) {
				first = n
			}
		}
		return first
	}
	for n := 0; len(left) > 0; n++ {
		switch {
		case n == count/6 && stays: // a second item, more urgent, with the id of a later one: it is ignored
			e := need(events.New("test", q.Subject(), &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: []byte(`"false"`), Meta: again}}}))
			need(st.Append(ctx, q.Subject(), log.Any, e))
		case n == count/3:
			urgent := tavern.Item{ID: "urgent", Body: []byte(`"now"`), Priority: 8}
			need(q.Enqueue(ctx, urgent))
			left = append(left, urgent)
		case n == count*2/3:
			if counts := need(q.Counts(ctx)); counts[tavern.ItemReady]+counts[tavern.ItemWaiting] != len(left) {
				t.Errorf("the counts are %v, want %d", counts, len(left))
			}
		case n%(count/4) == count/5 && !stays:
			must(t, st.Wait(ctx, "work", need(st.Log.Durable(ctx))))
			tavern.ForgetQueues(st)
		}
		c, err := q.TryClaim(ctx, "w")
		must(t, err)
		first := next()
		if c.Item.ID != left[first].ID || string(c.Item.Body) != string(left[first].Body) {
			t.Fatalf("claimed item %d is %s, %s; want %s, %s", n, c.Item.ID, c.Item.Body, left[first].ID, left[first].Body)
		}
		must(t, c.Finish(ctx, nil))
		left = slices.Delete(left, first, first+1)
	}
	_, err := q.TryClaim(ctx, "w")
	if _, ok := errors.AsType[*tavern.EmptyError](err); !ok {
		t.Errorf("a claim after the last item: %v", err)
	}
}
