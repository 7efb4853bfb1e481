package tally

import (
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// RawOf returns the log under that of a store, for another store over it.
func RawOf(l *Log) *log.Log { return l.raw }

// Reach sets the function that is called at the points of watches, until restore is called.
func Reach(f func(point string)) (restore func()) {
	old := reached
	reached = f
	return func() { reached = old }
}

// Offered waits until the reader of a store's watches, if there is one, has offered everything up to an offset. It
// returns false if that takes too long.
func Offered(st *Store, upto events.Offset, atMost time.Duration) bool {
	for range atMost / time.Millisecond {
		st.tail.mu.Lock()
		isOver := st.tail.now == nil || st.tail.now.at >= upto
		st.tail.mu.Unlock()
		if isOver {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}
