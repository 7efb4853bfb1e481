// Package memlog holds a log in memory, for programs and tests whose events need not
// outlive the process. It passes the suite that every backend of package log passes.
package memlog

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

// dedupeWindow is how long a Backend recognises ids by itself, like a server.
const dedupeWindow = 2 * time.Minute

// Config of a Backend. The zero value works.
type Config struct {
	Now func() time.Time // default time.Now
}

// Backend is a log.Backend in memory. It checks and answers as a JetStream server
// with one replica does.
type Backend struct {
	now func() time.Time

	mu       sync.Mutex // guards the fields below
	messages []log.Message
	damaged  map[events.Offset]bool
	subjects map[string][]events.Offset
	ids      map[string]seen
	order    []string      // ids, oldest first
	grown    chan struct{} // closed when messages grew
	closed   bool
}

type seen struct {
	at   events.Offset
	when time.Time
}

var _ log.Backend = (*Backend)(nil)

// New returns an empty log in memory.
func New(c Config) *Backend {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Backend{
		now:      c.Now,
		damaged:  make(map[events.Offset]bool),
		subjects: make(map[string][]events.Offset),
		ids:      make(map[string]seen),
		grown:    make(chan struct{}),
	}
}

// Damage makes the record at an offset unreadable, for tests.
func (b *Backend) Damage(at events.Offset) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.damaged[at] = true
}

// Publish implements log.Backend.
func (b *Backend) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return log.Receipt{}, log.ErrUnavailable
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return log.Receipt{}, log.ErrUnavailable
	}
	now := b.now()
	b.forget(now)
	for _, w := range p.Writes {
		if last := b.last(w.Subject); w.Expect.Set && w.Expect.At != last {
			sub, _ := events.ParseNATS(w.Subject)
			return log.Receipt{}, &log.ConflictError{Subject: sub, Want: w.Expect.At, Have: last}
		}
	}
	for _, w := range p.Writes {
		for _, out := range w.Messages {
			if s, twice := b.ids[out.ID]; twice && out.ID != "" {
				if p.Messages() > 1 {
					return log.Receipt{}, log.ErrDuplicate
				}
				return log.Receipt{Last: s.at, Duplicate: true}, nil
			}
		}
	}
	for _, w := range p.Writes {
		for _, out := range w.Messages {
			at := events.Offset(len(b.messages) + 1)
			b.messages = append(b.messages, log.Message{
				Subject: w.Subject, Header: out.Fields(), Data: slices.Clone(out.Data), Offset: at, Time: now,
			})
			b.subjects[w.Subject] = append(b.subjects[w.Subject], at)
			b.ids[out.ID] = seen{at: at, when: now}
			b.order = append(b.order, out.ID)
		}
	}
	close(b.grown)
	b.grown = make(chan struct{})
	return log.Receipt{Last: events.Offset(len(b.messages))}, nil
}

// last returns the offset of a subject's last message, or 0.
func (b *Backend) last(subject string) events.Offset {
	offsets := b.subjects[subject]
	if len(offsets) == 0 {
		return 0
	}
	return offsets[len(offsets)-1]
}

// forget drops the ids that are older than the window.
func (b *Backend) forget(now time.Time) {
	for len(b.order) > 0 {
		id := b.order[0]
		if now.Sub(b.ids[id].when) < dedupeWindow {
			return
		}
		delete(b.ids, id)
		b.order = b.order[1:]
	}
}

// Get implements log.Backend.
func (b *Backend) Get(_ context.Context, at events.Offset) (log.Message, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.get(at)
}

func (b *Backend) get(at events.Offset) (log.Message, error) {
	switch {
	case b.closed:
		return log.Message{}, log.ErrUnavailable
	case at < 1 || at > events.Offset(len(b.messages)) || b.damaged[at]:
		return log.Message{}, log.ErrNotFound
	}
	return clone(b.messages[at-1]), nil
}

// clone returns a message whose bytes the reader may change.
func clone(msg log.Message) log.Message {
	msg.Header, msg.Data = maps.Clone(msg.Header), slices.Clone(msg.Data)
	return msg
}

// Last implements log.Backend.
func (b *Backend) Last(_ context.Context, subject string) (log.Message, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.get(b.last(subject)) // no message has offset 0
}

// State implements log.Backend.
func (b *Backend) State(context.Context) (log.State, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return log.State{}, log.ErrUnavailable
	case len(b.messages) == 0:
		return log.State{Now: b.now()}, nil
	}
	return log.State{First: 1, Last: events.Offset(len(b.messages)), Now: b.now()}, nil
}

// Subjects implements log.Backend.
func (b *Backend) Subjects(_ context.Context, filter string) (map[string]uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, log.ErrUnavailable
	}
	counts := make(map[string]uint64)
	for name, offsets := range b.subjects {
		if matches(filter, name) {
			counts[name] = uint64(len(offsets))
		}
	}
	return counts, nil
}

// Close implements log.Backend. It drops all messages.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		close(b.grown)
	}
	return nil
}

// Scan implements log.Backend.
func (b *Backend) Scan(_ context.Context, q log.Query) (log.Cursor, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, log.ErrUnavailable
	}
	c := &cursor{m: b, q: q, at: q.After, literal: !strings.Contains(q.Filter, "*")}
	c.announced = b.count(c)
	return c, nil
}

// count returns the number of messages behind a cursor, damaged ones included.
func (b *Backend) count(c *cursor) uint64 {
	switch {
	case c.literal:
		offsets := b.subjects[c.q.Filter]
		return uint64(len(offsets) - behind(offsets, c.at))
	case c.q.Filter == events.SubjectFilter:
		return uint64(max(0, len(b.messages)-int(c.at)))
	}
	n := uint64(0)
	for name, offsets := range b.subjects {
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

// cursor reads a Backend. It keeps only an offset, so appends can go on.
type cursor struct {
	m         *Backend
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

// step returns the next message, or a zero one and a channel to wait for.
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

// next returns the offset of the next message behind a cursor, or 0.
func (b *Backend) next(c *cursor) events.Offset {
	if c.literal {
		offsets := b.subjects[c.q.Filter]
		if i := behind(offsets, c.at); i < len(offsets) {
			return offsets[i]
		}
		return 0
	}
	for at := c.at + 1; at <= events.Offset(len(b.messages)); at++ {
		if matches(c.q.Filter, b.messages[at-1].Subject) {
			return at
		}
	}
	return 0
}

// matches reports whether a subject matches a filter.
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
