package log

import "time"

// Observer receives the outcome of appends and syncs, for metrics. Many goroutines call it, and it must not block.
type Observer interface {
	// Appended is called for each append that was begun; took is the time from its call to its result.
	Appended(events int, took time.Duration, err error)
	// Synced is called for each sync, with the number of events that it made durable.
	Synced(events int, took time.Duration)
}

// nobody is the default Observer. It does nothing.
type nobody struct{}

func (nobody) Appended(int, time.Duration, error) {}
func (nobody) Synced(int, time.Duration)          {}
