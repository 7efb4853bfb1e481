package log

import (
	"fmt"

	"github.com/tallylog/tally/events"
)

// Durability is what an acknowledgement promises. The zero value promises least.
type Durability uint8

const (
	Buffered   Durability = iota // it survives the process, not a power cut
	Durable                      // it is on disk and survives a power cut
	Replicated                   // a quorum of a cluster has it
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

// Ack says where an append is in the log.
type Ack struct {
	First, Last events.Offset
	Durability  Durability
	Duplicate   bool // it was appended before: First and Last are those of then
	Stale       bool // not live at its place: for the store above to fill in, a Log never sets it

	// Unshown reports that the owner stored the append (Host.Via), and that its trees of files
	// do not show it. nil: they do, there are none, or the owner was not asked to wait.
	Unshown *events.TreeError
}
