package log

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/internal/nats/natswire"
)

// dialServer runs a server in this process, and connects to it.
func dialServer(t *testing.T) *nats.Conn {
	t.Helper()
	s, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// A message without an answer is sent again with the same id: the next leader of a cluster answers. If that one is
// refused, the outcome is unknown. A part of an atomic batch is sent once.
func TestRequestIsSentAgain(t *testing.T) {
	nc := dialServer(t)
	for _, c := range []struct {
		name, answer string
		extra        []natswire.Field
		sent         int
		want         error
	}{
		{"B-33 the second is stored", `{"stream":"TALLY_1","seq":7}`, nil, 2, nil},
		{"B-33 the second is refused", `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 7"},"stream":"TALLY_1","seq":0}`, nil, 2, ErrUnknown},
		{"B-33 a batch", `{"stream":"TALLY_1","seq":7}`, []natswire.Field{{Name: headerBatchID, Value: "b"}}, 1, ErrUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			var ids []string
			sub, err := nc.Subscribe("to", func(m *nats.Msg) {
				mu.Lock()
				defer mu.Unlock()
				if ids = append(ids, m.Header.Get(headerMsgID)); len(ids) > 1 {
					_ = m.Respond([]byte(c.answer))
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Unsubscribe()
			wait := 20 * time.Second
			if c.sent == 1 {
				wait = 1500 * time.Millisecond
			}
			ack, err := connSender{nc, wait}.request(t.Context(), natswire.Publication{Subject: "to", Data: []byte("x"), Extra: append([]natswire.Field{{Name: headerMsgID, Value: "id"}}, c.extra...)})
			if !errors.Is(err, c.want) || c.want == nil && ack.Sequence != 7 {
				t.Errorf("got %+v, %v, want error %v", ack, err, c.want)
			}
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(ids, slices.Repeat([]string{"id"}, c.sent)) {
				t.Errorf("sent ids %q, want %d", ids, c.sent)
			}
		})
	}
}

// An atomic batch without an answer is sent again as a whole, as another batch with the same message ids. If the second
// is refused because of known ids, the first is stored.
func TestAtomicIsSentAgain(t *testing.T) {
	nc := dialServer(t)
	for _, c := range []struct {
		name, answer string
		want         error
	}{
		{"B-33 the second batch is stored", `{"stream":"TALLY_1","seq":7,"batch":%q,"count":2}`, nil},
		{"B-33 the ids of the second batch are known", `{"error":{"code":400,"err_code":10201,"description":"batch publish contains duplicate message id (a)"},"stream":"TALLY_1","seq":0,"batch":%q}`, ErrDuplicate},
		{"B-33 the second batch is refused", `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 7"},"stream":"TALLY_1","seq":0,"batch":%q}`, ErrUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			type part struct{ id, number, commit string }
			var mu sync.Mutex
			var parts []part
			var batches []string
			sub, err := nc.Subscribe("batch.to", func(m *nats.Msg) {
				mu.Lock()
				defer mu.Unlock()
				parts = append(parts, part{m.Header.Get(headerMsgID), m.Header.Get(headerBatchSequence), m.Header.Get(headerBatchCommit)})
				if id := m.Header.Get(headerBatchID); !slices.Contains(batches, id) {
					batches = append(batches, id)
				}
				if m.Header.Get(headerBatchCommit) != "" && len(batches) > 1 {
					_ = m.Respond(fmt.Appendf(nil, c.answer, batches[1]))
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Unsubscribe()
			message := func(id string) natswire.Publication {
				return natswire.Publication{Subject: "batch.to", Data: []byte("x"), Extra: append(make([]natswire.Field, 0, 6), natswire.Field{Name: headerMsgID, Value: id})}
			}
			receipt, err := connSender{nc, 20 * time.Second}.atomic(t.Context(), []natswire.Publication{message("a"), message("b")})
			if !errors.Is(err, c.want) || c.want == nil && receipt.Last != 7 {
				t.Errorf("got %+v, %v, want error %v", receipt, err, c.want)
			}
			mu.Lock()
			defer mu.Unlock()
			if once := []part{{"a", "1", ""}, {"b", "2", "1"}}; !slices.Equal(parts, slices.Repeat(once, 2)) || len(batches) != 2 {
				t.Errorf("sent messages %+v in batches %q, want the same two messages in two batches", parts, batches)
			}
		})
	}
}

// The first requests wait a short time, for a leader that may be gone. Later ones wait longer, for a slow disk.
func TestPatience(t *testing.T) {
	total := time.Duration(0)
	for try := range 6 {
		total += patienceOf(try)
	}
	if total != away/2 || patienceOf(6) != away/4 || patienceOf(9) != 2*away || patienceOf(100) != patienceOf(9) {
		t.Errorf("waits: %v in six tries, then %v, %v", total, patienceOf(6), patienceOf(9))
	}
}
