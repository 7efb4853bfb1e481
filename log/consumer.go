package log

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
)

// A consumer is read in requests for many messages, one at a time, small at first. The size of a request bounds the
// memory of a read: the server sends all of it at once. A larger message gets a request of its own.
const (
	firstRequest = 256
	maxRequest   = 8192
	someBytes    = 4 << 20  // bytes of one request
	maxBytes     = 16 << 20 // bytes of a request after one that brought nothing; above the largest possible message

	silence   = 10 * time.Second // after which a server that owes an answer counts as gone
	heartbeat = 2 * time.Second  // of a live request
	expiry    = 30 * time.Second // of a live request
)

// errMoved ends a live consumer: its segment gets no more messages.
var errMoved = errors.New("the log continues in another segment")

// deleteConsumer asks without waiting for an answer.
func (b *jetStream) deleteConsumer(stream, name string) {
	b.reads.PublishRequest("$JS.API.CONSUMER.DELETE."+stream+"."+name, b.reads.NewInbox(), nil)
}

// consumer reads one segment by a JetStream consumer on the server. The server deletes it by itself when its reader is
// gone. It is created by the first request.
type consumer struct {
	b          *jetStream
	q          Query
	segment    *segment
	name       string
	headers    bool   // messages come without their data
	late       uint64 // messages that this server did not have, but the leader had
	made       bool
	moved      <-chan struct{} // for a live consumer: closed when another segment is written to
	reconnects uint64          // of the connection, when the consumer was made
	announced  uint64
	got        uint64        // messages
	at         events.Offset // of the last one
	failed     error

	inbox  inbox                 // nil before the first request
	dial   func() (Login, error) // to a connection of the consumer's own; nil: use the client's
	reply  string                // subject of the request under way
	asks   int                   // requests so far
	asked  int                   // messages that the request under way may still bring
	room   int                   // bytes that it may still bring
	want   int                   // size of the next request
	barren int                   // requests in a row that brought nothing yet, including the one under way
}

// inbox is where the answers to a consumer's requests arrive.
type inbox interface {
	// request sends the n-th request, and returns the subject where its answers arrive.
	request(n int, subject string, body []byte) (reply string, err error)
	// receive waits for the next answer, which the server owes. On a live consumer it also returns errMoved.
	receive(ctx context.Context, moved <-chan struct{}) (incoming, error)
	close()
}

// incoming is a message of the stream, or a status of the server about a request.
type incoming struct {
	Message
	number uint64 // among the consumer's messages, from 1; 0: a status
	size   int    // as the server counts it, in bytes
}

func newConsumer(b *jetStream, s *segment, q Query) *consumer {
	return &consumer{b: b, q: q, segment: s, name: "tally-" + rand.Text(), at: q.After, want: firstRequest}
}

// open creates the consumer on the server.
func (c *consumer) open(ctx context.Context) error {
	if c.made {
		return nil
	}
	if c.b.reads.IsClosed() {
		return errHungUp
	}
	cfg := jetstream.ConsumerConfig{
		Name:              c.name,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       uint64(c.q.After) + 1,
		AckPolicy:         jetstream.AckNonePolicy,
		ReplayPolicy:      jetstream.ReplayInstantPolicy,
		InactiveThreshold: 3 * expiry,
		MemoryStorage:     true,
		Replicas:          1,
		HeadersOnly:       c.headers,
	}
	if c.q.Filter != events.SubjectFilter {
		cfg.FilterSubject = c.q.Filter
	}
	c.reconnects = c.b.reads.Stats().Reconnects
	c.made = true // an error may have created it too
	made, err := ask(ctx, func(ctx context.Context) (jetstream.Consumer, error) {
		return c.b.js.CreateConsumer(ctx, c.segment.name, cfg)
	})
	if err != nil {
		return err
	}
	c.announced = made.CachedInfo().NumPending
	return nil
}

// count returns the number of messages behind After.
func (c *consumer) count(ctx context.Context) (uint64, error) {
	if c.failed == nil {
		c.failed = c.open(ctx)
	}
	return c.announced + c.late, c.failed
}

func (c *consumer) Close() {
	if c.inbox != nil {
		c.inbox.close()
	}
	if c.made {
		c.b.deleteConsumer(c.segment.name, c.name)
	}
}

func (c *consumer) Next(ctx context.Context) (Message, error) {
	if c.failed != nil {
		return Message{}, c.failed
	}
	m, err := c.next(ctx)
	if err != nil {
		c.failed = err
	}
	return m, err
}

