// Package layouttest has shared parts for tests of layouts: a small store, files in memory, folders.
package layouttest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"slices"
	"strconv"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/layouts"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Log is the part of a log that tests of layouts use. The log of a store implements it, too.
type Log interface {
	projector.Follower
	Append(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, error)
	AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, int, error)
	Last(ctx context.Context, sub events.Subject) (events.Record, error)
	Subjects(ctx context.Context, ns, kind string) iter.Seq2[log.SubjectInfo, error]
	RecordsRead() int64
}

// Store is the minimum that an import and an export need: a log and a loader.
type Store struct {
	Log
	Name string // of the namespace
}

var _ layouts.Target = Store{}

// OpenStore opens a store in memory, closed when the test ends.
func OpenStore(t testing.TB) Store {
	t.Helper()
	return Store{logtest.Open(t), events.DefaultNamespace}
}

// Namespace implements layouts.Source.
func (st Store) Namespace() string { return st.Name }

// Loader implements layouts.Source.
func (st Store) Loader() *projector.Loader { return &projector.Loader{Source: st.Log} }

// Subjects implements layouts.Source.
func (st Store) Subjects(ctx context.Context, kind string) iter.Seq2[log.SubjectInfo, error] {
	return st.Log.Subjects(ctx, st.Name, kind)
}

// Append implements layouts.Target.
func (st Store) Append(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, error) {
	ready, err := st.byReference(ctx, evs)
	if err != nil {
		return log.Ack{}, err
	}
	return st.Log.Append(ctx, sub, expect, ready...)
}

// AppendSeries implements layouts.Target.
func (st Store) AppendSeries(ctx context.Context, sub events.Subject, expect log.Expect, evs ...events.Event) (log.Ack, int, error) {
	ready, err := st.byReference(ctx, evs)
	if err != nil {
		return log.Ack{}, 0, err
	}
	return st.Log.AppendSeries(ctx, sub, expect, ready...)
}

// byReference moves data that is too large for an event into blobs.
func (st Store) byReference(ctx context.Context, evs []events.Event) ([]events.Event, error) {
	ready := slices.Clone(evs)
	for i, e := range ready {
		if len(e.Data) <= events.MaxData {
			continue
		}
		ref, err := st.PutBlob(ctx, e.Data)
		if err != nil {
			return nil, err
		}
		e.Data = nil
		ready[i] = e.WithExtension(events.ExtDataRef, ref)
	}
	return ready, nil
}

// PutBlob implements layouts.Target.
func (st Store) PutBlob(ctx context.Context, content []byte) (string, error) {
	sum := sha256.Sum256(content)
	id := hex.EncodeToString(sum[:])
	doc := events.Document(st.Name, events.KindBlob, id)
	count := max(1, (len(content)+events.MaxBlobPart-1)/events.MaxBlobPart)
	for i := range count {
		e := events.Event{ID: "part-" + strconv.Itoa(i), Source: "urn:test:blob", Type: events.TypeDocumentWritten, Subject: doc,
			ContentType: events.ContentTypeRaw, Data: bytes.Clone(content[i*events.MaxBlobPart : min(len(content), (i+1)*events.MaxBlobPart)])}
		e = e.WithExtension(events.ExtDoc, events.DocMeta{Part: &events.Part{Index: i, Count: count, SHA256: id}}.String())
		if _, err := st.Log.Append(ctx, doc, log.Any, e); err != nil {
			return "", err
		}
	}
	return events.BlobRef(id), nil
}
