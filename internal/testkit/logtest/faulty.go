package logtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/tallylog/tally/log"
)

// Fault is what happens to a publication instead of the ordinary.
type Fault uint8

const (
	None    Fault = iota
	Dropped       // it did not happen, and nobody says so
	AckLost       // it happened, and nobody says so
	Late          // it happens after the next publication to any subject, and nobody says so
	Twice         // it happens, and a moment later once more
)

// String names the fault as tests do.
func (f Fault) String() string {
	return [...]string{"none", "dropped", "ackLost", "late", "twice"}[f]
}

// Faulty is a log.Backend that fails on purpose: Next is asked before each
// publication what is to happen to it.
type Faulty struct {
	log.Backend
	Next func() Fault

	mu   sync.Mutex // guards late, and keeps publications apart
	late []log.Publication
}

// Sometimes returns a Next that returns one of the faults in one case of n, and None
// otherwise, in an order that follows from the seed. It is safe for concurrent use.
func Sometimes(seed uint64, n int, faults ...Fault) func() Fault {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	return func() Fault {
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(n) != 0 {
			return None
		}
		return faults[random.IntN(len(faults))]
	}
}

// Publish implements log.Backend.
func (f *Faulty) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fault := f.Next()
	if fault == Dropped {
		return log.Receipt{}, unknown(fault)
	}
	if fault == Late {
		f.late = append(f.late, p)
		return log.Receipt{}, unknown(fault)
	}
	receipt, err := f.Backend.Publish(ctx, p)
	if fault == Twice && err == nil {
		f.Backend.Publish(ctx, p) // as a network may: whatever it says, nobody hears it
	}
	for _, old := range f.late {
		f.Backend.Publish(ctx, old)
	}
	f.late = nil
	if fault == AckLost && err == nil {
		return log.Receipt{}, unknown(fault)
	}
	return receipt, err
}

func unknown(f Fault) error { return fmt.Errorf("%w: %v", log.ErrUnknown, f) }
