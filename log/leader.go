package log

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
)

// In a cluster any replica answers a direct get, and any one may carry a consumer,
// also one that is behind. What was acknowledged must be seen all the same: the
// leader of the stream has it, and only the leader answers this request.

// leaderQuery asks for one message: that at a sequence, the first of a filter from
// there on, or the last of a subject.
type leaderQuery struct {
	Seq  uint64 `json:"seq,omitempty"`
	Next string `json:"next_by_subj,omitempty"`
	Last string `json:"last_by_subj,omitempty"`
}

type leaderReply struct {
	Error   *jetstream.APIError `json:"error"`
	Message *struct {
		Subject string    `json:"subject"`
		Seq     uint64    `json:"seq"`
		Header  []byte    `json:"hdrs"`
		Data    []byte    `json:"data"`
		Time    time.Time `json:"time"`
	} `json:"message"`
}

// atLeader gives the message that the leader of a stream has, or ErrNotFound.
func (b *jetStream) atLeader(ctx context.Context, stream string, q leaderQuery) (Message, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return Message{}, err
	}
	return ask(ctx, func(ctx context.Context) (Message, error) {
		m, err := b.reads.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
		if err != nil {
			return Message{}, err
		}
		var reply leaderReply
		if err := json.Unmarshal(m.Data, &reply); err != nil {
			return Message{}, err
		}
		return reply.message()
	})
}

func (r leaderReply) message() (Message, error) {
	switch m := r.Message; {
	case r.Error != nil && r.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return Message{}, jetstream.ErrMsgNotFound
	case r.Error != nil:
		return Message{}, r.Error
	case m == nil:
		return Message{}, errors.New("the leader's answer has no message")
	default:
		out := Message{Subject: m.Subject, Data: m.Data, Offset: events.Offset(m.Seq), Time: m.Time}
		if len(m.Header) == 0 {
			return out, nil
		}
		header, err := nats.DecodeHeadersMsg(m.Header)
		if err != nil {
			return out, fmt.Errorf("the header of %v: %v", out.Offset, err)
		}
		out.Header = header
		return out, nil
	}
}
