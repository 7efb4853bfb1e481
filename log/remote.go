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

// remote is the owner of the store, seen from another process: the service that appends, and the durable watermark.
type remote struct {
	nc   *nats.Conn
	wait time.Duration // for one answer
	subs []*nats.Subscription
	lost context.Context // done when the connection is lost: the next owner is another server
	lose context.CancelFunc
	over chan nats.Status // statuses of the connection; closed when listening ends

	mu    sync.Mutex    // guards the fields below
	safe  events.Offset // the highest watermark that the owner has answered
	moved chan struct{} // closed when the owner reports that it moved
}

// askAgain is how long a follower waits for the owner's notice before it asks: a notice may be lost.
const askAgain = 100 * time.Millisecond

// newRemote starts to watch the connections to the owner. If the connection is lost, it closes both: requests on the
// one for reads would never be answered.
func newRemote(nc, reads *nats.Conn, wait time.Duration) *remote {
	r := &remote{nc: nc, wait: wait, moved: make(chan struct{})}
	r.lost, r.lose = context.WithCancel(context.Background())
	r.over = nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	connected := nc.IsConnected() // if not, it was lost before the listener existed
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

// listen subscribes to the owner's notices.
func (r *remote) listen(b *jetStream) error {
	// The notice only makes the process ask. Its number is not used: if it were too high, a read would end at a record
	// that a power cut can take.
	moved, err := r.nc.Subscribe(subjectMoved, func(*nats.Msg) { r.wake() })
	if err != nil {
		return err
	}
	begun, err := r.nc.Subscribe(subjectSegments, func(*nats.Msg) {
		ctx, cancel := context.WithTimeout(r.lost, r.wait)
		defer cancel()
		_ = b.refresh(ctx) // a read that needs the new segment refreshes too
	})
	r.subs = append(r.subs, moved, begun)
	return err
}

func (r *remote) close() {
	r.lose()
	r.nc.RemoveStatusListener(r.over)
	for _, s := range r.subs {
		_ = s.Unsubscribe() // the connection may be closed, and the subscription with it
	}
}

// errOwnerLost reports that the owner has ended. A process that opens the store again finds the next owner, or becomes
// it.
var errOwnerLost = fmt.Errorf("%w: the process that owned the store is gone: open the store again", ErrUnavailable)

// hear notes a watermark that the owner has answered.
func (r *remote) hear(at events.Offset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.safe = max(r.safe, at)
}

// wake makes waiters ask for the watermark.
func (r *remote) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.moved)
	r.moved = make(chan struct{})
}

// append sends an append to the owner. If no answer comes, the error is ErrUnknown. If no owner serves the store, it is
// ErrUnavailable, and nothing was written.
func (r *remote) append(ctx context.Context, p *appending) (Ack, error) {
	data, err := encodeAppend(p)
	if err != nil {
		return Ack{}, err
	}
	reply, d, err := r.request(ctx, p.sub, p.sub.Name(), data)
	if err != nil {
		return Ack{}, err
	}
	if d == Durable {
		r.hear(reply.Last)
	}
	return Ack{First: reply.First, Last: reply.Last, Durability: d, Duplicate: reply.Duplicate, Unshown: reply.Unshown.errorOf()}, nil
}

// appendAll sends an append to several subjects to the owner.
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

// request sends an encoded append to the owner and returns its reply. Errors name the append by name. If the reply's
// error names no subject, it is about sub.
func (r *remote) request(ctx context.Context, sub events.Subject, name string, data []byte) (reply appendReply, d Durability, err error) {
	if limit := r.nc.MaxPayload(); int64(len(data)) > limit {
		return reply, d, &SizeError{Index: -1, What: "bytes of the request", Size: len(data), Max: int(limit)}
	}
	ctx, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	if err := r.ask(ctx, subjectAppend, data, &reply); err != nil {
		return reply, d, fmt.Errorf("append to %s: %w", name, err)
	}
	if reply.Error != nil {
		return reply, d, reply.Error.errorOf(sub)
	}
	_ = d.UnmarshalText([]byte(reply.Durability)) // an unknown value leaves the zero value, which promises the least
	return reply, d, nil
}

// ask sends a request and decodes the answer into v. If the owner ends meanwhile, the error is ErrUnknown at once: no
// answer can come.
func (r *remote) ask(ctx context.Context, subject string, data []byte, v any) error {
	if r.lost.Err() != nil {
		return errOwnerLost
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.lost, cancel)()
	m, err := r.nc.RequestWithContext(ctx, subject, data)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: no process serves the store", ErrUnavailable)
	case errors.Is(err, nats.ErrReconnectBufExceeded): // it was not sent, and the status has not arrived yet
		return errOwnerLost
	case err != nil:
		return requestError(err)
	}
	if err := rawjson.Unmarshal(m.Data, v); err != nil {
		return fmt.Errorf("%w: the owner's answer is invalid: %v", ErrUnknown, err)
	}
	return nil
}

// durable implements horizon. It asks the owner: a read has to show every record that was acknowledged to any process
// before it began.
func (r *remote) durable(ctx context.Context) (events.Offset, error) {
	ctx, cancel := context.WithTimeout(ctx, r.wait)
	defer cancel()
	var w watermarkReply
	if err := r.ask(ctx, subjectWatermark, nil, &w); err != nil {
		if errors.Is(err, ErrUnknown) && ctx.Err() == nil {
			err = errOwnerLost
		} else if errors.Is(err, ErrUnknown) {
			err = fmt.Errorf("%w: the owner of the store does not answer", ErrUnavailable)
		}
		return 0, err
	}
	r.hear(w.Durable)
	return w.Durable, nil
}

// await implements horizon: it asks, then waits for notices, and asks again from time to time.
func (r *remote) await(ctx context.Context, at events.Offset, _ *era) error {
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
