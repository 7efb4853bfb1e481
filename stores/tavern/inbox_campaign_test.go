package tavern_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

// A8, D-20, D-45: members of a team send each other messages, while the store's owner, the daemons and the consumers
// are killed at random. Each message is seen, in order per receiver, and none is lost: exactly once by receivers that
// commit work and cursor together, at least once by the others. A question without an answer in time is reported once.
func TestInboxCampaign(t *testing.T) {
	testkit.Long(t)
	testkit.OnlyFull(t, "TestInboxTeamLaw plays such a team in one process, and TestKilledTeam kills one")
	testkit.NotUnderRace(t) // the members are not built with it
	besideOthers(t)
	messages, kills := 160, 4
	if testkit.Soak() {
		messages, kills = 10_000, 100 // 50 of them of the owner or of a daemon
	}
	owned, sent, quiet, left := 0, 0, false, map[string]string(nil)
	r := newTroupe(t, filepath.Join(t.TempDir(), "store"), func(w word) {
		switch w.What {
		case "silence":
			t.Log(w.ID)
		case "owns":
			owned++
		case "sent":
			sent++
		case "quiet":
			quiet = true
		case "left":
			left = w.State
		}
	})
	owner := member{Role: "owner", Name: "owner"}
	r.start(owner)
	r.until(func() bool { return owned > 0 })
	daemons := []member{owner, {Role: "daemon", Name: "daemon 1"}, {Role: "daemon", Name: "daemon 2"}}
	for _, m := range daemons[1:] {
		r.start(m)
	}
	teamBegins(t, r.store)
	var consuming []member
	for n := range 4 {
		m := member{Role: "consumer", Name: fmt.Sprint("consumer ", n), Seed: uint64(n)}
		for i := n; i < inboxTeamSize; i += 4 {
			m.Agents = append(m.Agents, i)
		}
		consuming = append(consuming, m)
		r.start(m)
		m.Role, m.Name, m.Count = "sender", fmt.Sprint("sender ", n), messages/inboxTeamSize
		r.start(m)
	}
	random, killed := testkit.Random(t), make(map[string]int)
	for n := range kills {
		at := (n + 1) * messages / (kills + 2)
		r.until(func() bool { return sent >= at })
		time.Sleep(time.Duration(random.Int64N(int64(10 * time.Millisecond)))) // at any point of their work
		if n%2 == 0 {
			killed[r.strike(random, consuming, 8)]++
		} else {
			killed[r.strike(random, daemons, 2)]++
		}
	}
	for n := range 4 {
		r.wait(fmt.Sprint("sender ", n))
	}
	r.start(member{Role: "listener", Name: "listener"})
	quietBy := time.Now().Add(5 * time.Minute)
	r.until(func() bool { return quiet || time.Now().After(quietBy) })
	if !quiet {
		t.Errorf("the team does not finish: %v", left)
	}
	r.end()
	st := need(embedded.Open(t.Context(), embedded.Options{Store: r.store, Backend: "local"}))
	defer st.Close()
	m := new(projector.Mail)
	must(t, inboxCatchUp(t.Context(), st, m))
	inboxCheckTeam(t, st, m, messages, func(i int) bool { return !commits(i) })
	t.Logf("killed were %v; %d messages were sent", killed, sent)
}

// teamBegins creates the agents of a team.
func teamBegins(t *testing.T, store string) {
	t.Helper()
	st := need(embedded.Open(t.Context(), embedded.Options{Store: store, Backend: "local"}))
	defer st.Close()
	for i := range inboxTeamSize {
		parent := ""
		if i > 0 {
			parent = inboxMember((i - 1) / 3)
		}
		inboxAgent(t, st, inboxMember(i), parent)
	}
}

