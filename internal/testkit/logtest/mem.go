// Package logtest holds what tests of an event log need and what passes them: the
// log in memory ([Mem]), a backend that fails on purpose ([Faulty]), and the
// suite that every backend must pass ([Run]). Mem is a backend in its own right,
// for programs whose events need not outlive them.
package logtest

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// dedupeWindow is how long Mem recognises ids by itself, as a server does.
const dedupeWindow = 2 * time.Minute

// MemConfig of a Mem. The zero value works.
type MemConfig struct {
	Now func() time.Time // default time.Now
}

// Mem is a log.Backend in memory. It checks and answers as a JetStream server
// with one replica does.
type Mem struct {
	now func() time.Time

	mu       sync.Mutex // guards the rest
	messages []log.Message
	damaged  map[events.Offset]bool
	subjects map[string][]events.Offset
	ids      map[string]seen
	order    []string      // of ids, oldest first
	grown    chan struct{} // closed when messages grew
	closed   bool
}

type seen struct {
	at   events.Offset
	when time.Time
}

var _ log.Backend = (*Mem)(nil)

// NewMem returns an empty log in memory.
func NewMem(c MemConfig) *Mem {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Mem{
		now:      c.Now,
		damaged:  make(map[events.Offset]bool),
		subjects: make(map[string][]events.Offset),
		ids:      make(map[string]seen),
		grown:    make(chan struct{}),
	}
}

// Damage makes the record at an offset unreadable, for tests.
func (m *Mem) Damage(at events.Offset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.damaged[at] = true
}

// Publish implements log.Backend.
func (m *Mem) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return log.Receipt{}, log.ErrUnavailable
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return log.Receipt{}, log.ErrUnavailable
	}
	now := m.now()
	m.forget(now)
	for _, w := range p.Writes {
		if last := m.last(w.Subject); w.Expect.Set && w.Expect.At != last {
			sub, _ := events.ParseNATS(w.Subject)
			return log.Receipt{}, &log.ConflictError{Subject: sub, Want: w.Expect.At, Have: last}
		}
	}
	for _, w := range p.Writes {
		for _, out := range w.Messages {
			if s, twice := m.ids[out.ID]; twice && out.ID != "" {
				if p.Messages() > 1 {
					return log.Receipt{}, log.ErrDuplicate
				}
				return log.Receipt{Last: s.at, Duplicate: true}, nil
			}
		}
	}
	for _, w := range p.Writes {
		for _, out := range w.Messages {
			at := events.Offset(len(m.messages) + 1)
			m.messages = append(m.messages, log.Message{
				Subject: w.Subject, Header: out.Fields(), Data: slices.Clone(out.Data), Offset: at, Time: now,
			})
			m.subjects[w.Subject] = append(m.subjects[w.Subject], at)
			m.ids[out.ID] = seen{at: at, when: now}
			m.order = append(m.order, out.ID)
		}
	}
	close(m.grown)
	m.grown = make(chan struct{})
	return log.Receipt{Last: events.Offset(len(m.messages))}, nil
}

// last is the offset of a subject's last message, 0 if it has none.
func (m *Mem) last(subject string) events.Offset {
	offsets := m.subjects[subject]
	if len(offsets) == 0 {
		return 0
	}
	return offsets[len(offsets)-1]
}

// forget drops the ids that are older than the window.
func (m *Mem) forget(now time.Time) {
	for len(m.order) > 0 {
		id := m.order[0]
		if now.Sub(m.ids[id].when) < dedupeWindow {
			return
		}
		delete(m.ids, id)
		m.order = m.order[1:]
	}
}

// Get implements log.Backend.
func (m *Mem) Get(_ context.Context, at events.Offset) (log.Message, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.get(at)
}

func (m *Mem) get(at events.Offset) (log.Message, error) {
	switch {
	case m.closed:
		return log.Message{}, log.ErrUnavailable
	case at < 1 || at > events.Offset(len(m.messages)) || m.damaged[at]:
		return log.Message{}, log.ErrNotFound
	}
	return clone(m.messages[at-1]), nil
}

// clone gives the reader bytes of its own.
func clone(msg log.Message) log.Message {
	msg.Header, msg.Data = maps.Clone(msg.Header), slices.Clone(msg.Data)
	return msg
}

