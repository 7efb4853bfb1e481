package taverndir_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/layouttest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
	"github.com/tallylog/tally/stores/tavern/taverndir"
)

// Growth of a box between any two records is reported as its files are written, or not at all.
func TestGrowth(t *testing.T) {
	known := 0
	for seed := range layouttest.Seeds(3) {
		random, st := rand.New(rand.NewPCG(seed, 3)), openStore(t)
		for n := range 40 {
			draw(t, st, random, fmt.Sprint("m", n))
		}
		known += layouttest.CheckGrowth(t, st, taverndir.Layout{}, live)
	}
	if known < 10 {
		t.Errorf("Growth returned data %d times, want more", known)
	}
	t.Log(known)
}

// draw appends a random message or item to a box, or changes a field of the box.
func draw(t *testing.T, st *tally.Store, random *rand.Rand, id string) {
	t.Helper()
	inbox := tavern.InboxOf(st, tavern.User)
	switch n := random.IntN(20); {
	case n > 15:
		(&worked{t: t, st: st, q: tavern.QueueOf(st, "build"), random: random}).claim(n)
		return
	case n < 5:
		need(inbox.Send(t.Context(), tavern.Message{ID: id, From: "user", Type: "note", Thread: "t", Body: tavern.Text("Does it?")}))
		return
	case n < 9:
		need(tavern.QueueOf(st, "build").Enqueue(t.Context(), tavern.Item{ID: id, Body: []byte(id)}))
		return
	}
	sub := events.Session(st.Namespace(), []string{"inbox/" + tavern.User, "queue/build"}[random.IntN(2)])
	o, err := st.Loader().Peek(t.Context(), sub)
	if err != nil {
		t.Fatal(err)
	}
	if o.Offset() == 0 {
		return
	}
	turn := events.Entry{Thread: []string{"inbox", "main"}[random.IntN(2)], ID: id, Turn: events.Raw(`"x"`)}
	var p events.Payload
	switch random.IntN(5) {
	case 0:
		p = &events.TurnAppended{Entries: []events.Entry{turn, turn, turn}}
	case 1: // the cursor may be beyond the last record
		ahead := o.Offset() + events.Offset(random.IntN(9))
		p = &events.SessionUpdated{Set: events.Fields{{Name: "cursors", Value: events.Raw(fmt.Sprintf(`{"inbox":%d,"main":%d}`, ahead, ahead))}}}
	case 2:
		p = &events.SessionUpdated{Set: events.Fields{{Name: "status", Value: events.Raw([]string{`null`, `"archived"`}[random.IntN(2)])}}}
	case 3:
		p = &events.SessionUpdated{Set: events.Fields{{Name: "title", Value: events.Raw(`"T"`)}}}
	case 4:
		p = &events.ThreadTruncated{Lengths: map[string]int{turn.Thread: o.Len(turn.Thread) / 2}, Reason: "test"}
	}
	need(st.Append(t.Context(), sub, log.At(o.Offset()), need(events.New("urn:test", sub, p))))
}
