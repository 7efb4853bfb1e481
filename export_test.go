package tally

import "github.com/tallylog/tally/log"

// RawOf returns the log under that of a store, for another store over it.
func RawOf(l *Log) *log.Log { return l.raw }
