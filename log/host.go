package log

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/events"
)

// Host is what the process around a Log provides: its connections, how its server syncs, which appends it admits and
// what it remembers. Package embedded fills it in. A program that only connects to a server leaves it zero.
type Host struct {
	// Durability is the durability of this server's acknowledgements, as the program that started it knows. Default:
	// what Open finds out, else Buffered.
	Durability Durability

	// SyncsAlways returns nil if the named server syncs before it acknowledges, and otherwise an error that says why
	// that is not known. If it returns nil, a stream without replicas is Durable. Default: not known.
	SyncsAlways func(ctx context.Context, server string) error

	// Reads is the connection for everything but appends, so that large reads do
	// not stand in their way. Default: the connection given to Open.
	Reads *nats.Conn

	// Scans returns a connection to a server in this process that one read of the whole log uses alone. It costs less
	// for each record than the client's connection. Default: Reads.
	Scans func() (Login, error)

	// Appends is a connection to a server in this process that nothing else uses. The Log owns it from then on. It
	// costs less for each append than the client's connection. Default: the connection given to Open.
	Appends Login

	// Sync makes stored messages durable. Set it if the server in this process acknowledges before it syncs: this log
	// then acknowledges, as Durable, only appends that a sync covered, and reads end at the durable watermark. Default:
	// the backend's acknowledgement counts.
	Sync Sync

	// Room is called before anything is stored. If it returns an error, such as a *FullError, the append is refused.
	// Default: there is always room.
	Room func() error

	// Admit is called before an append is stored, to one subject or to several, all parts
	// or none: an error, such as a *QuotaError, refuses it. Admit may read the log. The log
	// calls settle once, unless it is nil, with the outcome: an Ack for each part,
	// or an error; ErrUnknown says that the append may be stored. Default: all appends are
	// admitted. Where an owner stores (Via), the owner's Admit is called.
	Admit func(ctx context.Context, parts []Part) (settle func([]Ack, error), err error)

	// Shared reports that anybody but the user of this machine can reach the log. An append to events.PersonalNamespace
	// is then an *events.PersonalError. A server that others run is shared even if this is not set. Where an owner
	// stores (Via), the owner refuses.
	Shared bool

	// Owner promises that no other process writes to the streams. The log may then cut itself into segments as Segments
	// says, and rely on what it knows of a subject without asking again.
	Owner    bool
	Segments Segments

	// Holes are the records that are known to be lost, by offset. Reads report them where the backend no longer knows
	// that it had them. The log calls Found with each lost record that it finds later.
	Holes []Hole
	Found func(events.Offset)

	// Settled is an offset, from an earlier call of Mark, up to which every append to several subjects is known to be
	// complete. Before OpenOn returns, it completes the appends that an earlier owner began behind that offset.
	Settled events.Offset

	// Copy leaves the appends alone that a recovery would complete: the log is a copy that Mirror makes, and their other
	// records are copied later.
	Copy bool

	// Merge takes events as another log has them: also erased ones, and those without a time stay without it.
	Merge bool

	// Mark is called with every move of the durable watermark, before any reader sees the move.
	Mark func(events.Offset)

	// Via sends appends to the service of the process that owns the store (Serve) instead of storing them: the owner
	// decides, stores and syncs. Reads go to the server, and end at the owner's durable watermark. If the connection is
	// lost, the owner has ended: the Log closes the connection, and Reads.
	Via bool
}
