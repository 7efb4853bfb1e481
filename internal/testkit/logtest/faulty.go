package logtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/tallylog/tally/log"
)

// Fault is the way in which a publication fails.
type Fault uint8

const (
	None    Fault = iota
	Dropped       // it is not stored, and no answer comes
	AckLost       // it is stored, but no answer comes
	Late          // it is stored after the next publication to any subject, and no answer comes
	Twice         // it is stored, and a moment later published again
)

// String returns the fault's name in tests.
func (f Fault) String() string {
	return [...]string{"none", "dropped", "ackLost", "late", "twice"}[f]
}

// Faulty is a log.Backend that fails on purpose. It calls Next before each publication to choose its fault.
type Faulty struct {
	log.Backend
	Next func() Fault

	mu   sync.Mutex // guards late, and separates publications
	late []log.Publication
}

// Sometimes returns a Next that returns one of the faults in one case of n, and None otherwise, in an order that
// depends on the seed. It is safe for concurrent use.
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
		f.Backend.Publish(ctx, p) // as on a network: its result is lost
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
