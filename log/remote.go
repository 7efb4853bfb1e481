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
	subs []*nats.Subscription
	lost context.Context // done when the connection is: the next owner is another server
	lose context.CancelFunc
	over chan nats.Status // of the connection; closed when nobody listens to it any more

	mu    sync.Mutex    // guards what follows
	safe  events.Offset // the highest watermark that the owner answered
	moved chan struct{} // closed when the owner says that it moved
}

// askAgain is how long a follower waits for the owner's word before it asks: a
// message may be lost.
const askAgain = 100 * time.Millisecond

// newRemote begins to watch a connection to the owner. When it is lost it is closed, and so
// is that for reads: else what was asked on them would wait for an answer that nobody gives.
func newRemote(nc, reads *nats.Conn, wait time.Duration) *remote {
	r := &remote{nc: nc, wait: wait, moved: make(chan struct{})}
	r.lost, r.lose = context.WithCancel(context.Background())
	r.over = nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	connected := nc.IsConnected() // if not, it was lost before anybody listened
	go func() {
		if connected {
			if _, heard := <-r.over; !heard {
				return
			}
		}
		r.lose()
		nc.Close()
		reads.Close()
	}()
	return r
}

// listen hears what the owner tells everybody.
func (r *remote) listen(b *jetStream) error {
	// The notice is a reason to ask, and its number is nothing to rely on: a read that
	// believed one too high would end at what a power cut can take.
	moved, err := r.nc.Subscribe(subjectMoved, func(*nats.Msg) { r.wake() })
	if err != nil {
		return err
	}
	begun, err := r.nc.Subscribe(subjectSegments, func(*nats.Msg) {
		ctx, cancel := context.WithTimeout(r.lost, r.wait)
		defer cancel()
		_ = b.refresh(ctx) // a read that needs the new segment looks for it, too
	})
	r.subs = append(r.subs, moved, begun)
	return err
}

func (r *remote) close() {
	r.lose()
	r.nc.RemoveStatusListener(r.over)
	for _, s := range r.subs {
		_ = s.Unsubscribe() // the connection may be gone, and the subscription with it
	}
}

// errLost says that the owner is gone. A process that opens the store again finds the next
// one, or becomes it.
func (r *remote) errLost() error {
	return fmt.Errorf("%w: the process that owned the store is gone: open it again", ErrUnavailable)
}

// hear notes a watermark that the owner answered.
func (r *remote) hear(at events.Offset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.safe = max(r.safe, at)
}

// wake has those who wait for the watermark ask for it.
func (r *remote) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.moved)
	r.moved = make(chan struct{})
}

// append asks the owner to append. No answer is ErrUnknown; that nobody serves the
// store is ErrUnavailable, and nothing was written.
func (r *remote) append(ctx context.Context, p *appending) (Ack, error) {
	data, err := encodeAppend(p)
	if err != nil {
		return Ack{}, err
	}
	reply, d, err := r.request(ctx, p.sub, p.name, data)
	if err != nil {
		return Ack{}, err
	}
	if d == Durable {
		r.hear(reply.Last)
	}
	return Ack{First: reply.First, Last: reply.Last, Durability: d, Duplicate: reply.Duplicate, Unshown: reply.Unshown.errorOf()}, nil
}

// appendAll asks the owner to append to several subjects.
func (r *remote) appendAll(ctx context.Context, parts []*appending) ([]Ack, error) {
	data, err := encodeAppendAll(parts)
	if err != nil {
		return nil, err
	}
	reply, d, err := r.request(ctx, parts[0].sub, nameOf(parts), data)
	if err != nil {
		return nil, err
	}
	if len(reply.Parts) != len(parts) {
		return nil, fmt.Errorf("append to %s: %w: %d of %d parts are acknowledged", nameOf(parts), ErrUnknown, len(reply.Parts), len(parts))
	}
	acks := make([]Ack, len(parts))
	for i, w := range reply.Parts {
		if acks[i] = (Ack{First: w.First, Last: w.Last, Duplicate: w.Duplicate}); w.Last == 0 {
			continue
		}
		acks[i].Unshown = reply.Unshown.errorOf()
		if acks[i].Durability = d; d == Durable {
			r.hear(w.Last)
		}
	}
	return acks, nil
}

// request has the owner store an append.
func (r *remote) request(ctx context.Context, sub events.Subject, name string, data []byte) (reply appendReply, d Durability, err error) {
	if limit := r.nc.MaxPayload(); int64(len(data)) > limit {
		return reply, d, &SizeError{Index: -1, What: "bytes of the request", Size: len(data), Max: int(limit)}
	}
	ctx, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	if err := r.ask(ctx, subjectAppend, data, &reply); err != nil {
		return reply, d, fmt.Errorf("append to %s: %w", sub.Name(), err)
	}
	if reply.Error != nil {
		return reply, d, reply.Error.errorOf(sub)
	}
	_ = d.UnmarshalText([]byte(reply.Durability)) // what is not understood promises least
	return reply, d, nil
}

// ask sends a request and reads the answer into v. What is under way when the owner
// dies is unknown at once: no answer can come any more.
func (r *remote) ask(ctx context.Context, subject string, data []byte, v any) error {
	if r.lost.Err() != nil {
		return r.errLost()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.lost, cancel)()
	m, err := r.nc.RequestWithContext(ctx, subject, data)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: nobody serves the store", ErrUnavailable)
	case errors.Is(err, nats.ErrReconnectBufExceeded): // it was not sent, and nobody has told yet why
		return r.errLost()
	case err != nil:
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
		if errors.Is(err, ErrUnknown) && ctx.Err() == nil {
			err = r.errLost()
		} else if errors.Is(err, ErrUnknown) {
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
		select {
		case <-moved:
		case <-time.After(askAgain):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
