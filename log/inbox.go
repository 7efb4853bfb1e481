package log

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/events"
)

// clientInbox is an inbox on a connection of the NATS client.
type clientInbox struct {
	nc         *nats.Conn
	prefix     string
	live       bool
	reconnects uint64           // of the connection, when the consumer was made
	lost       chan nats.Status // the connection was lost or replaced
	sub        *nats.Subscription
	arrived    chan *nats.Msg
}

func newClientInbox(nc *nats.Conn, live bool, reconnects uint64) (*clientInbox, error) {
	in := &clientInbox{nc: nc, prefix: nc.NewInbox(), live: live, reconnects: reconnects, arrived: make(chan *nats.Msg, maxRequest+16)}
	var err error
	if in.sub, err = nc.ChanSubscribe(in.prefix+".*", in.arrived); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	in.lost = nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	return in, nil
}

func (in *clientInbox) request(n int, subject string, body []byte) (reply string, err error) {
	reply = in.prefix + "." + strconv.Itoa(n)
	if err := in.nc.PublishRequest(subject, reply, body); err != nil {
		return "", fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	return reply, nil
}

func (in *clientInbox) receive(ctx context.Context, moved <-chan struct{}) (incoming, error) {
	m, err := in.wait(ctx, moved)
	if err != nil {
		return incoming{}, err
	}
	return incomingOf(Message{Subject: m.Subject, Header: m.Header, Data: m.Data}, m.Reply, m.Size())
}

// wait returns the next message. If the connection was lost, the request is lost too, even after a reconnect.
func (in *clientInbox) wait(ctx context.Context, moved <-chan struct{}) (*nats.Msg, error) {
	select {
	case m := <-in.arrived:
		return m, nil
	default:
	}
	patience := silence
	if in.live {
		patience = 3 * heartbeat
	}
	if !in.nc.IsConnected() || in.nc.Stats().Reconnects != in.reconnects { // before the status listener existed
		return nil, in.errLost()
	}
	silent := time.NewTimer(patience)
	defer silent.Stop()
	select {
	case m := <-in.arrived:
		return m, nil
	case <-moved:
		return nil, errMoved
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-in.lost:
		return nil, in.errLost()
	case <-silent.C:
		return nil, fmt.Errorf("%w: no message from the server within %v", ErrUnavailable, patience)
	}
}

// errLost returns the error for a connection that was lost or replaced.
func (in *clientInbox) errLost() error {
	if in.nc.IsClosed() {
		return errHungUp
	}
	return fmt.Errorf("%w: the connection to the server was lost: try again, or open the store again", ErrUnavailable)
}

func (in *clientInbox) close() {
	in.nc.RemoveStatusListener(in.lost)
	in.sub.Unsubscribe()
}

// incomingOf parses what a consumer says about a message in its reply subject:
// $JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>[.<token>].
// A message without such a subject is a status of the server.
func incomingOf(m Message, reply string, size int) (incoming, error) {
	a := incoming{Message: m, size: size}
	if reply == "" {
		return a, nil
	}
	var tokens [12]string
	n := 0
	for token := range strings.SplitSeq(reply, ".") {
		if n < len(tokens) {
			tokens[n] = token
		}
		n++
	}
	i := 5 // index of the stream sequence
	if n >= 11 {
		i = 7
	}
	seq, err1 := strconv.ParseUint(tokens[i], 10, 64)
	number, err2 := strconv.ParseUint(tokens[i+1], 10, 64)
	ns, err3 := strconv.ParseInt(tokens[i+2], 10, 64)
	if n < 9 || tokens[0] != "$JS" || tokens[1] != "ACK" || err1 != nil || err2 != nil || err3 != nil || number == 0 {
		return a, fmt.Errorf("%w: a delivered message has the invalid reply subject %q", ErrUnavailable, reply)
	}
	a.Offset, a.Time, a.number = events.Offset(seq), time.Unix(0, ns).UTC(), number
	return a, nil
}
