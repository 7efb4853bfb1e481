package log

import (
	"sync"
	"time"
)

// timerPool reuses timers: an append needs two, and they hardly ever fire. Each log has its own pools, because a timer
// belongs to the clock under which it was made, and a test may have a clock of its own (testing/synctest).
type timerPool struct{ pool sync.Pool }

func (p *timerPool) start(d time.Duration) *time.Timer {
	if t, ok := p.pool.Get().(*time.Timer); ok {
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}

// stop returns a timer to the pool. Its channel is empty then.
func (p *timerPool) stop(t *time.Timer) {
	t.Stop()
	p.pool.Put(t)
}
