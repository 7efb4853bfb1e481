package tally

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// blobSource is the source of all parts of blobs. Their identity follows from the content, so equal content is stored
// once.
const blobSource = "urn:tally:blob"

// PutBlob stores content as the document blob/<sha256> and returns its dataref. Content that is stored already is not
// stored again, unless it was purged or damaged meanwhile.
func (st *Store) PutBlob(ctx context.Context, content []byte) (string, error) {
	return st.putBlob(ctx, st.config.Namespace, content)
}

func (st *Store) putBlob(ctx context.Context, ns string, content []byte) (string, error) {
	if err := st.checkSize(content); err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	id := hex.EncodeToString(sum[:])
	doc := events.Document(ns, events.KindBlob, id)
	known, err := st.putParts(ctx, doc, content, "")
	if err != nil || !known {
		return events.BlobRef(id), err
	}
	_, err = projector.Blob(ctx, st.Log, ns, id, st.config.MaxValue)
	if _, gone := errors.AsType[*projector.BlobError](err); gone {
		last, err := st.Log.Last(ctx, doc)
		if err != nil {
			return "", err
		}
		_, err = st.putParts(ctx, doc, content, "-after-"+strconv.FormatUint(uint64(last.Offset), 10))
		return events.BlobRef(id), err
	}
	return events.BlobRef(id), err
}

// putParts appends the parts of the blob doc and reports whether one of them was there before. again makes their ids
// differ from those of an earlier time.
func (st *Store) putParts(ctx context.Context, doc events.Subject, content []byte, again string) (known bool, err error) {
	size := min(events.MaxBlobPart, st.Log.MaxData())
	count := max(1, (len(content)+size-1)/size)
	for i := range count {
		part := content[i*size : min(len(content), (i+1)*size)]
		e := events.Event{ID: fmt.Sprintf("part-%d-of-%d%s", i, count, again), Source: blobSource, Type: events.TypeDocumentWritten,
			Subject: doc, ContentType: events.ContentTypeRaw, Data: part}
		if count > 1 {
			e = e.WithExtension(events.ExtDoc, events.DocMeta{Part: &events.Part{Index: i, Count: count, SHA256: doc.ID}}.String())
		}
		ack, err := st.put(ctx, doc, log.Any, []events.Event{st.Log.Stamp(e)})
		if err != nil {
			return false, err
		}
		known = known || ack.Duplicate
	}
	return known, nil
}

func (st *Store) checkSize(content []byte) error {
	if int64(len(content)) > st.config.MaxValue {
		return &events.InvalidError{Field: "data", Reason: fmt.Sprintf("has %d bytes, at most %d are allowed", len(content), st.config.MaxValue)}
	}
	return nil
}

// Blob reads content by its SHA-256 in lower-case hex.
func (st *Store) Blob(ctx context.Context, sum string) ([]byte, error) {
	return projector.Blob(ctx, st.Log, st.config.Namespace, sum, st.config.MaxValue)
}