// sendTeam sends the messages of some agents. Every fourth is a question. Some questions are overdue at once, so that
// answer and malfunction race, and some have plenty of time.
func sendTeam(ctx context.Context, m member) error {
	random, n := rand.New(rand.NewPCG(m.Seed, 3)), 0
	return m.ride(ctx, func(st *tally.Store) error {
		for ; n < m.Count*len(m.Agents); n++ {
			from, key := m.Agents[n%len(m.Agents)], n/len(m.Agents)
			msg := inboxNote(inboxMember(from), fmt.Sprint(key))
			msg.Key = fmt.Sprint(key)
			asked := (from + 1 + key) % inboxTeamSize
			if asked == from {
				asked = (from + 1) % inboxTeamSize
			}
			if key%4 == 0 {
				msg.Expects, msg.Deadline = "answer", teamBegan.Add(time.Duration(n)*time.Millisecond)
				if commits(asked) && (from/2+key/4)%2 == 0 { // an agent that commits does answer
					msg.Deadline = msg.Deadline.AddDate(100, 0, 0)
				}
			}
			to := inboxMember(asked)
			if _, err := tavern.InboxOf(st, to).Send(ctx, msg); err != nil {
				return err // the same message is sent again
			}
			speak(word{What: "sent"})
			if random.IntN(10) == 0 {
				if _, err := tavern.InboxOf(st, to).Send(ctx, msg); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// teamBegan is a time in the past: questions with this deadline are overdue when they are asked.
var teamBegan = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// commits reports whether an agent commits its work and its cursor together. Other agents first work and then move the
// cursor.
func commits(agent int) bool { return agent%2 == 0 }

// consumeTeam takes the messages of some agents until it is killed.
func consumeTeam(ctx context.Context, m member) error {
	chances := make(map[int]*rand.Rand) // they continue when the store is opened again: otherwise the same message would be the end each time
	for _, i := range m.Agents {
		chances[i] = rand.New(rand.NewPCG(m.Seed, uint64(i)))
	}
	return m.ride(ctx, func(st *tally.Store) error {
		inner, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		var all sync.WaitGroup
		for i, random := range chances {
			all.Go(func() { stop(consumeOf(inner, st, i, random)) })
		}
		all.Wait()
		return context.Cause(inner)
	})
}

func consumeOf(ctx context.Context, st *tally.Store, agent int, random *rand.Rand) error {
	for ctx.Err() == nil { // the other consumers end when the owner is gone
		in := tavern.InboxOf(st, inboxMember(agent))
		cursor, err := in.Cursor(ctx)
		if err != nil {
			return err
		}
		for m, err := range in.Follow(ctx, cursor) {
			switch {
			case err != nil:
			case commits(agent):
				err = inboxWorkOn(ctx, st, in, m, random)
			default:
				if _, err = st.AppendAll(ctx, inboxTurn(st, "work/"+in.Receiver(), m.ID)); err == nil {
					err = in.Seen(ctx, m.Offset)
				}
			}
			if errors.Is(err, log.ErrConflict) {
				break // an answer came too late: decide again
			}
			if err != nil {
				return err
			}
		}
	}
	return context.Cause(ctx)
}

// listenTeam returns when all messages were sent and seen, and each question was answered or reported.
func listenTeam(ctx context.Context, m member) error {
	return m.ride(ctx, func(st *tally.Store) error {
		mail := new(projector.Mail)
		for {
			if err := inboxCatchUp(ctx, st, mail); err != nil {
				return err
			}
			if inboxIsQuiet(mail) {
				speak(word{What: "quiet"})
				return nil
			}
			left := make(map[string]string) // for the error message if it does not finish
			for receiver, in := range mail.Inboxes {
				if n := len(in.Unread()); n > 0 {
					left[receiver] = fmt.Sprintf("%d unread behind %v", n, in.Cursor())
				}
			}
			left["open questions"] = fmt.Sprint(len(mail.Open()))
			speak(word{What: "left", State: left})
			time.Sleep(200 * time.Millisecond)
		}
	})
}
