package projector

import "github.com/tallylog/tally/events"

// History is a Timeline that is all in memory, as that of a Session is: nothing is read
// to look back at it, so that nothing can fail.
type History struct{ Timeline }

// newHistory returns the history of no records.
func newHistory(sub events.Subject) *History { return &History{*NewTimeline(sub)} }

// sure returns what was looked up in memory, without the error that there is not.
func sure[T any](v T, _ error) T { return v }

// Add takes the next record and says what it is at its place. The fact has passed
// Fact.Impossible.
func (h *History) Add(f Fact) Verdict { return sure(h.Timeline.Add(f)) }

// At returns the last record at or below an offset, 0 if there is none.
func (h *History) At(at events.Offset) events.Offset { return sure(h.Timeline.At(at)) }

// before returns the last record below an offset, 0 if there is none.
func (h *History) before(at events.Offset) events.Offset { return sure(h.Timeline.Before(at)) }

// IsLive reports whether the record at an offset is in effect after the last one.
func (h *History) IsLive(at events.Offset) bool { return sure(h.Timeline.IsLive(at)) }

// Live returns the list in effect after the last record at or below an offset.
func (h *History) Live(at events.Offset) []Interval { return sure(h.Timeline.Live(at)) }

// LastLive returns the last offset of that list, 0 if it is empty.
func (h *History) LastLive(at events.Offset) events.Offset { return sure(h.Timeline.LastLive(at)) }

// TurnsAt returns the number of turns of a thread in effect after the last record
// at or below an offset.
func (h *History) TurnsAt(thread string, at events.Offset) int {
	return sure(h.Timeline.TurnsAt(thread, at))
}
