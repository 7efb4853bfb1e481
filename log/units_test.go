package log_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// onlookers read a log in every way, while units are stored: a follower, and a reader of each subject's last record. No
// read sees a part of a unit, even if others have just made it look.
func onlookers(c *logtest.Crowd) (between func() error, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var found error
	see := func() {
		if err := c.Whole(); err != nil && found == nil {
			found = err
		}
	}
	go func() {
		for range c.Log.Follow(ctx, events.Range{}) {
			see()
		}
	}()
	return func() error {
		for _, id := range []string{"a", "b", "c"} {
			ctx, cancel := context.WithCancel(ctx)
			go func() {
				c.Log.Last(ctx, events.Session("", id))
				see()
			}()
			synctest.Wait()
			cancel()
			synctest.Wait()
			see()
		}
		return found
	}, cancel
}

// Units are stored side by side, and stopped at each of their records.
func TestUnitsSideBySide(t *testing.T) {
	t.Run("net U1 a reader sees no part of a unit", func(t *testing.T) {
		crowd(t, playing{subjects: 5, parts: 2, patient: true, owner: true, readers: onlookers})
	})
	t.Run("net U4 a read shows a unit when it is acknowledged", func(t *testing.T) { crowd(t, playing{subjects: 3, parts: 3, patient: true}) })
}

// moody is a backend that answers some publications as a test wants.
type moody struct {
	shared
	mu     sync.Mutex                    // held by answer
	answer func(p log.Publication) error // nil: it stores them
}

func (m *moody) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	m.mu.Lock()
	err := m.answer(p)
	m.mu.Unlock()
	if err != nil {
		return log.Receipt{}, err
	}
	return m.shared.Publish(ctx, p)
}

// ofUnit reports whether a publication begins a unit: it is a redo record, or all of the unit.
func ofUnit(p log.Publication) bool {
	return len(p.Writes) > 1 || strings.Contains(p.Writes[0].Subject, "."+events.KindUnit+".")
}

// unit returns an append of some events to each of two subjects.
func unit(id string, size int, subs ...events.Subject) (parts []log.Part) {
	for _, sub := range subs {
		parts = append(parts, log.Part{Subject: sub, Events: []events.Event{note(id, strings.Repeat("x", size)), note(id+"'", "x")}})
	}
	return parts
}

// countOf counts the records of subjects that every reader sees.
func countOf(l *log.Log, subs ...events.Subject) (n int, err error) {
	for _, sub := range subs {
		for _, failed := range l.Read(context.Background(), events.Range{Subject: sub}) {
			n, err = n+1, errors.Join(err, failed)
		}
	}
	return n, err
}

// soon runs a call, which may not take any time.
func soon(what string, call func() error) error {
	begun := time.Now()
	err := call()
	if took := time.Since(begun); took > 0 && err == nil {
		err = fmt.Errorf("it took %v", took)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Units are refused in every way, while others append elsewhere.
func TestRefusedUnits(t *testing.T) {
	t.Run("net U2 a refused unit holds nobody", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			host := storing[rapid.IntRange(1, 2).Draw(rt, "storing")]
			size := rapid.SampledFrom([]int{1, large}).Draw(rt, "size")
			want := rapid.SampledFrom([]error{log.ErrFull, log.ErrUnavailable, log.ErrBusy, log.ErrConflict, log.ErrTooLarge, log.ErrQuota}).Draw(rt, "answer")
			busy, units := rapid.IntRange(1, 80).Draw(rt, "how often"), rapid.IntRange(1, 3).Draw(rt, "units")
			if err := inBubble(t, func() error { return refuse(host, size, want, busy, units) }); err != nil {
				rt.Fatal(err)
			}
		})
	})
	t.Run("net W4 an append takes no time after others were refused", func(t *testing.T) {
		if err := inBubble(t, noTime); err != nil {
			t.Error(err)
		}
	})
	t.Run("net U2 a unit that is left behind by a log that closes holds nobody", func(t *testing.T) {
		for cut := range 4 {
			if err := inBubble(t, func() error { return closeBehind(cut) }); err != nil {
				t.Errorf("after %d records: %v", cut, err)
			}
		}
	})
}

// noTime fails if an append takes time because of the calls that failed before it.
func noTime() error {
	ctx, expire := context.WithTimeout(context.Background(), time.Minute)
	defer expire()
	refusal := error(nil)
	m := &moody{shared: shared{memlog.New(memlog.Config{})}, answer: func(log.Publication) error { return refusal }}
	l, err := log.OpenOn(ctx, m, log.Config{Host: storing[2]})
	if err != nil {
		return err
	}
	defer l.Abandon()
	a, b := events.Session("", "a"), events.Session("", "b")
	over, cancel := context.WithCancel(ctx)
	cancel()
	for i := range 50 {
		refusal = log.ErrFull
		for _, size := range []int{1, large} {
			_, err := l.AppendAll(ctx, unit("refused", size, a, b)...)
			_, gaveUp := l.AppendAll(over, unit("late", size, a, b)...)
			if !errors.Is(err, log.ErrFull) || !errors.Is(gaveUp, context.Canceled) || errors.Is(gaveUp, log.ErrUnknown) {
				return fmt.Errorf("a unit that is refused, and one that gave up before: %v, %v", err, gaveUp)
			}
		}
		_, err := l.Append(ctx, a, log.Any, note("", "x"))
		_, gaveUp := l.Append(over, a, log.Any, note("", "x"))
		if !errors.Is(err, log.ErrFull) || !errors.Is(gaveUp, context.Canceled) {
			return fmt.Errorf("an append that is refused, and one that gave up before: %v, %v", err, gaveUp)
		}
		refusal = nil
		if err := soon("an append", func() error {
			_, err := l.Append(ctx, a, log.Any, note("", "x"))
			return err
		}); err != nil {
			return err
		}
		if err := soon("a unit", func() error {
			_, err := l.AppendAll(ctx, unit(fmt.Sprint(i), 1, b, a)...)
			return err
		}); err != nil {
			return err
		}
	}
	return soon("the end", l.Close)
}

