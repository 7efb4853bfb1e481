package tally

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// blobSource is the source of all parts of blobs: their identity follows from the
// content, so that equal content is stored once whoever stores it.
const blobSource = "urn:tally:blob"

// PutBlob stores content as the document blob/<sha256> and gives the dataref that
// names it. Content that is stored already is not stored again.
func (st *Store) PutBlob(ctx context.Context, content []byte) (string, error) {
	if int64(len(content)) > st.config.MaxValue {
		return "", &events.InvalidError{Field: "data", Reason: fmt.Sprintf("%d bytes, at most %d are kept by reference", len(content), st.config.MaxValue)}
	}
	sum := sha256.Sum256(content)
	id := hex.EncodeToString(sum[:])
	doc := events.Document(st.config.Namespace, events.KindBlob, id)
	count := max(1, (len(content)+events.MaxBlobPart-1)/events.MaxBlobPart)
	for i := range count {
		part := content[i*events.MaxBlobPart : min(len(content), (i+1)*events.MaxBlobPart)]
		e := events.Event{ID: "part-" + strconv.Itoa(i) + "-of-" + strconv.Itoa(count), Source: blobSource, Type: events.TypeDocumentWritten,
			Subject: doc, ContentType: events.ContentTypeRaw, Data: part}
		if count > 1 {
			e = e.WithExtension(events.ExtDoc, events.DocMeta{Part: &events.Part{Index: i, Count: count, SHA256: id}}.String())
		}
		if _, err := st.Log.Append(ctx, doc, log.Any, st.Log.Stamp(e)); err != nil {
			return "", err
		}
	}
	return events.BlobRef(id), nil
}

// Blob reads content by its SHA-256 in lower-case hex.
func (st *Store) Blob(ctx context.Context, sum string) ([]byte, error) {
	return projector.Blob(ctx, st.Log, st.config.Namespace, sum, st.config.MaxValue)
}

func (st *Store) now() events.Timestamp { return events.TimestampOf(time.Now()) }
