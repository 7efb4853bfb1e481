package embedded_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/tallylog/tally/internal/testkit"
)

// atomicStream is a stream that accepts atomic batches.
type atomicStream struct {
	t        testing.TB
	nc, side *nats.Conn // side: a second connection, for concurrent requests
	js       jetstream.JetStream
	stream   string
	prefix   string // begins the test's subjects
	replicas int
}

func mustBatches(t testing.TB, nc, side *nats.Conn, stream string, replicas int, atomic bool) *atomicStream {
	t.Helper()
	b := &atomicStream{t: t, nc: nc, side: side, stream: stream, prefix: stream + ".", replicas: replicas}
	var err error
	if b.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	for giveUp := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // until the nodes have found each other
		_, err = b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}, Replicas: replicas,
			Discard: jetstream.DiscardNew, AllowAtomicPublish: atomic}) // without direct gets: only the leader answers
		if err == nil && b.reached(nc) && b.reached(side) {
			return b
		}
		if time.Now().After(giveUp) {
			t.Fatalf("create the stream: %v", err)
		}
	}
}

// reached reports whether messages of a connection reach the stream's leader.
func (b *atomicStream) reached(nc *nats.Conn) bool {
	m, err := nc.Request(b.prefix+"reached", nil, time.Second)
	return err == nil && b.parse(m.Data).seq > 0
}

// message is a message of a batch. Its expectation is about its own subject, or about the subject that it guards.
type message struct {
	subject string
	expect  string // a sequence; empty: no expectation
	guard   string
	id      string
	header  map[string]string // additional headers
}

// batchAnswer is the server's reply to a commit, or to a single message.
type batchAnswer struct {
	code      int
	text      string
	seq       uint64
	count     int
	duplicate bool
	err       error // why there is no answer
}

func (a batchAnswer) String() string {
	switch {
	case a.err != nil:
		return a.err.Error()
	case a.code != 0:
		return fmt.Sprint(a.code, " ", a.text)
	}
	return fmt.Sprintf("%d messages, the last at %d, duplicate: %v", a.count, a.seq, a.duplicate)
}

func (b *atomicStream) encode(m message, more map[string]string) *nats.Msg {
	msg := &nats.Msg{Subject: b.prefix + m.subject, Header: nats.Header{}, Data: []byte(m.subject)}
	set := func(name, value string) {
		if value != "" {
			msg.Header[name] = []string{value}
		}
	}
	set("Nats-Expected-Last-Subject-Sequence", m.expect)
	set("Nats-Msg-Id", m.id)
	if m.guard != "" {
		set("Nats-Expected-Last-Subject-Sequence-Subject", b.prefix+m.guard)
	}
	for _, list := range []map[string]string{m.header, more} {
		for name, value := range list {
			set(name, value)
		}
	}
	return msg
}

// openBatch is a batch that was begun.
type openBatch struct {
	*atomicStream
	id   string
	sent int
}

func (b *atomicStream) begin(list ...message) *openBatch {
	b.t.Helper()
	c := &openBatch{b, nuid.Next(), 0}
	c.send(list...)
	return c
}

func (c *openBatch) next() map[string]string {
	c.sent++
	return map[string]string{"Nats-Batch-Id": c.id, "Nats-Batch-Sequence": strconv.Itoa(c.sent)}
}

func (c *openBatch) send(list ...message) {
	c.t.Helper()
	for _, m := range list {
		if err := c.nc.PublishMsg(c.encode(m, c.next())); err != nil {
			c.t.Fatal(err)
		}
	}
}

// commit sends the last message and commits the batch. end commits with a message that the server does not store.
func (c *openBatch) commit(m message) batchAnswer { return c.ask(c.last(m, "1")) }

func (c *openBatch) end(m message) batchAnswer { return c.ask(c.last(m, "eob")) }

func (c *openBatch) last(m message, how string) *nats.Msg {
	more := c.next()
	more["Nats-Batch-Commit"] = how
	return c.encode(m, more)
}

// all sends a batch and returns the answer to its commit.
func (b *atomicStream) all(list ...message) batchAnswer {
	b.t.Helper()
	return b.begin(list[:len(list)-1]...).commit(list[len(list)-1])
}

func (b *atomicStream) ask(m *nats.Msg) batchAnswer {
	reply, err := b.nc.RequestMsg(m, time.Minute)
	if err != nil {
		return batchAnswer{err: err}
	}
	return b.parse(reply.Data)
}

func (b *atomicStream) parse(data []byte) batchAnswer {
	var said struct {
		Seq       uint64
		Count     int
		Duplicate bool
		Error     struct {
			ErrCode     int `json:"err_code"`
			Description string
		}
	}
	err := json.Unmarshal(data, &said)
	return batchAnswer{said.Error.ErrCode, said.Error.Description, said.Seq, said.Count, said.Duplicate, err}
}

