package projector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/tallylog/tally/events"
)

// BlobError reports why content stored by reference cannot be returned.
type BlobError struct {
	Subject events.Subject
	Reason  string
}

func (e *BlobError) Error() string { return e.Subject.Name() + ": " + e.Reason }

// Blob reads content stored by reference: the document blob/<sha256>, in one part or several. limit is the maximum size
// in bytes. If the content is missing, incomplete, too large or purged, Blob returns a *BlobError.
func Blob(ctx context.Context, src Source, ns, sum string, limit int64) ([]byte, error) {
	doc := events.Document(ns, events.KindBlob, sum)
	b := assembly{sum: sum, limit: limit, parts: make(map[writer]*chunkParts)}
	for rec, err := range src.Read(ctx, events.Range{Subject: doc}) {
		if damage, ok := errors.AsType[*events.DamageError](err); ok {
			b.reason = damage.Error() // the damaged record may hold no part of this blob
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", doc.Name(), err)
		}
		b.take(rec)
	}
	switch {
	case b.complete:
		return b.whole, nil
	case b.reason != "":
		return nil, &BlobError{doc, b.reason}
	}
	return nil, &BlobError{doc, "it is not complete"}
}

// assembly joins the parts of a blob. It joins only parts of the same writer. Parts of other writers, right or wrong,
// do not affect them.
type assembly struct {
	sum      string
	limit    int64
	parts    map[writer]*chunkParts
	whole    []byte
	complete bool
	reason   string // why it is incomplete, if known
}

type writer struct {
	source string
	count  int
}

type chunkParts struct {
	byIndex map[int][]byte
	size    int64
}

// take adds a record of the document. A purge discards all parts before it.
func (b *assembly) take(rec events.Record) {
	switch p := Decode(rec).Payload.(type) {
	case *events.DocumentDeleted:
		if p.Reason == events.ReasonPurged {
			clear(b.parts)
			b.whole, b.complete, b.reason = nil, false, "it is purged"
		}
		return
	}
	meta, err := events.ParseDocMeta(rec.Extensions[events.ExtDoc])
	if b.complete || rec.Type != events.TypeDocumentWritten || err != nil {
		return
	}
	if receipt := rec.Erased(); receipt != "" {
		b.reason = "it is erased (receipt " + receipt + ")"
		return
	}
	index, count := 0, 1
	if meta.Part != nil {
		index, count = meta.Part.Index, meta.Part.Count
	}
	w := b.parts[writer{rec.Source, count}]
	if w == nil {
		w = &chunkParts{byIndex: make(map[int][]byte)}
		b.parts[writer{rec.Source, count}] = w
	}
	if w.size += int64(len(rec.Data)) - int64(len(w.byIndex[index])); w.size > b.limit {
		w.size -= int64(len(rec.Data))
		delete(w.byIndex, index)
		b.reason = fmt.Sprintf("it has more than %d bytes", b.limit)
		return
	}
	w.byIndex[index] = rec.Data
	if len(w.byIndex) == count {
		b.assemble(w, count)
	}
}

func (b *assembly) assemble(w *chunkParts, count int) {
	whole := make([]byte, 0, w.size)
	for i := range count {
		whole = append(whole, w.byIndex[i]...)
	}
	if have := sha256.Sum256(whole); hex.EncodeToString(have[:]) != b.sum {
		b.reason = "its content has another hash"
		return
	}
	b.whole, b.complete = whole, true
	clear(b.parts)
}

// Resolve returns the record with its data. If the record has a dataref to a tally blob instead of data, Resolve reads
// the blob. It returns any other record unchanged. If the content is unavailable, the error is a *events.DamageError of
// the record. Errors of the read itself have other types.
func Resolve(ctx context.Context, src Source, rec events.Record, limit int64) (events.Record, error) {
	ref, ok := rec.Extensions[events.ExtDataRef]
	if !ok || len(rec.Data) > 0 {
		return rec, nil
	}
	sum, ok := events.ParseBlobRef(ref)
	if !ok {
		return rec, nil // a reference of another program
	}
	data, err := Blob(ctx, src, rec.Subject.Namespace, sum, limit)
	if missing, ok := errors.AsType[*BlobError](err); ok {
		return rec, &events.DamageError{Offset: rec.Offset, Err: missing}
	}
	if err != nil {
		return rec, err
	}
	rec.Data = data
	return rec, nil
}
