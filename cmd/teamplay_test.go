package cmd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// teamPlay is the variable that makes a copy of these tests be a team that works until it is killed.
const teamPlay = "TALLY_TEST_TEAM"

// teamScript is the script of such a copy.
type teamScript struct {
	Store    string
	Round    int
	Workers  int
	Buffered bool // calls return before their events are durable
}

// teamSaid is a call that has returned, with the offset of its effect.
type teamSaid struct {
	Call, ID string
	At       events.Offset
}

// playTeam adds and does items, sends messages and writes documents, and prints each call that has returned.
func playTeam(text string) {
	var c teamScript
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = c.play(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func (s teamSaid) say() {
	saying.Lock()
	defer saying.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(s) // the parent may have ended
}

func (c teamScript) play(ctx context.Context) error {
	// The segments are so small that an item and its claim are often in different ones.
	srv, err := embedded.Start(ctx, embedded.ServerOptions{Dir: c.Store, NoSync: c.Buffered, SegmentBytes: 64 << 10})
	if err != nil {
		return err
	}
	st, err := tally.Open(ctx, srv.Log(), tally.Config{})
	if err == nil {
		err = tavern.InboxOf(st, "ci").Open(ctx, "")
	}
	if err != nil {
		return err
	}
	failed := make(chan error)
	keep := func(step func(n int) error) {
		go func() {
			var err error
			for n := 0; err == nil; n++ {
				err = step(n)
			}
			failed <- err
		}()
	}
	q := tavern.QueueOf(st, "q")
	keep(func(n int) error {
		it, err := q.Enqueue(ctx, tavern.Item{ID: fmt.Sprintf("i%d-%d", c.Round, n), Body: fmt.Appendf(nil, `"%0300d"`, n)})
		if err == nil {
			teamSaid{"Enqueue", it.ID, it.Offset}.say()
		}
		return err
	})
	for w := range c.Workers {
		keep(func(int) error { return teamItem(ctx, q, fmt.Sprint("w", w)) })
	}
	keep(func(n int) error {
		m, err := tavern.InboxOf(st, "ci").Send(ctx, tavern.Message{From: "user", Type: "note", Thread: "t", Key: fmt.Sprint(c.Round, "-", n), Body: fmt.Appendf(nil, `"%0300d"`, n)})
		if err == nil {
			teamSaid{"Send", m.ID, m.Offset}.say()
		}
		return err
	})
	keep(func(n int) error {
		id := fmt.Sprint(n % 5)
		rev, err := st.Documents().Save(ctx, "doc", id, tally.Write{Data: fmt.Appendf(nil, "%d %0300d", c.Round, n)})
		if err == nil {
			teamSaid{"Save", id, rev.Offset}.say()
		}
		return err
	})
	return <-failed
}

// teamItem makes a worker do an item.
func teamItem(ctx context.Context, q *tavern.Queue, worker string) error {
	c, err := q.Next(ctx, worker)
	if err != nil {
		return err
	}
	teamSaid{"Next", c.Item.ID, c.Fence}.say()
	if err := c.Finish(ctx, fmt.Append(nil, uint64(c.Fence))); err != nil {
		return err
	}
	teamSaid{"Finish", c.Item.ID, c.Fence}.say()
	return nil
}

// teamReport is the store's state of the calls that returned.
type teamReport struct {
	lost  []teamSaid
	twice []string // items with two accepted finishes
}

// lookAtTeam reads the log of a store, and searches for the effects of the calls that returned.
func lookAtTeam(ctx context.Context, dir string, said []teamSaid) (r teamReport, err error) {
	st, err := embedded.Open(ctx, embedded.Options{Store: dir, Backend: "local"})
	if err != nil {
		return r, err
	}
	found, holder, accepted := make(map[teamSaid]bool), make(map[string]events.Offset), make(map[string]int)
	for rec, rerr := range st.Log.Read(ctx, events.Range{}) {
		if rerr != nil {
			err = rerr
			break
		}
		_, item, _ := projector.ItemOf(rec.Subject.ID)
		switch p := projector.Decode(rec).Payload.(type) {
		case *events.TurnAppended:
			for _, l := range projector.LettersOf(projector.Decode(rec)) {
				found[teamSaid{"Send", l.ID, rec.Offset}] = true
			}
			for _, e := range p.Entries {
				var meta struct{ ID string }
				if json.Unmarshal(e.Meta, &meta) == nil {
					found[teamSaid{"Enqueue", meta.ID, rec.Offset}] = true
				}
			}
		case *events.RunStarted:
			found[teamSaid{"Next", item, rec.Offset}] = true
			holder[item] = rec.Offset
		case *events.RunFinished:
			if p.Fence == holder[item] && p.Fence != 0 {
				found[teamSaid{"Finish", item, p.Fence}] = true
				accepted[item]++
			}
		default:
			if rec.Type == events.TypeDocumentWritten {
				found[teamSaid{"Save", rec.Subject.ID, rec.Offset}] = true
			}
		}
	}
	for _, s := range said {
		if !found[s] {
			r.lost = append(r.lost, s)
		}
	}
	for item, n := range accepted {
		if n > 1 {
			r.twice = append(r.twice, item)
		}
	}
	return r, errors.Join(err, st.Close())
}
