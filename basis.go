package tally

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// basis is how far a handle knows its session. The zero value knows nothing.
type basis struct {
	mu   sync.Mutex
	at   events.Offset // read or written up to here: later appends are stale if this offset is rewound
	base events.Offset // the threads are known as of here; 0: they were not read
	own  int           // changes of the threads that the handle made since base
}

// offset returns the offset up to which the session is known.
func (k *basis) offset() events.Offset {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at
}

// read notes that the caller got the session as of an offset.
func (k *basis) read(at events.Offset) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at >= k.at {
		k.at, k.base, k.own = at, at, 0
	}
}

// wrote notes an append of the handle. If the append expected the threads to be as the caller knows them, they stay
// known.
func (k *basis) wrote(expect log.Expect, evs []events.Event, ack log.Ack) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case ack.Stale, expect != log.Any && !expect.Excludes(events.TypeSessionRewound):
		return // the append did not depend on the rewound records
	case isWhole(expect):
		if ack.Last > k.base {
			k.base, k.own = ack.Last, 0
		}
	case ack.Last > k.base:
		k.own += moves(evs)
	}
	k.at = max(k.at, ack.Last)
}

// isWhole reports whether an expectation covers all types that change threads.
func isWhole(expect log.Expect) bool {
	return !slices.ContainsFunc(projector.MoveTypes(), func(typ string) bool { return !expect.Excludes(typ) })
}

// moves counts the events that change threads.
func moves(evs []events.Event) int {
	n := 0
	for _, e := range evs {
		if slices.Contains(projector.MoveTypes(), e.Type) {
			n++
		}
	}
	return n
}

// Unchanged returns the expectation that nobody else changed the threads since the caller read or changed them through
// this handle. Use it for a decision that rests on the threads. If they were changed, this call or the append fails
// with an error that matches log.ErrConflict. If the threads were never read through the handle, it is log.Any.
func (s *Session) Unchanged(ctx context.Context) (log.Expect, error) {
	s.basis.mu.Lock()
	base, own := s.basis.base, s.basis.own
	s.basis.mu.Unlock()
	last := base
	switch {
	case base == 0:
		return log.Any, nil
	case own == 0:
		return log.Since(base, projector.MoveTypes()...), nil
	}
	for rec, err := range s.st.Log.Read(ctx, events.Range{Subject: s.sub, After: base}) {
		if err != nil {
			return log.Any, err
		}
		if slices.Contains(projector.MoveTypes(), rec.Type) {
			last, own = rec.Offset, own-1
		}
	}
	if own != 0 {
		return log.Any, &log.ConflictError{Subject: s.sub, Want: base, Have: last}
	}
	return log.Since(last, projector.MoveTypes()...), nil
}

// behind returns the expectation that the handle's basis is not rewound, for events that are appended in any case. It
// also returns the same events with the basis as an extension, to be appended if it is rewound.
func (s *Session) behind(evs []events.Event) (log.Expect, []events.Event) {
	at := s.basis.offset()
	if at == 0 || slices.ContainsFunc(evs, func(e events.Event) bool { return events.GuardOf(e.Type) == events.GuardSince }) {
		return log.Any, nil
	}
	stale := slices.Clone(evs)
	for i, e := range stale {
		stale[i] = e.WithExtension(events.ExtBasis, fmt.Sprintf("%020d", uint64(at)))
	}
	return log.Since(at, events.TypeSessionRewound), stale
}