// put stores a single message and returns its sequence. It waits until the server no longer counts a message to the
// subject as under way: the server acknowledges a message a moment before that.
func (b *atomicStream) put(subject string) uint64 {
	b.t.Helper()
	a := b.ask(b.encode(message{subject: subject}, nil))
	if a.err != nil || a.code != 0 {
		b.t.Fatal(a)
	}
	if refused := b.atRest(func() batchAnswer {
		return b.ask(b.encode(message{subject: subject, expect: num(a.seq + 1)}, nil))
	}, 10071); refused.code != 10071 {
		b.t.Fatal(refused)
	}
	return a.seq
}

// atRest repeats send as long as three nodes answer that another message to the subject is under way, unless the test
// expects that code.
func (b *atomicStream) atRest(send func() batchAnswer, codes ...int) batchAnswer {
	for giveUp := time.Now().Add(testkit.Patience(time.Minute)); ; {
		a := send()
		if a.code != 10164 || b.replicas == 1 || slices.Contains(codes, a.code) || time.Now().After(giveUp) {
			return a
		}
		time.Sleep(time.Millisecond)
	}
}

func (b *atomicStream) lastSequence() uint64 {
	b.t.Helper()
	return untilAnswered(b.t, func(ctx context.Context) (uint64, error) {
		s, err := b.js.Stream(ctx, b.stream)
		if err != nil {
			return 0, err
		}
		return s.CachedInfo().State.LastSeq, nil
	})
}

// stored returns the sequences of a subject's messages.
func (b *atomicStream) stored(subject string) []uint64 {
	b.t.Helper()
	return untilAnswered(b.t, func(ctx context.Context) (list []uint64, err error) {
		s, err := b.js.Stream(ctx, b.stream)
		if err != nil {
			return nil, err
		}
		for from := uint64(1); ; from = list[len(list)-1] + 1 {
			m, err := s.GetMsg(ctx, from, jetstream.WithGetMsgSubject(b.prefix+subject))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return list, nil
			}
			if err != nil {
				return nil, err
			}
			list = append(list, m.Sequence)
		}
	})
}

// untilAnswered repeats ask until it returns an answer. While the servers elect a leader, they do not answer, for a
// time that is not bounded.
func untilAnswered[T any](t testing.TB, ask func(context.Context) (T, error)) T {
	t.Helper()
	for giveUp := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		answer, err := ask(ctx)
		cancel()
		if err == nil {
			return answer
		}
		if time.Now().After(giveUp) {
			t.Fatalf("no answer from the server: %v", err)
		}
	}
}

// mustStore fails unless the batch is stored, and nothing else with it.
func (b *atomicStream) mustStore(list ...message) batchAnswer {
	b.t.Helper()
	before := b.lastSequence()
	a := b.atRest(func() batchAnswer { return b.all(list...) })
	if a.code != 0 || a.err != nil || a.count != len(list) || a.seq != before+uint64(len(list)) || b.lastSequence() != a.seq {
		b.t.Errorf("%v: got %v, the last sequence was %d", list, a, before)
	}
	return a
}

// mustRefuse fails unless the server refuses the batch with a code of the list and stores nothing.
func (b *atomicStream) mustRefuse(list []message, codes ...int) batchAnswer {
	b.t.Helper()
	before := b.lastSequence()
	a := b.atRest(func() batchAnswer { return b.all(list...) }, codes...)
	if !slices.Contains(codes, a.code) || b.lastSequence() != before {
		b.t.Errorf("%v: got %v, want code %d; the last sequence was %d, is %d", list, a, codes, before, b.lastSequence())
	}
	return a
}

func num(seq uint64) string { return strconv.FormatUint(seq, 10) }

// pair sends two batches at the same time over two connections, and returns both answers.
func (b *atomicStream) pair(one, two []message) (both [2]batchAnswer) {
	other := *b
	other.nc = b.side
	first, second := b.begin(one[:len(one)-1]...), other.begin(two[:len(two)-1]...)
	var commits sync.WaitGroup
	commits.Go(func() { both[1] = second.commit(two[len(two)-1]) })
	both[0] = first.commit(one[len(one)-1])
	commits.Wait()
	return both
}

// answerCodes counts answers by their code.
type answerCodes map[string]int

func (c answerCodes) add(list ...batchAnswer) {
	for _, a := range list {
		switch {
		case a.err != nil:
			c[a.err.Error()]++
		default:
			c[strconv.Itoa(a.code)]++
		}
	}
}

// mustWinOnce fails unless the server stores exactly one of two batches, and refuses the other because of its
// expectation.
func (b *atomicStream) mustWinOnce(both [2]batchAnswer) {
	b.t.Helper()
	for i, a := range both {
		if lost := both[1-i].code; a.code == 0 && a.err == nil && (lost == 10071 || lost == 10164 && b.replicas > 1) {
			return
		}
	}
	b.t.Errorf("got %v and %v, want one batch stored", both[0], both[1])
}
