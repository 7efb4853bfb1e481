package log

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/tallylog/tally/events"
)

// Headers of an atomic batch: all of its messages are stored, next to each other,
// when the one that says commit arrives, or none is.
const (
	headerBatchID       = "Nats-Batch-Id"
	headerBatchSequence = "Nats-Batch-Sequence"
	headerBatchCommit   = "Nats-Batch-Commit"
)

// pubAck is the server's answer to a publication.
type pubAck struct {
	Stream    string `json:"stream"`
	Sequence  uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate"`
	Batch     string `json:"batch"`
	Count     int    `json:"count"`
	Error     *struct {
		ErrCode     int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
}

// request publishes a message and waits for the server's answer to it.
func (b *jetStream) request(ctx context.Context, m *nats.Msg) (pubAck, error) {
	reply, err := b.writes.RequestMsgWithContext(ctx, m)
	if err != nil {
		return pubAck{}, requestError(err)
	}
	var ack pubAck
	switch err := json.Unmarshal(reply.Data, &ack); {
	case err != nil:
		return pubAck{}, fmt.Errorf("%w: the answer is no ack: %v", ErrUnknown, err)
	case ack.Error != nil:
		return pubAck{}, answerError(ack.Error.ErrCode, ack.Error.Description)
	case ack.Sequence == 0 || events.Offset(ack.Sequence) > events.MaxOffset:
		return pubAck{}, fmt.Errorf("%w: an ack with the sequence %d", ErrUnknown, ack.Sequence)
	}
	return ack, nil
}

// publishBatch stores several messages as one atomic batch. Only the last of them
// asks for an answer: whatever is wrong with an earlier one, the server says then,
// and has stored nothing.
func (b *jetStream) publishBatch(ctx context.Context, s *segment, p Publication, expect Exactly) (Receipt, error) {
	id, n := nuid.Next(), len(p.Messages)
	for i, out := range p.Messages {
		exact := expect
		if i > 0 {
			exact = Exactly{} // the batch itself moves the subject on
		}
		m := message(s, p.Subject, out, exact)
		m.Header[headerBatchID] = []string{id}
		m.Header[headerBatchSequence] = []string{strconv.Itoa(i + 1)}
		if i < n-1 {
			// An error here leaves a batch without commit, which the server forgets.
			if err := b.writes.PublishMsg(m); err != nil {
				return Receipt{}, fmt.Errorf("%w: message %d of %d: %v", ErrUnavailable, i+1, n, err)
			}
			continue
		}
		// The commit point: from here on the batch may be stored, whatever happens.
		m.Header[headerBatchCommit] = []string{"1"}
		ack, err := b.request(ctx, m)
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
