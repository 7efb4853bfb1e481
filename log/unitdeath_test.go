package log_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// mortal is a backend that stops before and after each publication. At one stop a test acts; from a later one on the
// process is dead: nothing is stored, and nobody gets an answer.
type mortal struct {
	shared
	act          func()
	actAt, dieAt int

	mu    sync.Mutex
	stops int
	dead  bool
}

// stop reports whether the process is dead.
func (m *mortal) stop() bool {
	m.mu.Lock()
	at := m.stops
	m.stops++
	m.dead = m.dead || at >= m.dieAt
	dead := m.dead
	m.mu.Unlock()
	if at == m.actAt && !dead {
		m.act()
		return m.isDead()
	}
	return dead
}

func (m *mortal) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

func (m *mortal) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	if m.stop() {
		return log.Receipt{}, log.ErrUnknown
	}
	receipt, err := m.shared.Publish(ctx, p)
	if m.stop() {
		return log.Receipt{}, log.ErrUnknown
	}
	return receipt, err
}

// While a unit is stored, others append and are acknowledged, and the process dies.
func TestDeathDuringUnits(t *testing.T) {
	t.Run("net U3 the next owner completes a unit or has nothing of it", func(t *testing.T) {
		for _, size := range []int{1, large} {
			for actAt := 0; ; actAt++ {
				dieAt, died := actAt+1, true
				for ; died; dieAt++ {
					if err := inBubble(t, func() (err error) { died, err = unitDeath(size, actAt, dieAt); return err }); err != nil {
						t.Fatalf("with %d bytes, others at stop %d, death at stop %d: %v", size, actAt, dieAt, err)
					}
				}
				if dieAt == actAt+2 { // the unit was over before
					break
				}
			}
		}
	})
}

// unitDeath has others append at one stop of a unit, and the process die at another. It reports whether it died.
func unitDeath(size, actAt, dieAt int) (died bool, err error) {
	a, b, c, d, aside, before := events.Session("", "a"), events.Session("", "b"), events.Session("", "c"), events.Session("", "d"), events.Session("", "aside"), events.Session("", "before")
	ctx, mem := context.Background(), memlog.New(memlog.Config{})
	m := &mortal{shared: shared{mem}, actAt: actAt, dieAt: dieAt}
	var mark events.Offset
	host := storing[2]
	host.Mark = func(at events.Offset) {
		if !m.isDead() {
			mark = at
		}
	}
	l, err := log.OpenOn(ctx, m, log.Config{Host: host, AckWait: 5 * time.Second})
	if err != nil {
		return false, err
	}
	defer l.Abandon()
	var beside, other, main error = errors.New("not called"), errors.New("not called"), nil
	var others sync.WaitGroup
	m.act = func() {
		_, beside = l.AppendBuffered(ctx, aside, log.Any, note("", "x"))
		others.Go(func() { _, other = l.AppendAll(ctx, unit("other", 1, c, d)...) })
		time.Sleep(1500 * time.Millisecond) // the mark is written meanwhile
	}
	_, early := l.AppendBuffered(ctx, before, log.Any, note("", "x")) // which the mark includes while the unit is stored
	_, main = l.AppendAll(ctx, unit("main", size, a, b)...)
	others.Wait()
	if died = m.isDead(); !died && (main != nil || actAt < m.stops && (beside != nil || other != nil)) {
		return died, fmt.Errorf("nobody died, and the calls end with %v, %v, %v", main, beside, other)
	}
	m.mu.Lock()
	m.dead = true
	m.mu.Unlock()
	next, err := log.OpenOn(ctx, shared{mem}, log.Config{Host: log.Host{Sync: host.Sync, Owner: true, Settled: mark}})
	if err != nil {
		return died, err
	}
	defer next.Close()
	for _, u := range []struct {
		subs  []events.Subject
		acked error
		size  int
		id    string
	}{{[]events.Subject{a, b}, main, size, "main"}, {[]events.Subject{c, d}, other, 1, "other"}} {
		n, err := countOf(next, u.subs...)
		if n != 4 && (n != 0 || u.acked == nil) || err != nil {
			return died, fmt.Errorf("the next owner has %d of 4 records of the unit %s, which had the answer %v; the mark is %v, %w", n, u.id, u.acked, mark, err)
		}
		acks, err := next.AppendAll(ctx, unit(u.id, u.size, u.subs...)...)
		if err != nil || acks[0].Duplicate != (n == 4) || acks[1].Duplicate != (n == 4) {
			return died, fmt.Errorf("the unit %s again, of which %d records are stored: %+v, %w", u.id, n, acks, err)
		}
	}
	if n, err := countOf(next, aside); n != 1 && beside == nil || err != nil {
		return died, fmt.Errorf("%d records of an append that was acknowledged, %v", n, err)
	}
	if n, err := countOf(next, before); n != 1 && early == nil || err != nil {
		return died, fmt.Errorf("%d records of the first append, which was acknowledged, %v", n, err)
	}
	return died, nil
}
