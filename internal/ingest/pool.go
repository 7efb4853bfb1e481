package ingest

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/log"
)

// Bounds of the cached sessions. An id or a line takes about a hundred bytes.
const (
	maxSessions = 1024
	maxEntries  = 400_000
)

// pool caches recently used sessions. Each has one user at a time, identified by the session whose file is processed.
type pool struct {
	mu      sync.Mutex
	given   sync.Cond                         // signals that a session was released
	bySub   map[events.Subject]*list.Element  // of *pooled
	order   list.List                         // most recently taken first
	waits   map[events.Subject]events.Subject // waiting user -> session that it waits for
	entries int
}

type pooled struct {
	sub     events.Subject
	s       *sessionState  // nil: must be read
	user    events.Subject // zero: none
	entries int
}

func (p *pool) init() {
	p.given.L = &p.mu
	p.bySub, p.waits = make(map[events.Subject]*list.Element), make(map[events.Subject]events.Subject)
}

// errCircle reports a deadlock: the holder of the session waits for this caller.
var errCircle = errors.New("sessions wait for each other in a circle")

// take waits until a session has no user. Without wait, it returns errCircle if the session has one.
func (p *pool) take(sub, user events.Subject, wait bool) (*pooled, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		e := p.bySub[sub]
		if e == nil {
			e = p.order.PushFront(&pooled{sub: sub})
			p.bySub[sub] = e
		}
		p.order.MoveToFront(e)
		have := e.Value.(*pooled)
		if have.user == (events.Subject{}) {
			have.user = user
			return have, nil
		}
		if !wait || p.isCircle(have, user) {
			return nil, errCircle
		}
		p.waits[user] = sub
		p.given.Wait()
		delete(p.waits, user)
	}
}

// isCircle reports whether the user of a session waits, directly or indirectly, for a session of this user.
func (p *pool) isCircle(have *pooled, user events.Subject) bool {
	for have.user != user {
		e := p.bySub[p.waits[have.user]]
		if e == nil {
			return false
		}
		if have = e.Value.(*pooled); have.user == (events.Subject{}) {
			return false
		}
	}
	return true
}

// give releases a session and makes room. A spoiled session is read again at the next use.
func (p *pool) give(sub events.Subject, isSpoiled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	have := p.bySub[sub].Value.(*pooled)
	have.user = events.Subject{}
	p.entries -= have.entries
	if have.entries = 0; have.s == nil || isSpoiled || have.s.last == 0 {
		p.remove(have)
	} else {
		have.entries = len(have.s.ids)
		p.entries += have.entries
	}
	for e := p.order.Back(); e != nil && (len(p.bySub) > maxSessions || p.entries > maxEntries); {
		have, e = e.Value.(*pooled), e.Prev()
		if have.user == (events.Subject{}) {
			p.entries -= have.entries
			p.remove(have)
		}
	}
	p.given.Broadcast()
}

func (p *pool) remove(have *pooled) {
	p.order.Remove(p.bySub[have.sub])
	delete(p.bySub, have.sub)
}

// session returns the log's state of a session, for a user. The caller releases it with give.
func (in *Ingester) session(ctx context.Context, agent agents.Agent, sub, user events.Subject, wait bool) (*sessionState, error) {
	if err := sub.Validate(); err != nil {
		return nil, err
	}
	have, err := in.pool.take(sub, user, wait)
	if err != nil || have.s != nil {
		return haveSession(have), err
	}
	var s *sessionState
	if _, err = in.o.Log.Last(ctx, sub); errors.Is(err, log.ErrNotFound) {
		s, err = newSession(agent, sub), nil // the common case at the first use
	} else {
		s, err = load(ctx, in.o.Log, agent, sub, true)
	}
	if err != nil {
		in.pool.give(sub, true)
		return nil, fmt.Errorf("session %s: %w", sub.ID, err)
	}
	have.s = s
	return s, nil
}

func haveSession(have *pooled) *sessionState {
	if have == nil {
		return nil
	}
	return have.s
}

// give releases a session. After an error it is read again, because the log may differ from the cached state.
func (in *Ingester) give(s *sessionState, err error) { in.pool.give(s.sub, err != nil) }