func (c *consumer) next(ctx context.Context) (Message, error) {
	if err := c.open(ctx); err != nil {
		return Message{}, err
	}
	for {
		if !c.q.Live && (c.at >= c.q.Upto || c.got >= c.announced || c.asked == 0 && c.barren > 1) {
			return c.rest(ctx)
		}
		if c.asked == 0 {
			if err := c.ask(); err != nil {
				return Message{}, err
			}
		}
		a, err := c.inbox.receive(ctx, c.moved)
		if err != nil {
			return Message{}, fmt.Errorf("after record %v: %w", c.at, err)
		}
		if a.number == 0 {
			if err := c.status(ctx, a.Message); err != nil {
				return Message{}, err
			}
			continue
		}
		c.asked--
		if c.room -= a.size; c.room == 0 {
			// A request that is exactly filled ends without a status. (nats-server 2.15.2, consumer.go: nextWaiting
			// ends it, loopAndGatherMsgs sends a status only if bytes are left.)
			c.asked = 0
		}
		c.barren = 0
		return c.take(a)
	}
}

// rest returns messages that the consumer's server did not have yet. Messages that it cannot read, the leader may be
// able to read.
func (c *consumer) rest(ctx context.Context) (Message, error) {
	if !c.segment.replicated || c.at >= c.q.Upto {
		return Message{}, io.EOF
	}
	m, err := c.b.atLeader(ctx, c.segment.name, leaderQuery{Seq: uint64(c.at) + 1, Next: c.q.Filter})
	if errors.Is(err, ErrNotFound) {
		err = c.segment.mustReach(ctx, c.q.Upto)
		m.Offset = c.q.Upto + 1
	}
	if err != nil {
		return Message{}, err
	}
	if m.Offset > c.q.Upto {
		c.at = c.q.Upto
		return Message{}, io.EOF
	}
	c.at = m.Offset
	// The message may have been announced but not delivered. The count then seems too high, so it is taken again.
	c.late++
	return m, nil
}

// take checks the number of a delivered message: a message that was lost on the way leaves a gap in the numbers.
func (c *consumer) take(a incoming) (Message, error) {
	c.got++
	if a.number != c.got || a.Offset <= c.at {
		return Message{}, fmt.Errorf("%w: record %v after %v has delivery number %d, want %d: the server lost or repeated a message", ErrUnavailable, a.Offset, c.at, a.number, c.got)
	}
	c.at = a.Offset
	if !c.q.Live && a.Offset > c.q.Upto {
		return Message{}, io.EOF
	}
	return a.Message, nil
}

// ask requests the next messages.
func (c *consumer) ask() error {
	if c.inbox == nil {
		if err := c.listen(); err != nil {
			return err
		}
	}
	req := struct {
		Batch     int           `json:"batch"`
		MaxBytes  int           `json:"max_bytes"`
		NoWait    bool          `json:"no_wait,omitempty"`
		Expires   time.Duration `json:"expires,omitempty"`
		Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
	}{Batch: c.want, MaxBytes: someBytes}
	if c.barren > 0 {
		req.MaxBytes = maxBytes // the next message may exceed the usual size
	}
	if c.q.Live {
		req.Expires, req.Heartbeat = expiry, heartbeat
	} else {
		req.NoWait = true // answer at the end of the stream, even if less came than was announced
		req.Batch = int(min(uint64(c.want), c.announced-c.got, uint64(c.q.Upto-c.at)))
	}
	if c.q.Want > 0 && c.got == 0 {
		req.Batch = min(req.Batch, c.q.Want)
	}
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	c.asked, c.room, c.want = req.Batch, req.MaxBytes, min(4*c.want, maxRequest)
	c.barren++
	c.asks++
	c.reply, err = c.inbox.request(c.asks, "$JS.API.CONSUMER.MSG.NEXT."+c.segment.name+"."+c.name, body)
	return err
}

// listen opens the inbox.
func (c *consumer) listen() error {
	if c.dial == nil {
		in, err := newClientInbox(c.b.reads, c.q.Live, c.reconnects)
		if err == nil {
			c.inbox = in
		}
		return err
	}
	login, err := c.dial()
	if err != nil {
		return fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	f, err := dialFeed(login)
	if err == nil {
		c.inbox = f
	}
	return err
}

// status handles a message that is a status of the server. A status of an earlier request no longer matters.
func (c *consumer) status(ctx context.Context, m Message) error {
	if m.Subject != c.reply {
		return nil
	}
	h := m.header()
	code, text := h.Get("Status"), h.Get("Description")
	switch code {
	case "100": // heartbeat: check whether the segment can still grow
		if c.b.owner {
			return nil // the process that began the segment knows
		}
		_, err := c.b.info(ctx)
		return err
	case "404", "408": // the request has ended
		c.asked = 0
		return nil
	case "409":
		if text == "Batch Completed" || text == "Message Size Exceeds MaxBytes" {
			c.asked = 0
			return nil
		}
	}
	return fmt.Errorf("%w: the server ended the read after record %v: %s %s", ErrUnavailable, c.at, code, text)
}
