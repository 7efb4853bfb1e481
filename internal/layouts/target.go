package layouts

import (
	"context"
	"iter"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Source is the part of a store that an export needs.
type Source interface {
	// Namespace is where sessions and documents are.
	Namespace() string
	// Loader loads them.
	Loader() *projector.Loader
	// Subjects lists the subjects of a kind in the namespace, sorted by id.
	Subjects(ctx context.Context, kind string) iter.Seq2[log.SubjectInfo, error]
}

// Target is the part of a store that an import needs.
type Target interface {
	Source
	// Append stores events of one subject, all or none, and keeps data that an
	// event cannot hold by reference.
	Append(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, error)
	// AppendSeries stores events of one subject one after the other, each directly
	// behind the one before it, and says how many it added. An error, or a crash, may
	// leave the first ones.
	AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (ack log.Ack, added int, err error)
	// PutBlob stores content by its hash and returns the dataref that names it.
	PutBlob(ctx context.Context, content []byte) (string, error)
}
