package log

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natswire"
)

// Headers of a publication with which the server checks an expectation and an id.
const (
	headerMsgID       = "Nats-Msg-Id"
	headerStream      = "Nats-Expected-Stream"
	headerLastSubject = "Nats-Expected-Last-Subject-Sequence"
	headerLastOther   = "Nats-Expected-Last-Subject-Sequence-Subject" // the subject that is expected, if it differs from the message's
)

// Headers of an atomic batch: the server stores all of its messages, next to each other, when the one with the commit
// arrives, or it stores none.
const (
	headerBatchID       = "Nats-Batch-Id"
	headerBatchSequence = "Nats-Batch-Sequence"
	headerBatchCommit   = "Nats-Batch-Commit"
)

// pubAck is the server's answer to a publication.
type pubAck struct {
	Sequence  uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate"`
	Batch     string `json:"batch"`
	Count     int    `json:"count"`
	Error     *struct {
		ErrCode     int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
}

// plainAck parses the usual answer to a stored message, as the server writes it: {"stream":"TALLY_1","seq":42}. This is
// much cheaper than parsing JSON. It reports false for any other answer.
func plainAck(data []byte) (pubAck, bool) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	_, rest, ok2 := bytes.Cut(rest, []byte(`","seq":`))
	digits, ok3 := bytes.CutSuffix(rest, []byte("}"))
	seq, err := strconv.ParseUint(string(bytes.TrimSpace(digits)), 10, 64)
	return pubAck{Sequence: seq}, ok && ok2 && ok3 && err == nil && seq > 0 && events.Offset(seq) <= events.MaxOffset
}

// parseAck reads the server's answer.
func parseAck(data []byte) (pubAck, error) {
	if ack, ok := plainAck(data); ok {
		return ack, nil
	}
	var ack pubAck
	switch err := json.Unmarshal(data, &ack); {
	case err != nil:
		return pubAck{}, fmt.Errorf("%w: the answer is not an ack: %v", ErrUnknown, err)
	case ack.Error != nil:
		return pubAck{}, answerError(ack.Error.ErrCode, ack.Error.Description)
	case ack.Sequence == 0 || events.Offset(ack.Sequence) > events.MaxOffset:
		return pubAck{}, fmt.Errorf("%w: the ack has the invalid sequence %d", ErrUnknown, ack.Sequence)
	}
	return ack, nil
}

// A sender carries messages to the server.
type sender interface {
	// publish sends a message without asking for an answer.
	publish(natswire.Publication) error
	// request sends a message and waits for the server's answer to it.
	request(context.Context, natswire.Publication) (pubAck, error)
}

// connSender sends over a connection of the NATS client.
type connSender struct {
	nc   *nats.Conn
	wait time.Duration // for one answer
}

func (c connSender) message(p natswire.Publication) *nats.Msg {
	h := nats.Header(Outgoing{Header: p.Header}.Fields())
	for _, f := range p.Extra {
		h[f.Name] = []string{f.Value}
	}
	return &nats.Msg{Subject: p.Subject, Header: h, Data: p.Data}
}

func (c connSender) publish(m natswire.Publication) error {
	if c.nc.IsClosed() {
		return errHungUp
	}
	if err := c.nc.PublishMsg(c.message(m)); err != nil {
		return fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	return nil
}

func (c connSender) request(ctx context.Context, m natswire.Publication) (pubAck, error) {
	if c.nc.IsClosed() {
		return pubAck{}, errHungUp
	}
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	for try := 0; ; try++ {
		reply, err := c.once(ctx, m, try)
		if err == nil {
			ack, err := parseAck(reply.Data)
			if err != nil && try > 0 {
				err = sentAgain(err)
			}
			return ack, err
		}
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return pubAck{}, requestError(err)
		}
	}
}

// once sends a message, and waits one second for the answer, then two. A lost leader of a cluster never answers, and
// the next leader recognises the message by its id.
func (c connSender) once(ctx context.Context, m natswire.Publication, try int) (*nats.Msg, error) {
	again := time.Second << min(try, 1)
	if slices.ContainsFunc(m.Extra, func(f natswire.Field) bool { return f.Name == headerBatchID }) {
		again = c.wait // the next leader has no other part of the atomic batch
	}
	ctx, cancel := context.WithTimeout(ctx, again)
	defer cancel()
	return c.nc.RequestMsgWithContext(ctx, c.message(m))
}

