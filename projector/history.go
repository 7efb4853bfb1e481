package projector

import "github.com/tallylog/tally/events"

// History is a Timeline that is completely in memory, as in a Session. Its methods read nothing, so they cannot fail.
type History struct{ Timeline }

// newHistory returns an empty history.
func newHistory(sub events.Subject) *History { return &History{*NewTimeline(sub)} }

// sure drops the error of a lookup in memory, which is always nil.
func sure[T any](v T, _ error) T { return v }

// Add folds the next record and returns its verdict. The fact must have passed Fact.Impossible.
func (h *History) Add(f Fact) Verdict { return sure(h.Timeline.Add(f)) }

// At returns the last record at or below an offset, or 0.
func (h *History) At(at events.Offset) events.Offset { return sure(h.Timeline.At(at)) }

// IsLive reports whether the record at an offset is on the branch that led to the last one: see Session.InEffect.
func (h *History) IsLive(at events.Offset) bool { return sure(h.Timeline.IsLive(at)) }

// Live returns the list in effect after the last record at or below an offset.
func (h *History) Live(at events.Offset) []Interval { return sure(h.Timeline.Live(at)) }

// LastLive returns the last offset of that list, or 0 if the list is empty.
func (h *History) LastLive(at events.Offset) events.Offset { return sure(h.Timeline.LastLive(at)) }

// TurnsAt returns the number of turns of a thread in effect after the last record at or below an offset.
func (h *History) TurnsAt(thread string, at events.Offset) int {
	return sure(h.Timeline.TurnsAt(thread, at))
}
