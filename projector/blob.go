package projector

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/tallylog/tally/events"
)

// Blob reads content that is kept by reference: the document blob/<sha256>, in
// one part or several. limit bounds its size in bytes.
func Blob(ctx context.Context, src Source, ns, sum string, limit int64) ([]byte, error) {
	doc := events.Document(ns, events.KindBlob, sum)
	parts := make(map[int][]byte)
	var size int64
	for rec, err := range src.Read(ctx, events.Range{Subject: doc}) {
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", doc, err)
		}
		if rec.Type != events.TypeDocumentWritten {
			continue
		}
		meta, err := events.ParseDocMeta(rec.Extensions[events.ExtDoc])
		if err != nil {
			continue // published around Append: not a part
		}
		index, count := 0, 1
		if meta.Part != nil {
			index, count = meta.Part.Index, meta.Part.Count
		}
		if _, have := parts[index]; have {
			continue
		}
		if size += int64(len(rec.Data)); size > limit {
			return nil, fmt.Errorf("%s: more than %d bytes", doc, limit)
		}
		parts[index] = rec.Data
		if len(parts) < count {
			continue
		}
		if whole, ok := assemble(parts, count, sum); ok {
			return whole, nil
		}
	}
	return nil, fmt.Errorf("%s is not complete", doc)
}

func assemble(parts map[int][]byte, count int, sum string) ([]byte, bool) {
	var whole bytes.Buffer
	for i := range count {
		part, ok := parts[i]
		if !ok {
			return nil, false
		}
		whole.Write(part)
	}
	have := sha256.Sum256(whole.Bytes())
	return whole.Bytes(), hex.EncodeToString(have[:]) == sum
}

// Resolve gives the record with its data, fetched if it carries a dataref to a
// blob of tally instead. Any other record comes back as it is.
func Resolve(ctx context.Context, src Source, rec events.Record, limit int64) (events.Record, error) {
	ref, ok := rec.Extensions[events.ExtDataRef]
	if !ok || len(rec.Data) > 0 {
		return rec, nil
	}
	sum, ok := events.ParseBlobRef(ref)
	if !ok {
		return rec, nil // somebody else's reference
	}
	data, err := Blob(ctx, src, rec.Subject.Namespace, sum, limit)
	if err != nil {
		return rec, &events.DamageError{Offset: rec.Offset, Err: err}
	}
	rec.Data = data
	return rec, nil
}