// message addresses an outgoing message to a segment. A message for an earlier segment must not be stored in this one,
// which knows neither its id nor its expectation.
func message(s *segment, subject string, out Outgoing, exact Exactly) natswire.Publication {
	m := natswire.Publication{Subject: subject, Header: out.Header, Data: out.Data, Extra: make([]natswire.Field, 2, 6)}
	m.Extra[0], m.Extra[1] = natswire.Field{Name: headerMsgID, Value: out.ID}, natswire.Field{Name: headerStream, Value: s.name}
	if exact.Set {
		m.Extra = append(m.Extra, natswire.Field{Name: headerLastSubject, Value: strconv.FormatUint(uint64(exact.At), 10)})
	}
	return m
}

// publishAtomic stores several messages as one atomic batch. Only the last of them asks for an answer: if an earlier
// one is refused, the server stores nothing and says so in that answer.
func (b *jetStream) publishAtomic(ctx context.Context, s *segment, p Publication) (Receipt, error) {
	messages, err := atomicOf(s, p)
	if err != nil {
		return Receipt{}, err
	}
	if c, ok := b.writes.(connSender); ok {
		return c.atomic(ctx, messages)
	}
	return sendAtomic(ctx, b.writes, messages)
}

// atomic sends an atomic batch. If nobody answers, it sends the whole batch again with the same ids: the next leader of
// a cluster has no part of the first. It waits longer each time, as the batch may be large.
func (c connSender) atomic(ctx context.Context, messages []natswire.Publication) (Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	for try := 0; ; try++ {
		once, cancel := context.WithTimeout(ctx, 2*time.Second<<try)
		receipt, err := sendAtomic(once, c, messages)
		timedOut := once.Err() != nil && errors.Is(err, ErrUnknown)
		cancel()
		switch {
		case timedOut && ctx.Err() == nil:
			continue
		case try > 0 && err != nil && !errors.Is(err, ErrDuplicate):
			err = sentAgain(err)
		}
		return receipt, err
	}
}

// sendAtomic sends an atomic batch once.
func sendAtomic(ctx context.Context, to sender, messages []natswire.Publication) (Receipt, error) {
	id, n := nuid.Next(), len(messages)
	for i, m := range messages {
		m.Extra = append(m.Extra, natswire.Field{Name: headerBatchID, Value: id}, natswire.Field{Name: headerBatchSequence, Value: strconv.Itoa(i + 1)})
		if i < n-1 {
			// An error here leaves an atomic batch without commit, which the server forgets.
			if err := to.publish(m); err != nil {
				return Receipt{}, fmt.Errorf("message %d of %d: %w", i+1, n, err)
			}
			continue
		}
		// The commit point: from here on the atomic batch may be stored, whatever happens.
		m.Extra = append(m.Extra, natswire.Field{Name: headerBatchCommit, Value: "1"})
		ack, err := to.request(ctx, m)
		if err != nil {
			return Receipt{}, err
		}
		if ack.Batch != id || ack.Count != n {
			return Receipt{}, fmt.Errorf("%w: the ack is of batch %q with %d messages, want %q with %d", ErrUnknown, ack.Batch, ack.Count, id, n)
		}
		return Receipt{Last: events.Offset(ack.Sequence)}, nil
	}
	panic("log: a publication without messages")
}

// atomicOf returns the messages of an atomic batch. The first message to a subject carries the expectation: later ones
// follow messages of the batch itself. A message has room for one expectation, so a guard is carried by a message that
// has none.
func atomicOf(s *segment, p Publication) ([]natswire.Publication, error) {
	messages := make([]natswire.Publication, 0, p.Messages())
	var guards []Write
	var free []int // messages without an expectation
	for _, w := range p.Writes {
		if len(w.Messages) == 0 {
			guards = append(guards, w)
		}
		for i, out := range w.Messages {
			exact := w.Expect
			if i > 0 {
				exact = Exactly{}
			}
			if !exact.Set {
				free = append(free, len(messages))
			}
			messages = append(messages, message(s, w.Subject, out, exact))
		}
	}
	if len(guards) > len(free) {
		return nil, fmt.Errorf("%w: the append has %d guards, but only %d messages without an expectation to carry them", ErrGuard, len(guards), len(free))
	}
	for i, g := range guards {
		m := &messages[free[i]]
		m.Extra = append(m.Extra, natswire.Field{Name: headerLastSubject, Value: strconv.FormatUint(uint64(g.Expect.At), 10)}, natswire.Field{Name: headerLastOther, Value: g.Subject})
	}
	return messages, nil
}
