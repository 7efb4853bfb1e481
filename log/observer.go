package log

import "time"

// Observer is told how appends and syncs go, for metrics. It is called by many
// goroutines and must not wait.
type Observer interface {
	// Appended is told of each append that was begun, from its call to its result.
	Appended(events int, took time.Duration, err error)
	// Synced is told of each sync, and how many events it made durable.
	Synced(events int, took time.Duration)
}

// nobody is the Observer where none was given.
type nobody struct{}

func (nobody) Appended(int, time.Duration, error) {}
func (nobody) Synced(int, time.Duration)          {}
