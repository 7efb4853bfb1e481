package log_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// oneByOne is a Backend at which publications wait. It notes if a publication comes while another one of its subject is
// under way.
type oneByOne struct {
	log.Backend
	over chan struct{} // closed at the end: publications are refused

	mu     sync.Mutex // guards the fields below
	under  []*passing
	broken error
}

// passing is a publication that waits.
type passing struct {
	subjects []string
	goes     chan error
}

func (b *oneByOne) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	k := &passing{goes: make(chan error)}
	for _, w := range p.Writes {
		k.subjects = append(k.subjects, w.Subject)
	}
	b.mu.Lock()
	for _, other := range b.under {
		if slices.ContainsFunc(k.subjects, func(sub string) bool { return slices.Contains(other.subjects, sub) }) {
			b.broken = fmt.Errorf("a publication of %v came during one of %v", k.subjects, other.subjects)
		}
	}
	b.under = append(b.under, k)
	b.mu.Unlock()
	select {
	case err := <-k.goes:
		if err != nil {
			return log.Receipt{}, err
		}
		return b.Backend.Publish(ctx, p)
	case <-b.over:
		return log.Receipt{}, log.ErrUnavailable
	}
}

func (b *oneByOne) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.under)
}

// let lets the i-th publication go on; err, unless nil, refuses it.
func (b *oneByOne) let(i int, err error) {
	b.mu.Lock()
	k := b.under[i]
	b.under = slices.Delete(b.under, i, i+1)
	b.mu.Unlock()
	k.goes <- err
	synctest.Wait()
}

func (b *oneByOne) isBroken() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.broken
}

// Of each subject one append at a time is being stored, whatever fails, is aborted or is withdrawn.
func TestOneAtATime(t *testing.T) {
	for seed := range testkit.Times(1600) {
		random := rand.New(rand.NewPCG(uint64(seed), 1))
		if err := inBubble(t, func() error { return playTurns(storing[seed%2], random) }); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func playTurns(host log.Host, random *rand.Rand) error {
	b := &oneByOne{Backend: memlog.New(memlog.Config{}), over: make(chan struct{})}
	l, err := log.OpenOn(context.Background(), b, log.Config{Host: host})
	if err != nil {
		return err
	}
	defer l.Abandon()
	defer close(b.over)
	subs := []events.Subject{events.Session("", "a"), events.Session("", "b")}
	var calls sync.WaitGroup
	var giveUps []context.CancelFunc
	for i := range 30 {
		ctx, giveUp := context.WithCancel(context.Background())
		defer giveUp()
		part := func(sub int) log.Part {
			return log.Part{Subject: subs[sub], Events: []events.Event{note(fmt.Sprint("e", i, ".", sub), "x")}}
		}
		first := random.IntN(2)
		switch what, n := random.IntN(8), b.waiting(); {
		case what < 4:
			p := l.AppendAsync(ctx, subs[first], log.Any, part(first).Events...)
			calls.Go(func() { _, _ = p.Wait(context.Background()) })
		case what == 4:
			calls.Go(func() { _, _ = l.AppendAll(ctx, part(first), part(1-first)) })
			giveUps = append(giveUps, giveUp)
		case what == 5 && len(giveUps) > 0:
			giveUps[random.IntN(len(giveUps))]()
		case n > 0 && random.IntN(3) == 0:
			b.let(random.IntN(n), nil)
		case n > 0:
			b.let(random.IntN(n), log.ErrFull)
		}
		if synctest.Wait(); b.isBroken() != nil {
			return b.isBroken()
		}
	}
	isOver := make(chan struct{})
	go func() {
		calls.Wait()
		close(isOver)
	}()
	for range 100 { // an append that is refused for a moment comes again
		for b.waiting() > 0 {
			b.let(0, nil)
		}
		select {
		case <-isOver:
			return errors.Join(b.isBroken(), l.Close())
		case <-time.After(time.Second):
		}
	}
	return errors.Join(b.isBroken(), errors.New("a call is never over"))
}
