package log

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// Service is the owner's service. Other processes append through it, and learn the durable watermark.
type Service struct {
	l       *Log
	nc      *nats.Conn
	micro   micro.Service
	life    context.Context
	end     context.CancelFunc
	numbers *numbering
	pending sync.WaitGroup
	shows   atomic.Pointer[Shows]

	// gate is held for reading while a request is accepted: Close does not wait for a handler that runs.
	gate   sync.RWMutex
	closed bool // guarded by gate
}

// Shows waits until trees of files show the subjects as of an offset, or returns why they do not.
type Shows func(ctx context.Context, at events.Offset, subs ...events.Subject) error

// maxShow bounds how long an answer waits for trees. Clients wait 15 s for an answer, and send an append again after
// that.
const maxShow = 10 * time.Second

// Show makes answers to appends wait until trees of files show them.
func (s *Service) Show(shows Shows) { s.shows.Store(&shows) }

// shown waits for trees, unless the request has Unshown set.
func (s *Service) shown(a arrival, at events.Offset, subs ...events.Subject) *wireUnshown {
	shows := s.shows.Load()
	if shows == nil || a.unshown {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.life, maxShow)
	defer cancel()
	return wireUnshownOf((*shows)(ctx, at, subs...))
}

// Serve runs the service of the process that owns the store, on a connection that others reach. It is a NATS micro
// service, described in docs/wire.md. Requests to one subject are stored in the order in which they arrive.
func Serve(nc *nats.Conn, l *Log) (*Service, error) {
	s := &Service{l: l, nc: nc}
	s.numbers = &numbering{submit: s.submit, answer: s.answer, refuse: s.refuse, series: make(map[seriesKey]*series)}
	s.life, s.end = context.WithCancel(context.Background())
	var err error
	s.micro, err = micro.AddService(nc, micro.Config{Name: serviceName, Version: serviceVersion, Description: "appends to the event log, and says how far it is durable",
		Metadata: map[string]string{metaAPI: apiVersion, metaDurability: l.Durability().String()}})
	for _, e := range []struct {
		name, subject string
		answer        micro.HandlerFunc
	}{{"append", subjectAppend, s.append}, {"watermark", subjectWatermark, s.watermark}, {"holes", subjectHoles, s.holes}} {
		if err == nil {
			err = s.micro.AddEndpoint(e.name, e.answer, micro.WithEndpointSubject(e.subject))
		}
	}
	if err == nil {
		err = nc.Flush() // a process that hears of the owner from now on must find the service
	}
	if err != nil {
		s.end()
		return nil, fmt.Errorf("log: serve: %w", err)
	}
	if l.commit != nil {
		l.commit.announce(func(at events.Offset) {
			// A process that misses the notice asks.
			_ = nc.Publish(subjectMoved, mustMarshal(watermarkReply{at}))
		})
	}
	if l.roller != nil {
		tell := func() { _ = nc.Publish(subjectSegments, nil) } // a process that misses it asks
		l.roller.tell.Store(&tell)
	}
	return s, nil
}

// Close takes no more requests and returns when the ones under way are answered.
func (s *Service) Close() error {
	if s.l.commit != nil {
		s.l.commit.announce(nil)
	}
	if s.l.roller != nil {
		s.l.roller.tell.Store(nil)
	}
	err := s.micro.Stop()
	s.gate.Lock()
	s.closed = true
	s.gate.Unlock()
	s.numbers.close()
	s.pending.Wait()
	s.end()
	return errors.Join(err, s.nc.Flush())
}

var errOwnerEnds = fmt.Errorf("log: append: %w: the owner of the store is ending", ErrUnavailable)

// append queues a request for its subject, and answers it when its append is over. The service calls it for one request
// after the other.
func (s *Service) append(req micro.Request) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	a, err := decodeAppend(req.Data())
	a.reply = req.Reply()
	if err == nil && s.closed {
		err = errOwnerEnds
	}
	switch {
	case err != nil:
		s.refuse(a, err)
	case a.parts != nil:
		s.appendAll(a)
	case a.producer != "":
		s.numbers.take(a)
	default:
		s.answer(a, s.submit(a, nil))
	}
}

// appendAll appends a request of several parts, in the order of the requests to any of its subjects.
func (s *Service) appendAll(a arrival) {
	u, err := s.l.beginAll(a.parts)
	if err != nil {
		s.refuse(a, err)
		return
	}
	s.pending.Go(func() {
		acks, err := u.run(s.life)
		if err != nil {
			s.refuse(a, err)
			return
		}
		reply := appendReply{Durability: s.l.Durability().String(), Parts: make([]wireAck, len(acks))}
		var last events.Offset
		var subs []events.Subject
		for i, ack := range acks {
			reply.Parts[i] = wireAck{ack.First, ack.Last, ack.Duplicate}
			if ack.Last > 0 {
				last, subs = max(last, ack.Last), append(subs, a.parts[i].Subject)
			}
		}
		reply.Unshown = s.shown(a, last, subs...)
		s.respond(a.reply, reply)
	})
}

func (s *Service) submit(a arrival, k *link) *Pending {
	return s.l.appendAsync(s.life, a.sub, a.expect, a.buffered, a.events, k)
}

// answer answers a request when its append is over.
func (s *Service) answer(a arrival, done *Pending) {
	s.pending.Go(func() {
		ack, err := done.Wait(s.life)
		if err != nil {
			s.refuse(a, err)
			return
		}
		s.respond(a.reply, appendReply{First: ack.First, Last: ack.Last, Durability: ack.Durability.String(), Duplicate: ack.Duplicate || a.repeated,
			Unshown: s.shown(a, ack.Last, a.sub)})
	})
}

func (s *Service) refuse(a arrival, err error) {
	s.respond(a.reply, appendReply{Error: FailureOf(err)})
}

func (s *Service) watermark(req micro.Request) {
	at, err := s.l.Durable(s.life)
	if err != nil {
		s.respond(req.Reply(), appendReply{Error: FailureOf(err)})
		return
	}
	s.respond(req.Reply(), watermarkReply{at})
}

func (s *Service) holes(req micro.Request) {
	s.respond(req.Reply(), holesReply{append([]Hole{}, s.l.holes.after(0)...)})
}

// respond answers a request. An error is also put into the headers of micro services. The library's own method works
// only in handlers that have not returned yet.
func (s *Service) respond(to string, v any) {
	m := &nats.Msg{Subject: to, Data: mustMarshal(v)}
	if r, ok := v.(appendReply); ok && r.Error != nil {
		m.Header = nats.Header{micro.ErrorHeader: {headerText(r.Error.Message)}, micro.ErrorCodeHeader: {r.Error.Code}}
	}
	_ = s.nc.PublishMsg(m) // the requester may be gone
}

// headerText makes a message valid in a header.
func headerText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return '?'
		}
		return r
	}, s)
}

func mustMarshal(v any) []byte {
	data, err := rawjson.Marshal(v)
	if err != nil {
		// The text is not UTF-8: the standard encoder replaces the invalid bytes.
		if data, err = json.Marshal(v); err != nil {
			panic(fmt.Sprintf("log: %v", err))
		}
	}
	return data
}
