package daemon

import (
	"fmt"
	"time"
)

// skew is how the clock of the machine stands to the log's time. Nothing is decided by it: it
// is for somebody to be told.
type skew struct {
	known    bool
	minAhead time.Duration // that the clock was ahead, since the loop began
	warning  string
}

// allowed is how far clocks may be apart before somebody is told.
const allowed = time.Minute

// note compares the clock with the log's time. Before anything is recorded the clock may be
// ahead by as long as the store was at rest, which is no more than that; it is wrong if it
// comes to be further ahead, or is behind.
func (s *skew) note(clock, now time.Time) {
	ahead := clock.Round(0).Sub(now)
	switch {
	case !s.known:
		s.known, s.minAhead = true, max(ahead, 0)
	case ahead >= 0:
		s.minAhead = min(s.minAhead, ahead)
	}
	switch {
	case ahead < -allowed:
		s.warning = fmt.Sprintf("the clock is %v behind the log's time, by which things are due", (-ahead).Round(time.Second))
	case ahead > s.minAhead+allowed:
		s.warning = fmt.Sprintf("the clock went ahead and is %v before the log's time, by which things are due", ahead.Round(time.Second))
	default:
		s.warning = ""
	}
}

// compare notes how the clock stands to the log's time, and says when it begins to be wrong.
func (l *Loop) compare(now time.Time) {
	l.mu.Lock()
	was := l.skew.warning
	l.skew.note(l.o.Clock(), now)
	warning := l.skew.warning
	l.mu.Unlock()
	if warning != "" && was == "" {
		l.o.Logger.Warn("the clock is wrong", "warning", warning)
	}
	if (warning == "") != (was == "") && l.o.Changed != nil {
		l.o.Changed()
	}
}
