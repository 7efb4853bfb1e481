package daemon

import (
	"fmt"
	"time"
)

// skew is the difference between the machine's clock and the log's time. It is only used for a warning.
type skew struct {
	known    bool
	minAhead time.Duration // minimum lead of the clock since the loop began
	warning  string
}

// allowed is the difference without a warning.
const allowed = time.Minute

// note compares the clock with the log's time. Before the first record, the clock is ahead by the idle time of the
// store. A larger lead later, or a lag, means that the clock is wrong.
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
		s.warning = fmt.Sprintf("the clock is %v behind the log's time, which decides what is due", (-ahead).Round(time.Second))
	case ahead > s.minAhead+allowed:
		s.warning = fmt.Sprintf("the clock jumped and is %v ahead of the log's time, which decides what is due", ahead.Round(time.Second))
	default:
		s.warning = ""
	}
}

// compare updates the skew, and logs when the clock starts to be wrong.
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
