package log

import (
	"fmt"

	"github.com/tallylog/tally/events"
)

// Durability is what an acknowledgement promises. The zero value promises the least.
type Durability uint8

const (
	Buffered   Durability = iota // the event survives the process, but not a power cut
	Durable                      // the event is on disk and survives a power cut
	Replicated                   // a quorum of a cluster has the event
)

// String returns "buffered", "durable" or "replicated".
func (d Durability) String() string {
	switch d {
	case Durable:
		return "durable"
	case Replicated:
		return "replicated"
	}
	return "buffered"
}

// UnmarshalText reads what String returns.
func (d *Durability) UnmarshalText(text []byte) error {
	for _, known := range []Durability{Buffered, Durable, Replicated} {
		if known.String() == string(text) {
			*d = known
			return nil
		}
	}
	return fmt.Errorf("log: %q is not a durability: want buffered, durable or replicated", text)
}

// MarshalText writes what String returns.
func (d Durability) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Ack reports where an append is in the log.
type Ack struct {
	First, Last events.Offset
	Durability  Durability
	Duplicate   bool // the events were appended before: First and Last are the offsets of that append
	Stale       bool // the event is not in effect: the store above sets it, a Log never does

	// Unshown reports that the owner stored the append (Host.Via) but its trees of files do not show it. It is nil if
	// they do, if there are no trees, or if the owner was not asked to wait for them.
	Unshown *events.TreeError
}
