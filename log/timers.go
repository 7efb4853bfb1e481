package log

import (
	"sync"
	"time"
)

// timers are used again: an append needs two, and nearly none ever fires.
var timers timerPool

type timerPool struct{ pool sync.Pool }

func (p *timerPool) start(d time.Duration) *time.Timer {
	if t, ok := p.pool.Get().(*time.Timer); ok {
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}

// stop takes a timer back. Nothing is left in its channel.
func (p *timerPool) stop(t *time.Timer) {
	t.Stop()
	p.pool.Put(t)
}
