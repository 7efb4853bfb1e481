package log

import (
	"sync"
	"time"
)

// timers are reused: an append needs two, and they hardly ever fire.
var timers timerPool

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
