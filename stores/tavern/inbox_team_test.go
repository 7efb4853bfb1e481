package tavern_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/tavern"
)

const inboxTeamSize = 20

func inboxMember(i int) string { return fmt.Sprintf("agent-%02d", i) }

func inboxMembers() (list []string) {
	for i := range inboxTeamSize {
		list = append(list, inboxMember(i))
	}
	return list
}

// Agents ask each other while acknowledgements get lost, consumers die, and two daemons look after overdue questions:
// each message is handled once and in order, each question is answered at most once, and each one without an answer is
// reported once.
func TestInboxTeamLaw(t *testing.T) {
	messages := inboxTeamSize * testkit.Times(1000/inboxTeamSize)
	if testkit.Soak() && !testing.Short() {
		messages = 10_000
	}
	st := storetest.Faulty(t, logtest.Sometimes(7, 12, logtest.Dropped, logtest.AckLost, logtest.Twice))
	for i := range inboxTeamSize {
		parent := ""
		if i > 0 {
			parent = inboxMember((i - 1) / 3)
		}
		inboxAgent(t, st, inboxMember(i), parent)
	}
	ctx, quiet := context.WithTimeout(t.Context(), 5*time.Minute)
	defer quiet()
	var senders, others sync.WaitGroup
	for i := range inboxTeamSize {
		senders.Go(func() { inboxTalk(t, st, i, messages/inboxTeamSize) })
		others.Go(func() { inboxConsume(ctx, t, st, inboxMember(i), rand.New(rand.NewPCG(uint64(i), 1))) })
	}
	for i := range 2 {
		others.Go(func() { inboxDaemon(ctx, t, st, rand.New(rand.NewPCG(uint64(i), 2))) })
	}
	senders.Wait()
	m := new(projector.Mail)
	for !inboxIsQuiet(m) && ctx.Err() == nil && !t.Failed() {
		time.Sleep(5 * time.Millisecond)
		must(t, inboxCatchUp(t.Context(), st, m))
	}
	quiet()
	others.Wait()
	if t.Failed() {
		return
	}
	must(t, inboxCatchUp(t.Context(), st, m))
	if !inboxIsQuiet(m) {
		t.Fatal("the team does not finish")
	}
	inboxCheckTeam(t, st, m, messages, func(int) bool { return false })
}

// inboxUnanswered is what a question expects that consumers leave to the daemons.
const inboxUnanswered = "no answer"

// inboxTalk sends an agent's messages to others, and repeats some. Every fourth is a question.
func inboxTalk(t *testing.T, st *tally.Store, from, n int) {
	random := rand.New(rand.NewPCG(uint64(from), 3))
	for key := range n {
		m := inboxNote(inboxMember(from), fmt.Sprint(key))
		m.Key = fmt.Sprint(key)
		if key%4 == 0 {
			m.Expects, m.Deadline = "answer", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			switch from % 4 {
			case 0: // answered in time, whatever the schedule
				m.Deadline = m.Deadline.AddDate(100, 0, 0)
			case 1: // overdue, whatever the schedule
				m.Expects = inboxUnanswered
			}
		}
		to := inboxMember((from + 1 + random.IntN(inboxTeamSize-1)) % inboxTeamSize)
		for again := true; again; again = random.IntN(10) == 0 {
			if _, err := tavern.InboxOf(st, to).Send(t.Context(), m); err != nil {
				t.Errorf("%s to %s: %v", m.From, to, err)
				return
			}
		}
	}
}

// inboxConsume takes messages and commits each with its work, and some with an answer, until ctx is done. Sometimes it dies and loses its caches.
func inboxConsume(ctx context.Context, t *testing.T, st *tally.Store, receiver string, random *rand.Rand) {
	for ctx.Err() == nil {
		in := tavern.InboxOf(st, receiver)
		cursor, err := in.Cursor(ctx)
		for m, ferr := range in.Follow(ctx, cursor) {
			if err = ferr; err == nil {
				err = inboxWorkOn(ctx, st, in, m, random)
			}
			if err != nil || random.IntN(20) == 0 {
				break // it died
			}
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, log.ErrConflict) && !errors.Is(err, log.ErrUnknown) {
			t.Errorf("%s: got the error %v", receiver, err)
			return
		}
	}
}

