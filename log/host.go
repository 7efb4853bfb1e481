package log

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/events"
)

// Host is what the process around a Log provides: its connections, how its server syncs,
// what it admits and what it remembers. Package embedded fills it in. A program that
// only connects to a server leaves it zero.
type Host struct {
	// Durability is what an acknowledgement of this server is worth, as the program
	// that started it knows. Default: what Open finds out, else Buffered.
	Durability Durability

	// SyncsAlways reports whether a server, by its name, syncs before it acknowledges:
	// nil if it does, else why that is not known. If it does, a stream without replicas
	// is Durable. Default: not known.
	SyncsAlways func(ctx context.Context, server string) error

	// Reads is the connection for everything but appends, so that large reads do
	// not stand in their way. Default: the connection given to Open.
	Reads *nats.Conn

	// Scans returns a connection to a server in this process, for one read of the whole
	// log to use alone: cheaper for each record than the client's. Default: Reads.
	Scans func() (Login, error)

	// Appends is a connection to a server in this process that nothing else uses. It is
	// the Log's from then on, and cheaper for each append than the client's.
	// Default: the connection given to Open.
	Appends Login

	// Sync makes what was stored durable. Set it with a server in this process that
	// acknowledges before it syncs: then this log acknowledges, as Durable, only what a
	// sync covered, and reads end at what is durable. Default: the
	// backend's acknowledgement counts.
	Sync Sync

	// Room is called before anything is stored: an error, such as a *FullError, refuses
	// the append. Default: there is always room.
	Room func() error

	// Admit is called before an append is stored, to one subject or to several, all parts
	// or none: an error, such as a *QuotaError, refuses it. Admit may read the log. The log
	// calls settle once, unless it is nil, with the outcome: an Ack for each part,
	// or an error; ErrUnknown says that the append may be stored. Default: all appends are
	// admitted. Where an owner stores (Via), the owner's Admit is called.
	Admit func(ctx context.Context, parts []Part) (settle func([]Ack, error), err error)

	// Shared says that others than the user of this machine can reach the log: an append to
	// events.PersonalNamespace is an *events.PersonalError. A server that others run is
	// shared even if this is not set. Where an owner stores (Via), the owner refuses.
	Shared bool

	// Owner says that no other process writes to the streams, so that this one may cut
	// the log into segments as Segments says, and need not ask again what it knows of
	// a subject.
	Owner    bool
	Segments Segments

	// Holes are the records that are known to be lost, by offset: reads report them
	// where the backend no longer knows that it had them. The log calls Found with each
	// lost record that it finds later.
	Holes []Hole
	Found func(events.Offset)

	// Settled is an offset up to which every append to several subjects is known to be
	// whole: that of an earlier call of Mark. Before OpenOn returns, it completes what an
	// earlier owner began behind that offset.
	Settled events.Offset

	// Mark is called with every move of the durable watermark, before anything else
	// learns of the move.
	Mark func(events.Offset)

	// Via sends appends to the service of the process that owns the store (Serve)
	// instead of storing them: the owner decides, stores and syncs. Reads go to the
	// server, and end at what the owner says is durable. When the connection is lost the
	// owner is gone: the Log closes it, and Reads.
	Via bool
}
