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
	// Namespace returns the namespace of the sessions and documents.
	Namespace() string
	// Loader returns their loader.
	Loader() *projector.Loader
	// Subjects lists the subjects of a kind in the namespace, sorted by id.
	Subjects(ctx context.Context, kind string) iter.Seq2[log.SubjectInfo, error]
}

// Target is the part of a store that an import needs.
type Target interface {
	Source
	// Append stores events of one subject, all or none. It stores large data apart, by reference.
	Append(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, error)
	// AppendSeries stores events of one subject one after the other, each directly after the one before. added is the
	// number of stored events. After an error or a crash, the first of them may be stored.
	AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (ack log.Ack, added int, err error)
	// PutBlob stores content by its hash and returns its dataref.
	PutBlob(ctx context.Context, content []byte) (string, error)
}
