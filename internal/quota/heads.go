package quota

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Source is the part of the log that a count reads.
type Source interface {
	projector.Source
	Last(ctx context.Context, sub events.Subject) (events.Record, error)
	ReadBack(ctx context.Context, r events.Range) iter.Seq2[events.Record, error]
	Subjects(ctx context.Context, ns, kind string) iter.Seq2[log.SubjectInfo, error]
}

// head is the current state of a document. The zero head is a document that cannot be read.
type head struct {
	live  bool
	owner string
	bytes int64
	blob  events.Subject // blob with the content; zero if the content is in the record
}

// after returns the head of a document after a record. decides is false if the record changes nothing. The rules are
// those of projector.Document.
func after(ctx context.Context, src Source, rec events.Record, maxValue int64) (h head, decides bool, err error) {
	switch rec.Type {
	case events.TypeDocumentDeleted: // also if there was nothing to delete
		return head{}, projector.Decode(rec).Invalid == nil, nil
	case events.TypeDocumentWritten:
	default:
		return head{}, false, nil
	}
	var d projector.Document
	d.Apply(rec)
	if d.Last() == nil {
		return head{}, false, nil // the record is void
	}
	h = head{live: true, owner: d.Last().Meta.Owner}
	if sum, ok := events.ParseBlobRef(rec.Extensions[events.ExtDataRef]); ok && len(rec.Data) == 0 {
		h.blob = events.Document(rec.Subject.Namespace, events.KindBlob, sum)
	}
	whole, err := projector.Resolve(ctx, src, rec, maxValue)
	h.bytes = int64(len(whole.Data))
	return h, err == nil, err
}

// measure reads the head of a document from the log. blobs are the blobs that it looked up: of the head, and of newer
// revisions that cannot be read because their blob is missing.
func measure(ctx context.Context, src Source, sub events.Subject, maxValue int64) (h head, blobs []events.Subject, err error) {
	look := func(rec events.Record) (bool, error) {
		found, decides, err := after(ctx, src, rec, maxValue)
		if found.blob != (events.Subject{}) {
			blobs = append(blobs, found.blob)
		}
		if events.IsDamage(err) {
			return false, nil
		}
		if decides {
			h = found
		}
		return decides, err
	}
	rec, err := src.Last(ctx, sub)
	if errors.Is(err, log.ErrNotFound) {
		return h, nil, nil
	}
	if err == nil {
		if done, err := look(rec); done || err != nil {
			return h, blobs, err
		}
	} else if !events.IsDamage(err) {
		return h, nil, err
	}
	for rec, err := range events.Readable(src.ReadBack(ctx, events.Range{Subject: sub})) {
		if err != nil {
			return h, blobs, err
		}
		if done, err := look(rec); done || err != nil {
			return h, blobs, err
		}
	}
	return h, blobs, nil
}

// measured is a document and the result of measure.
type measured struct {
	sub   events.Subject
	head  head
	blobs []events.Subject
}

// measureAll measures documents concurrently, because most of the time is spent waiting for the server.
func measureAll(ctx context.Context, src Source, maxValue int64, subs []events.Subject) (list []measured, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // guards list
	var work sync.WaitGroup
	todo := make(chan events.Subject)
	for range 2 * runtime.GOMAXPROCS(0) {
		work.Go(func() {
			for sub := range todo {
				h, blobs, err := measure(ctx, src, sub, maxValue)
				if err != nil {
					cancel(fmt.Errorf("count %s: %w", sub, err))
					continue
				}
				mu.Lock()
				list = append(list, measured{sub, h, blobs})
				mu.Unlock()
			}
		})
	}
	for _, sub := range subs {
		select {
		case todo <- sub:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(todo)
	work.Wait()
	return list, context.Cause(ctx)
}

// readAll measures every document of a log. If the documents of a kind have few revisions, readAll reads the whole kind
// in order, which takes half the time or less.
func readAll(ctx context.Context, src Source, maxValue int64) (list []measured, err error) {
	type kindOf struct {
		subjects []events.Subject
		records  uint64
	}
	kinds := make(map[string]*kindOf)
	for info, err := range src.Subjects(ctx, "", "") {
		if err != nil {
			return nil, err
		}
		if !Counts(info.Subject) {
			continue
		}
		k := kinds[info.Subject.Kind]
		if k == nil {
			k = new(kindOf)
			kinds[info.Subject.Kind] = k
		}
		k.subjects, k.records = append(k.subjects, info.Subject), k.records+info.Count
	}
	var single []events.Subject
	for name, k := range kinds {
		if k.records > uint64(len(k.subjects))*fewRevisions {
			single = append(single, k.subjects...)
			continue
		}
		found, left, err := readKind(ctx, src, name)
		if err != nil {
			return nil, err
		}
		list, single = append(list, found...), append(single, left...)
	}
	rest, err := measureAll(ctx, src, maxValue, single)
	return append(list, rest...), err
}

// fewRevisions is the highest average number of records per document at which a kind is read in order.
const fewRevisions = 8

// readKind reads all records of a kind, also records that are not durable yet. left are documents with content by
// reference: only their newest content matters, so the caller measures them one by one.
func readKind(ctx context.Context, src Source, kind string) (list []measured, left []events.Subject, err error) {
	heads, refer := make(map[events.Subject]head), make(map[events.Subject]bool)
	for rec, err := range events.Readable(src.Read(ctx, events.Range{Kind: kind, Buffered: true})) {
		if err != nil {
			return nil, nil, err
		}
		if _, by := events.ParseBlobRef(rec.Extensions[events.ExtDataRef]); by {
			refer[rec.Subject] = true
			continue
		}
		h, decides, err := after(ctx, src, rec, 0)
		if err != nil {
			return nil, nil, err
		}
		if decides {
			heads[rec.Subject] = h
		}
	}
	for sub, h := range heads {
		if !refer[sub] {
			list = append(list, measured{sub: sub, head: h})
		}
	}
	return list, slices.Collect(maps.Keys(refer)), nil
}
