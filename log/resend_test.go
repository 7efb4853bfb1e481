package log

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/internal/nats/natswire"
)

// A message that nobody answers is sent again, with the same id: the next leader of a
// cluster answers. What is refused then is not known. A part of a batch is sent once.
func TestRequestIsSentAgain(t *testing.T) {
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
				t.Errorf("%+v, %v", ack, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(ids, slices.Repeat([]string{"id"}, c.sent)) {
				t.Errorf("sent %q", ids)
			}
		})
	}
}

// The first questions wait for a leader that may be gone, the later ones for a slow disk.
func TestPatience(t *testing.T) {
	total := time.Duration(0)
	for try := range 6 {
		total += patienceOf(try)
	}
	if total != away/2 || patienceOf(6) != away/4 || patienceOf(9) != 2*away || patienceOf(100) != patienceOf(9) {
		t.Errorf("%v, then %v, %v", total, patienceOf(6), patienceOf(9))
	}
}