func inboxWorkOn(ctx context.Context, st *tally.Store, in *tavern.Inbox, m tavern.Message, random *rand.Rand) error {
	if random.IntN(20) == 0 {
		return log.ErrUnknown // it died before the append
	}
	seen, err := in.SeenPart(ctx, m.Offset)
	if err != nil {
		return err
	}
	parts := []log.Part{seen, inboxTurn(st, "work/"+in.Receiver(), m.ID)}
	if m.Expects != "" && m.Expects != inboxUnanswered && (m.Deadline.After(time.Now()) || random.IntN(2) == 0) { // half of the questions that another process may answer too
		_, reply, err := in.ReplyParts(ctx, m, tavern.Message{Body: tavern.Text("yes")})
		if err != nil {
			return err
		}
		parts = append(parts, reply...)
	}
	_, err = st.AppendAll(ctx, parts...)
	return err
}

// inboxDaemon decides on overdue questions, beside another one, until ctx is done.
func inboxDaemon(ctx context.Context, t *testing.T, st *tally.Store, random *rand.Rand) {
	m := new(projector.Mail)
	for ctx.Err() == nil {
		err := inboxCatchUp(ctx, st, m)
		for _, asked := range m.Open() {
			if err != nil || random.IntN(4) > 0 {
				continue
			}
			var d tavern.Decision
			if d, err = tavern.Overdue(st.Namespace(), asked, m.At, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)); err == nil {
				_, err = d.Make(ctx, st)
			}
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, log.ErrUnknown) {
			t.Errorf("overdue: %v", err)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// inboxCatchUp folds new records of a store.
func inboxCatchUp(ctx context.Context, st *tally.Store, m *projector.Mail) error {
	for rec, err := range st.Log.Read(ctx, events.Range{Namespace: st.Namespace(), Kind: events.KindSession, After: m.At}) {
		if err != nil {
			return err
		}
		m.Apply(projector.Decode(rec))
	}
	return nil
}

// inboxIsQuiet reports whether all messages were seen, and each question was answered or reported.
func inboxIsQuiet(m *projector.Mail) bool {
	for _, in := range m.Inboxes {
		if len(in.Unread()) > 0 {
			return false
		}
	}
	return len(m.Inboxes) > 0 && len(m.Open()) == 0
}

// inboxCheckTeam checks the result of a team. If repeats is true for an agent, it may have done its last work twice.
func inboxCheckTeam(t *testing.T, st *tally.Store, m *projector.Mail, messages int, repeats func(agent int) bool) {
	type question struct{ asker, asked, id string }
	sent, answers, told := make(map[question]events.Offset), make(map[question][]events.Offset), make(map[question][]events.Offset)
	asked := make(map[question]bool)
	for receiver, in := range m.Inboxes {
		var ids []string
		for _, l := range in.Letters {
			ids = append(ids, l.ID)
			switch {
			case l.Type == tavern.TypeMalfunction:
				q := question{receiver, l.About.Inbox, l.About.ID}
				told[q] = append(told[q], l.Offset)
			case l.ReplyTo != "":
				q := question{receiver, l.From, l.ReplyTo}
				answers[q] = append(answers[q], l.Offset)
			case l.Type != tavern.TypeNotice:
				q := question{l.From, receiver, l.ID}
				if sent[q] != 0 {
					t.Errorf("the question %v has two entries", q)
				}
				sent[q], asked[q] = l.Offset, l.Awaits()
			}
		}
		work := inboxWork(t, st, receiver)
		if repeats(slices.Index(inboxMembers(), receiver)) {
			work = slices.Compact(work)
		}
		if !slices.Equal(work, ids) {
			t.Errorf("%s worked on %d messages, want the %d that it got, in their order", receiver, len(work), len(ids))
		}
	}
	if len(sent) != messages {
		t.Errorf("got %d messages, want %d", len(sent), messages)
	}
	questions, answered := 0, 0
	for q, awaits := range asked {
		a, told := answers[q], told[q]
		inTime := len(a) > 0 && (len(told) == 0 || a[0] < told[0])
		if len(a) > 1 || len(told) > 1 || awaits && inTime != (len(told) == 0) || !awaits && len(a)+len(told) > 0 {
			t.Errorf("%v: answers at %v, malfunctions at %v", q, a, told)
		}
		if awaits {
			questions++
		}
		if inTime {
			answered++
		}
	}
	if answered == 0 || answered == questions {
		t.Errorf("of %d questions, %d were answered in time, want some and not all", questions, answered)
	}
}

// inboxWork lists the work that a consumer has committed.
func inboxWork(t *testing.T, st *tally.Store, receiver string) (ids []string) {
	s, err := st.Session("work/"+receiver).Load(t.Context(), "")
	must(t, err)
	for _, turn := range s.Threads[events.MainThread].Turns {
		var id string
		must(t, json.Unmarshal(turn.Raw, &id))
		ids = append(ids, id)
	}
	return ids
}
