package log

import (
	"sync"
	"time"
)

// limit ends waits that take too long. An append waits twice, and its waits hardly ever take too long. So waits that
// begin at about the same time share a timer.
type limit struct {
	mu    sync.Mutex
	until time.Time     // waits that begin before share over
	over  chan struct{} // closed at the end of these waits
}

// after returns a channel that is closed after d, at most an eighth of d later. Each call has the same d.
func (l *limit) after(d time.Duration) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); !now.Before(l.until) {
		over := make(chan struct{})
		l.over, l.until = over, now.Add(d/8)
		time.AfterFunc(d+d/8, func() { close(over) })
	}
	return l.over
}
