package quota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/disk/statefile"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Meter counts the documents of a log that only this process appends to, and holds those
// who append to the limits. It is safe for concurrent use.
type Meter struct {
	dir      string // where the file of the limits is; "": they are in memory
	maxValue int64
	src      Source
	work     chan struct{} // holds a place for whoever reads the log
	again    *Again

	mu      sync.Mutex // guards what follows
	limits  Limits
	asked   time.Time   // when the file was looked at
	info    os.FileInfo // of the file that was read; nil: there was none
	bad     error       // why it could not be read
	count   *count      // nil: nothing is counted
	started bool        // info says something
}

// New returns the meter of the store in a directory; "" is one that lives in memory. Values
// by reference have at most maxValue bytes; 0 is events.MaxValue.
func New(dir string, maxValue int64) *Meter {
	if maxValue == 0 {
		maxValue = events.MaxValue
	}
	return &Meter{dir: dir, maxValue: maxValue, limits: Limits{}, work: make(chan struct{}, 1), again: NewAgain(maxValue)}
}

// Watch names the log. It is called once, before anything is appended.
func (m *Meter) Watch(src Source) {
	m.src = src
	m.again.Watch(src)
}

// outcome is what became of an append.
type outcome int

const (
	notStored outcome = iota // it was refused
	stored                   // by this call
	repeated                 // it was there before
	unknown                  // no answer came
)

// outcomeOf returns the outcome of an append that gave acks or an error. A part that writes
// nothing has an ack that says nothing.
func outcomeOf(acks []log.Ack, err error) outcome {
	switch {
	case errors.Is(err, log.ErrUnknown):
		return unknown
	case err != nil:
		return notStored
	case slices.ContainsFunc(acks, func(a log.Ack) bool { return a.Duplicate }):
		return repeated
	}
	return stored
}

// Admit is the Admit of a log.Config: it decides whether an append keeps to the limits, else
// it is a *log.QuotaError, and to the bound of Again.
func (m *Meter) Admit(ctx context.Context, parts []log.Part) (settle func([]log.Ack, error), err error) {
	again, err := m.again.Admit(ctx, parts)
	if err != nil {
		return nil, err
	}
	limits, err := m.limited(ctx, parts)
	switch {
	case again == nil:
		return limits, err
	case err != nil:
		again(nil, err)
		return nil, err
	case limits == nil:
		return again, nil
	}
	return func(acks []log.Ack, err error) {
		again(acks, err)
		limits(acks, err)
	}, nil
}

// limited decides whether an append keeps to the limits. What the append adds is reserved
// until settle is told the outcome. Of appends to one subject one is under way at a time.
func (m *Meter) limited(ctx context.Context, parts []log.Part) (settle func([]log.Ack, error), err error) {
	if !slices.ContainsFunc(parts, concerns) {
		return nil, nil
	}
	var w *write
	for {
		c, err := m.counting()
		if err != nil {
			return nil, err
		}
		if c == nil {
			return func(acks []log.Ack, err error) { m.uncounted(parts, outcomeOf(acks, err)) }, nil
		}
		if w == nil {
			if w, err = m.plan(ctx, parts); err != nil {
				return nil, err
			}
		}
		if err := m.exact(ctx, c); err != nil {
			return nil, err
		}
		if done, err := m.reserve(c, w); err != nil {
			return nil, err
		} else if done {
			return func(acks []log.Ack, err error) { m.settle(c, w, outcomeOf(acks, err)) }, nil
		}
	}
}

// concerns reports whether a part of an append may change what is live.
func concerns(p log.Part) bool {
	return len(p.Events) > 0 && (Counts(p.Subject) || p.Subject.Kind == events.KindBlob)
}

// counting returns the count, nil if there are no limits.
func (m *Meter) counting() (*count, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.look()
	return m.count, m.bad
}

// uncounted is told of an append that began when there were no limits.
func (m *Meter) uncounted(parts []log.Part, o outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count == nil {
		return
	}
	w := &write{next: make(map[events.Subject]head)}
	for _, p := range parts {
		switch {
		case Counts(p.Subject):
			w.next[p.Subject] = head{}
		case p.Subject.Kind == events.KindBlob:
			w.blobs = append(w.blobs, p.Subject)
		}
	}
	m.count.late(w, o)
}

// write is an append that is under way.
type write struct {
	next   map[events.Subject]head // what it makes of documents
	blobs  []events.Subject        // it writes to
	held   sums                    // what is reserved for it
	behind []*write                // doubtful ones, to documents of it
	since  time.Time               // when it became doubtful itself
}

// plan says what an append makes of documents. One whose content cannot be had is refused:
// it would be counted by whoever brings the content later.
func (m *Meter) plan(ctx context.Context, parts []log.Part) (*write, error) {
	w := &write{next: make(map[events.Subject]head)}
	for _, p := range parts {
		if p.Subject.Kind == events.KindBlob {
			w.blobs = append(w.blobs, p.Subject)
		}
		if !Counts(p.Subject) {
			continue
		}
		for _, e := range p.Events {
			h, decides, err := after(ctx, m.src, events.Record{Event: e}, m.maxValue)
			if damage, missing := errors.AsType[*events.DamageError](err); missing {
				return nil, &events.InvalidError{Field: events.ExtDataRef, Reason: fmt.Sprintf("what it refers to cannot be read: %v", damage.Err)}
			}
			if err != nil {
				return nil, err
			}
			if decides {
				w.next[p.Subject] = h
			}
		}
	}
	return w, nil
}

