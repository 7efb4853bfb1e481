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

// Meter counts the documents of a log, and refuses appends that would exceed a limit. Only this process may append to
// the log. A Meter is safe for concurrent use.
type Meter struct {
	dir      string // directory of the file of limits; "": limits are in memory
	maxValue int64
	src      Source
	work     chan struct{} // semaphore: one caller at a time reads the log
	again    *Again

	mu      sync.Mutex // guards what follows
	limits  Limits
	asked   time.Time   // when the file was last checked
	info    os.FileInfo // of the file that was read; nil if there was no file
	bad     error       // why the file could not be read
	count   *count      // nil if there are no limits
	started bool        // info is valid
}

// New returns the meter of the store in a directory; with "" limits are kept in memory. Values by reference have at
// most maxValue bytes; 0 means events.MaxValue.
func New(dir string, maxValue int64) *Meter {
	if maxValue == 0 {
		maxValue = events.MaxValue
	}
	return &Meter{dir: dir, maxValue: maxValue, limits: Limits{}, work: make(chan struct{}, 1), again: NewAgain(maxValue)}
}

// Watch sets the log. It must be called once, before the first append.
func (m *Meter) Watch(src Source) {
	m.src = src
	m.again.Watch(src)
}

// outcome is the outcome of an append.
type outcome int

const (
	notStored outcome = iota // the append was refused
	stored                   // by this call
	repeated                 // the events were in the log already
	unknown                  // there was no answer
)

// outcomeOf returns the outcome of an append from its acks or its error. The ack of a part without events is zero.
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

// Admit is a log.Config.Admit. If the append would exceed a limit, Admit returns a *log.QuotaError. It also enforces
// the bound of Again.
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

// exempt is the key of Exempt in a context.
type exempt struct{}

// Exempt returns a context whose appends no limit refuses. Their bytes count.
func Exempt(ctx context.Context) context.Context { return context.WithValue(ctx, exempt{}, true) }

// limited decides whether an append stays within the limits. The bytes that the append adds stay reserved until settle
// gets the outcome. At most one append per subject is in progress at a time.
func (m *Meter) limited(ctx context.Context, parts []log.Part) (settle func([]log.Ack, error), err error) {
	if !slices.ContainsFunc(parts, concerns) {
		return nil, nil
	}
	late := func(acks []log.Ack, err error) { m.uncounted(parts, outcomeOf(acks, err)) }
	if ctx.Value(exempt{}) != nil {
		return late, nil
	}
	var w *write
	for {
		c, err := m.counting()
		if err != nil {
			return nil, err
		}
		if c == nil {
			return late, nil
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

// concerns reports whether a part of an append may change the live documents.
func concerns(p log.Part) bool {
	return len(p.Events) > 0 && (Counts(p.Subject) || p.Subject.Kind == events.KindBlob)
}

// counting returns the count, or nil if there are no limits.
func (m *Meter) counting() (*count, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.look()
	return m.count, m.bad
}

// uncounted handles the outcome of an append that no limit applied to when it began.
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

// Recount reads documents and blobs again before the next decision, because the log has changed: records were erased.
func (m *Meter) Recount(subjects ...events.Subject) {
	parts := make([]log.Part, len(subjects))
	for i, sub := range subjects {
		parts[i].Subject = sub
	}
	m.uncounted(parts, repeated)
}

// write is an append in progress.
type write struct {
	next   map[events.Subject]head // heads of documents after the append
	blobs  []events.Subject        // blobs that the append writes
	held   sums                    // reserved bytes
	behind []*write                // earlier writes to the same documents without a known outcome
	since  time.Time               // when the outcome became doubtful
}

// plan computes the heads of documents after an append. An append with content that cannot be read is refused: the
// bytes would count later, when another append brings the content.
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

// reserve reserves the bytes of a write, or returns a *log.QuotaError. If the count is not exact, or was replaced,
// reserve returns false and the caller tries again.
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

// settle counts the bytes that were stored, and releases the reservation.
func (m *Meter) settle(c *count, w *write, o outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case c != m.count: // the count was replaced or dropped since
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
	case notStored: // perhaps it was never sent: the writes behind it stay doubtful
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

// exact waits until the count equals the log. It reads the whole log for a new count, and the marked documents for an
// old one. If the count was replaced, exact returns nil.
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

// read reads the parts of the log that the count does not know. One caller at a time does so.
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
		// Heads that were set during the read are newer than the result.
		if made && c.stale[d.sub] == unsure[d.sub] || !made && !c.fresh[d.sub] && c.stale[d.sub] == nil {
			c.set(d.sub, d.head, d.blobs)
		}
	}
	c.made, c.fresh = true, nil
	return nil
}

// SetLimit sets the limit of a scope for the store of this process; 0 removes it.
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

// checkBoth returns an *events.InvalidError for an invalid scope or limit.
func checkBoth(scope string, bytes int64) error {
	return errors.Join(CheckScope(scope), checkLimit(bytes))
}

// look reads the file of limits if it may have changed. The caller holds mu.
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

// refused returns the error of appends while the limits cannot be read.
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

// use sets the limits. The first limit starts a count. The caller holds mu.
func (m *Meter) use(limits Limits) {
	m.limits = limits
	switch {
	case len(limits) == 0:
		m.count = nil
	case m.count == nil:
		m.count = newCount()
	}
}

// Limits returns the limits that are set.
func (m *Meter) Limits() (Limits, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.look()
	return m.limits, m.bad
}

// Counts reports whether the meter has counted the log, so that Usage is cheap.
func (m *Meter) Counts() bool {
	c, err := m.counting()
	m.mu.Lock()
	defer m.mu.Unlock()
	return err == nil && c != nil && c.made
}

// Usage returns the live documents of the store, then of owners and kinds by name. Without limits it reads the log.
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