// refuse has units refused with an error, busy times one after the other if the backend is busy.
func refuse(host log.Host, size int, want error, busy, units int) error {
	a, b, aside := events.Session("", "a"), events.Session("", "b"), events.Session("", "aside")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // much longer than a busy backend makes a unit try
	defer cancel()
	refused, open := want, true
	m := &moody{shared: shared{memlog.New(memlog.Config{})}}
	m.answer = func(p log.Publication) error {
		if !open || !ofUnit(p) {
			return nil
		}
		if busy--; want == log.ErrBusy && busy < 0 {
			return nil
		}
		return refused
	}
	switch want {
	case log.ErrQuota: // before it comes to the backend
		host.Admit = func(_ context.Context, parts []log.Part) (func([]log.Ack, error), error) {
			if open && len(parts) > 1 {
				return nil, want
			}
			return nil, nil
		}
	case log.ErrBusy:
		want = log.ErrUnavailable
	}
	l, err := log.OpenOn(ctx, m, log.Config{Host: host, AckWait: time.Minute})
	if err != nil {
		return err
	}
	defer l.Abandon()
	outcomes, over := make([]error, units), make([]bool, units)
	for i := range units {
		parts := unit(fmt.Sprint(i), size, a, b)
		if want == log.ErrConflict {
			parts[1].Expect = log.At(7)
		}
		go func() {
			_, outcomes[i] = l.AppendAll(ctx, parts...)
			over[i] = true
		}()
	}
	appends := 0
	for synctest.Wait(); slices.Contains(over, false); synctest.Wait() {
		appends++
		if err := soon("an append elsewhere", func() error {
			_, err := l.Append(ctx, aside, log.Any, note("", "x"))
			return err
		}); err != nil {
			return err
		}
		if n, err := countOf(l, aside); n != appends || err != nil {
			return fmt.Errorf("%d of %d appends elsewhere can be read, %w", n, appends, err)
		}
		time.Sleep(time.Millisecond << min(appends, 8))
	}
	stored := 0
	for _, err := range outcomes {
		if err == nil && busy < 0 {
			stored++
		} else if !errors.Is(err, want) {
			return fmt.Errorf("a unit that is refused with %v returns %v", want, err)
		}
	}
	if n, err := countOf(l, a, b); n != 4*stored || err != nil {
		return fmt.Errorf("%d units are stored, and %d records, %v", stored, n, err)
	}
	open = false
	if err := soon("an append afterwards", func() error {
		_, err := l.Append(ctx, a, log.Any, note("", "x"))
		return err
	}); err != nil {
		return err
	}
	if err := soon("a unit afterwards", func() error {
		_, err := l.AppendAll(ctx, unit("afterwards", size, b, a)...)
		return err
	}); err != nil {
		return err
	}
	return soon("the end", l.Close)
}

// closeBehind closes a log while a unit of which cut records are stored gets no answer, and an append waits behind it.
func closeBehind(cut int) error {
	a, b, aside := events.Session("", "a"), events.Session("", "b"), events.Session("", "aside")
	ctx, mem := context.Background(), shared{memlog.New(memlog.Config{})}
	m := &moody{shared: mem, answer: func(p log.Publication) error {
		if p.Writes[0].Subject == aside.NATS() {
			return nil
		}
		if cut--; cut < 0 {
			return log.ErrUnknown
		}
		return nil
	}}
	l, err := log.OpenOn(ctx, m, log.Config{Host: storing[2], AckWait: time.Minute})
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	var unitErr, appendErr, lastErr error
	happens := cut > 0
	all.Go(func() { _, unitErr = l.AppendAll(ctx, unit("u", 1, a, b)...) })
	synctest.Wait()
	all.Go(func() { _, appendErr = l.Append(ctx, aside, log.Any, note("", "x")) })
	synctest.Wait()
	all.Go(func() { _, lastErr = l.Last(ctx, aside) })
	synctest.Wait()
	begun := time.Now()
	if err := l.Close(); err != nil {
		return err
	}
	all.Wait()
	if took := time.Since(begun); took > time.Second {
		return fmt.Errorf("the calls ended %v after the log was closed", took)
	}
	if !errors.Is(unitErr, log.ErrUnknown) || appendErr != nil && !errors.Is(appendErr, log.ErrUnknown) || lastErr != nil && !errors.Is(lastErr, log.ErrUnknown) {
		return fmt.Errorf("the unit %v, the append %v, the reader %v", unitErr, appendErr, lastErr)
	}
	next, err := log.OpenOn(ctx, mem, log.Config{Host: storing[2]})
	if err != nil {
		return err
	}
	defer next.Close()
	n, err := countOf(next, a, b)
	if beside, failed := countOf(next, aside); n != 0 && !happens || n != 4 && happens || beside != 1 || err != nil || failed != nil {
		return fmt.Errorf("the next owner has %d records of the unit, and %d beside it; %v, %v", n, beside, err, failed)
	}
	return next.Close()
}