// reserve makes sure of the room for a write. It is not done if the count is not exact any
// more, or not the one that is kept.
func (m *Meter) reserve(c *count, w *write) (done bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count != c || !c.isExact() {
		return false, nil
	}
	adds := make(sums)
	for sub, h := range w.next {
		adds.add(sub, c.heads[sub], -1)
		adds.add(sub, h, 1)
	}
	c.takeOver(w)
	for _, scope := range slices.Sorted(maps.Keys(adds)) {
		limit, limited := m.limits[scope]
		want, have := adds[scope].bytes, c.live[scope].bytes+c.held[scope].bytes
		if limited && want > 0 && have+want > limit {
			c.doubts = append(c.doubts, w.behind...)
			c.hold(1, w.behind...)
			return false, &log.QuotaError{Scope: scope, Meter: "live", Limit: limit, Have: have, Want: have + want}
		}
	}
	w.reserve(adds)
	c.hold(1, w)
	return true, nil
}

// settle counts what was stored, and gives back what was reserved.
func (m *Meter) settle(c *count, w *write, o outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case c != m.count: // it is counted anew since, or not at all
		if m.count != nil {
			m.count.late(w, o)
		}
		return
	case o == unknown:
		w.since = time.Now()
		c.doubts = append(c.doubts, w)
		return
	}
	c.hold(-1, w)
	switch o {
	case notStored: // perhaps before it was sent: nothing is known of those before it either
		c.doubts = append(c.doubts, w.behind...)
		c.hold(1, w.behind...)
		return
	case repeated:
		c.touch(w)
	case stored:
		for sub, h := range w.next {
			c.set(sub, h, nil)
		}
		c.touchThose(w.blobs)
	}
	for _, d := range w.behind {
		c.touch(d)
	}
}

// exact returns when the count is that of the log: it is made, or what is not sure of it is
// read again. A count that is not kept any more is none.
func (m *Meter) exact(ctx context.Context, c *count) error {
	for {
		m.mu.Lock()
		is := c.isExact() || m.count != c
		m.mu.Unlock()
		if is {
			return nil
		}
		if err := m.read(ctx, c); err != nil {
			return fmt.Errorf("%w: what is live cannot be counted: %w", log.ErrUnavailable, err)
		}
	}
}

// read reads from the log what is not sure, one caller at a time.
func (m *Meter) read(ctx context.Context, c *count) error {
	select {
	case m.work <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-m.work }()
	m.mu.Lock()
	c.resolve()
	made, unsure := c.made, maps.Clone(c.stale)
	m.mu.Unlock()
	var list []measured
	var err error
	if made {
		list, err = measureAll(ctx, m.src, m.maxValue, slices.Collect(maps.Keys(unsure)))
	} else {
		list, err = readAll(ctx, m.src, m.maxValue)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range list {
		// What was stored meanwhile is known better.
		if made && c.stale[d.sub] == unsure[d.sub] || !made && !c.fresh[d.sub] && c.stale[d.sub] == nil {
			c.set(d.sub, d.head, d.blobs)
		}
	}
	c.made, c.fresh = true, nil
	return nil
}

// SetLimit sets the limit of a scope, 0 for none, for the store of this process.
func (m *Meter) SetLimit(_ context.Context, scope string, bytes int64) error {
	if err := checkBoth(scope, bytes); err != nil {
		return err
	}
	if m.dir != "" {
		if err := Set(m.dir, scope, bytes); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dir != "" {
		m.asked = time.Time{}
		m.look()
		return m.bad
	}
	limits := maps.Clone(m.limits)
	if limits[scope] = bytes; bytes == 0 {
		delete(limits, scope)
	}
	m.use(limits)
	return nil
}

// checkBoth returns an *events.InvalidError for what is no scope or no limit.
func checkBoth(scope string, bytes int64) error {
	return errors.Join(CheckScope(scope), checkLimit(bytes))
}

// look reads the file of the limits, if it may have changed. The caller holds mu.
func (m *Meter) look() {
	if m.dir == "" || time.Since(m.asked) < fresh {
		return
	}
	m.asked = time.Now()
	info, err := os.Stat(filepath.Join(m.dir, FileName))
	if errors.Is(err, os.ErrNotExist) {
		info, err = nil, nil
	}
	if err == nil && m.started && same(info, m.info) {
		return
	}
	limits, err := Load(m.dir)
	if err != nil {
		m.bad, m.started = refused(err), false
		return
	}
	m.info, m.bad, m.started = info, nil, true
	m.use(limits)
}

// refused says why appends are refused while the limits are not known.
func refused(err error) error {
	_, damaged := errors.AsType[*statefile.DamageError](err)
	switch {
	case damaged:
		return fmt.Errorf("%w: the limits of the store are not known, and documents are refused: %w", log.ErrDamaged, err)
	case errors.Is(err, log.ErrNewer):
		return err
	}
	return fmt.Errorf("%w: %w", log.ErrUnavailable, err)
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// use takes over limits. With the first one the count begins. The caller holds mu.
func (m *Meter) use(limits Limits) {
	m.limits = limits
	switch {
	case len(limits) == 0:
		m.count = nil
	case m.count == nil:
		m.count = newCount()
	}
}

// Limits are those that are set.
func (m *Meter) Limits() (Limits, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.look()
	return m.limits, m.bad
}

// Counts reports whether the meter has counted the log, so that it knows what is used.
func (m *Meter) Counts() bool {
	c, err := m.counting()
	m.mu.Lock()
	defer m.mu.Unlock()
	return err == nil && c != nil && c.made
}

// Usage returns what is used: of the store, then of owners and kinds, in the order of their
// names. Without limits the log is read for it.
func (m *Meter) Usage(ctx context.Context) ([]projector.Usage, error) {
	c, err := m.counting()
	if err != nil {
		return nil, err
	}
	if c == nil {
		return Read(ctx, m.src, m.maxValue, nil)
	}
	if err := m.exact(ctx, c); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return c.live.usage(m.limits), nil
}