// Last implements log.Backend.
func (m *Mem) Last(_ context.Context, subject string) (log.Message, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.get(m.last(subject)) // nothing is at 0
}

// State implements log.Backend.
func (m *Mem) State(context.Context) (log.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return log.State{}, log.ErrUnavailable
	case len(m.messages) == 0:
		return log.State{Now: m.now()}, nil
	}
	return log.State{First: 1, Last: events.Offset(len(m.messages)), Now: m.now()}, nil
}

// Subjects implements log.Backend.
func (m *Mem) Subjects(_ context.Context, filter string) (map[string]uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, log.ErrUnavailable
	}
	counts := make(map[string]uint64)
	for name, offsets := range m.subjects {
		if matches(filter, name) {
			counts[name] = uint64(len(offsets))
		}
	}
	return counts, nil
}

// Close implements log.Backend. What was stored is gone.
func (m *Mem) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		close(m.grown)
	}
	return nil
}

// Scan implements log.Backend.
func (m *Mem) Scan(_ context.Context, q log.Query) (log.Cursor, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, log.ErrUnavailable
	}
	c := &cursor{m: m, q: q, at: q.After, literal: !strings.Contains(q.Filter, "*")}
	c.announced = m.count(c)
	return c, nil
}

// count is the number of messages behind a cursor, damaged ones too.
func (m *Mem) count(c *cursor) uint64 {
	switch {
	case c.literal:
		offsets := m.subjects[c.q.Filter]
		return uint64(len(offsets) - behind(offsets, c.at))
	case c.q.Filter == events.SubjectFilter:
		return uint64(max(0, len(m.messages)-int(c.at)))
	}
	n := uint64(0)
	for name, offsets := range m.subjects {
		if matches(c.q.Filter, name) {
			n += uint64(len(offsets) - behind(offsets, c.at))
		}
	}
	return n
}

// behind returns the index of the first offset above at.
func behind(offsets []events.Offset, at events.Offset) int {
	i, _ := slices.BinarySearch(offsets, at+1)
	return i
}

// cursor reads a Mem. It holds no position but an offset, so that appending goes on.
type cursor struct {
	m         *Mem
	q         log.Query
	at        events.Offset
	literal   bool
	announced uint64
}

func (c *cursor) Announced(context.Context) (uint64, error) { return c.announced, nil }

func (c *cursor) Close() {}

func (c *cursor) Next(ctx context.Context) (log.Message, error) {
	for {
		if err := ctx.Err(); err != nil {
			return log.Message{}, err
		}
		msg, grown, err := c.step()
		if err != nil || msg.Offset != 0 {
			return msg, err
		}
		if !c.q.Live {
			return log.Message{}, io.EOF
		}
		select {
		case <-grown:
		case <-ctx.Done():
		}
	}
}

// step returns the next message there is, or a zero one and what to wait for.
func (c *cursor) step() (log.Message, <-chan struct{}, error) {
	m := c.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return log.Message{}, nil, log.ErrUnavailable
	}
	for {
		c.at = m.next(c)
		if c.at == 0 || !c.q.Live && c.at > c.q.Upto {
			c.at = max(c.q.Upto, events.Offset(len(m.messages)))
			return log.Message{}, m.grown, nil
		}
		if !m.damaged[c.at] {
			msg, err := m.get(c.at)
			return msg, nil, err
		}
	}
}

// next returns the offset of the next message behind a cursor, 0 if there is none.
func (m *Mem) next(c *cursor) events.Offset {
	if c.literal {
		offsets := m.subjects[c.q.Filter]
		if i := behind(offsets, c.at); i < len(offsets) {
			return offsets[i]
		}
		return 0
	}
	for at := c.at + 1; at <= events.Offset(len(m.messages)); at++ {
		if matches(c.q.Filter, m.messages[at-1].Subject) {
			return at
		}
	}
	return 0
}

// matches reports whether a subject is one of a filter's.
func matches(filter, subject string) bool {
	if filter == events.SubjectFilter {
		return true
	}
	for filter != "" || subject != "" {
		var f, s string
		f, filter, _ = strings.Cut(filter, ".")
		s, subject, _ = strings.Cut(subject, ".")
		if f != "*" && f != s {
			return false
		}
	}
	return true
}
