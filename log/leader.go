package log

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
)

// In a cluster any replica answers a direct get, and any replica may carry a consumer, even one that is behind. A
// reader must see every acknowledged message all the same: the leader of the stream has it, and only the leader answers
// this request.
//
// A leader that was cut off from the others answers as a leader until it hears of the next one, and does not know which
// messages it lacks. So its answer that a message is missing counts only if it has all messages that this process has
// been shown.

// leaderQuery asks for one message: the one at a sequence, the first of a filter from there on, or the last of a
// subject.
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

// atLeader returns the leader's message for a query, or ErrNotFound.
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

// mustReach fails if the server that answers does not have an offset yet.
func (s *segment) mustReach(ctx context.Context, at events.Offset) error {
	info, err := s.info(ctx)
	if err != nil {
		return err
	}
	if last := events.Offset(info.State.LastSeq); last < at {
		return behind(last, at)
	}
	return nil
}

func behind(have, want events.Offset) error {
	return fmt.Errorf("%w: the answering server has records up to %v, but the log has %v", ErrUnavailable, have, want)
}

// saw notes an offset that a cluster has shown to this process.
func (b *jetStream) saw(at events.Offset) {
	for seen := b.shown.Load(); uint64(at) > seen && !b.shown.CompareAndSwap(seen, uint64(at)); seen = b.shown.Load() {
	}
}

// caughtUp asks about the segment that is written to, until the server that answers has all messages that this process
// has been shown.
func (b *jetStream) caughtUp(ctx context.Context) (*jetstream.StreamInfo, error) {
	for try, began := 1, time.Now(); ; try++ {
		info, err := b.info(ctx)
		if err != nil {
			return nil, err
		}
		have, seen := events.Offset(info.State.LastSeq), events.Offset(b.shown.Load())
		if have >= seen {
			return info, nil
		}
		if time.Since(began) > away {
			return nil, behind(have, seen)
		}
		if err := pause(ctx, try); err != nil {
			return nil, err
		}
	}
}

// getAtLeader returns the message at an offset. If it is missing, it asks again once the leader is known to reach that
// offset: the caller takes a missing message for lost.
func (b *jetStream) getAtLeader(ctx context.Context, s *segment, at events.Offset) (Message, error) {
	q := leaderQuery{Seq: uint64(at)}
	m, err := b.atLeader(ctx, s.name, q)
	if !errors.Is(err, ErrNotFound) {
		return m, err
	}
	info, err := b.caughtUp(ctx)
	if err != nil {
		return Message{}, err
	}
	if at > events.Offset(info.State.LastSeq) {
		return Message{}, ErrNotFound
	}
	return b.atLeader(ctx, s.name, q)
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
		return Message{Subject: m.Subject, wire: string(m.Header), Data: m.Data, Offset: events.Offset(m.Seq), Time: m.Time}, nil
	}
}
