package log

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// remote is the owner of the store as another process sees it: a service to append
// through, and the word on how far the store is durable.
type remote struct {
	nc   *nats.Conn
	wait time.Duration // for one answer
	sub  *nats.Subscription

	mu    sync.Mutex    // guards what follows
	safe  events.Offset // the highest watermark heard of
	moved chan struct{} // closed when safe moves
}

// askAgain is how long a follower waits for the owner's word before it asks: a
// message may be lost.
const askAgain = 100 * time.Millisecond

func newRemote(nc *nats.Conn, wait time.Duration) (*remote, error) {
	r := &remote{nc: nc, wait: wait, moved: make(chan struct{})}
	var err error
	r.sub, err = nc.Subscribe(subjectMoved, func(m *nats.Msg) {
		var w watermarkReply
		if rawjson.Unmarshal(m.Data, &w) == nil {
			r.hear(w.Durable)
		}
	})
	return r, err
}

func (r *remote) close() {
	_ = r.sub.Unsubscribe() // the connection may be gone, and the subscription with it
}

func (r *remote) hear(at events.Offset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at > r.safe {
		r.safe = at
		close(r.moved)
		r.moved = make(chan struct{})
	}
}

// append asks the owner to append. No answer is ErrUnknown; that nobody serves the
// store is ErrUnavailable, and nothing was written.
func (r *remote) append(ctx context.Context, p *appending) (Ack, error) {
	data, err := encodeAppend(p)
	if err != nil {
		return Ack{}, err
	}
	if most := r.nc.MaxPayload(); int64(len(data)) > most {
		return Ack{}, &SizeError{Index: -1, What: "bytes of the request", Size: len(data), Max: int(most)}
	}
	ctx, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	var reply appendReply
	if err := r.ask(ctx, subjectAppend, data, &reply); err != nil {
		return Ack{}, fmt.Errorf("log: append %s: %w", p.name, err)
	}
	if reply.Error != nil {
		return Ack{}, reply.Error.errorOf(p.sub)
	}
	ack := Ack{First: reply.First, Last: reply.Last, Duplicate: reply.Duplicate}
	switch reply.Durability {
	case Durable.String():
		ack.Durability = Durable
		r.hear(reply.Last)
	case Replicated.String():
		ack.Durability = Replicated
	}
	return ack, nil
}

// ask sends a request and reads the answer into v.
func (r *remote) ask(ctx context.Context, subject string, data []byte, v any) error {
	m, err := r.nc.RequestWithContext(ctx, subject, data)
	if err != nil {
		return requestError(err)
	}
	if err := rawjson.Unmarshal(m.Data, v); err != nil {
		return fmt.Errorf("%w: the answer cannot be read: %v", ErrUnknown, err)
	}
	return nil
}

// durable implements horizon: it asks, since a read shall see what was acknowledged
// to anybody before it began.
func (r *remote) durable(ctx context.Context) (events.Offset, error) {
	ctx, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	var w watermarkReply
	if err := r.ask(ctx, subjectWatermark, nil, &w); err != nil {
		if errors.Is(err, ErrUnknown) {
			err = fmt.Errorf("%w: the owner of the store does not answer", ErrUnavailable)
		}
		return 0, err
	}
	r.hear(w.Durable)
	return w.Durable, nil
}

// await implements horizon: it asks, then listens, and asks again at times.
func (r *remote) await(ctx context.Context, at events.Offset) error {
	for {
		r.mu.Lock()
		safe, moved := r.safe, r.moved
		r.mu.Unlock()
		if safe >= at {
			return nil
		}
		safe, err := r.durable(ctx)
		if err != nil || safe >= at {
			return err
		}
		timer := time.NewTimer(askAgain)
		select {
		case <-moved:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}
