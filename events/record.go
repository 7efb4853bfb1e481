package events

import "time"

// Record is an event with its offset in the log.
type Record struct {
	Event
	Offset   Offset
	Recorded time.Time // by the log's clock; order is by Offset alone
}

// Range selects records. The zero Range is the whole log.
type Range struct {
	Subject   Subject // the zero Subject: every subject
	Namespace string  // with a zero Subject: only this namespace; "": every namespace
	Kind      string  // with a zero Subject: only subjects of this kind ("session", "recipe", ...); "": every kind
	After     Offset  // exclusive: the last offset that the caller has read
	Known     int     // with a Subject: how many of its records are at or before After, so that a read notices lost records behind After; 0: unknown
	Upto      Offset  // inclusive; 0: the last record when the read began
	Limit     int     // at most this many records; 0: no limit
	Buffered  bool    // also records that a power cut could still take away
}

// Includes reports whether the range includes a record of subject s at offset o, ignoring Limit.
func (r Range) Includes(s Subject, o Offset) bool {
	if o <= r.After || r.Upto != 0 && o > r.Upto {
		return false
	}
	if r.Subject != (Subject{}) {
		return s == r.Subject
	}
	return (r.Namespace == "" || s.Namespace == r.Namespace) && (r.Kind == "" || s.Kind == r.Kind)
}
