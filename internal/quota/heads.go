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

// Source is the log, as far as a count needs it.
type Source interface {
	projector.Source
	Last(ctx context.Context, sub events.Subject) (events.Record, error)
	ReadBack(ctx context.Context, r events.Range) iter.Seq2[events.Record, error]
	Subjects(ctx context.Context, ns, kind string) iter.Seq2[log.SubjectInfo, error]
}

// head is a document as it is now. The zero head is none that can be read.
type head struct {
	live  bool
	owner string
	bytes int64
	blob  events.Subject // that its content is in; zero: in none
}

// after returns what a record makes of its document, and false if it leaves it as it was:
// as folds see it (projector.Document).
func after(ctx context.Context, src Source, rec events.Record, most int64) (h head, decides bool, err error) {
	switch rec.Type {
	case events.TypeDocumentDeleted: // or there was nothing to delete
		return head{}, projector.Decode(rec).Invalid == nil, nil
	case events.TypeDocumentWritten:
	default:
		return head{}, false, nil
	}
	var d projector.Document
	d.Apply(rec)
	if d.Last() == nil {
		return head{}, false, nil // it is void
	}
	h = head{live: true, owner: d.Last().Meta.Owner}
	if sum, ok := events.ParseBlobRef(rec.Extensions[events.ExtDataRef]); ok && len(rec.Data) == 0 {
		h.blob = events.Document(rec.Subject.Namespace, events.KindBlob, sum)
	}
	whole, err := projector.Resolve(ctx, src, rec, most)
	h.bytes = int64(len(whole.Data))
	return h, err == nil, err
}

// measure reads from the log what a document is now, and which blobs were looked for on
// the way: those of it, and of newer revisions that cannot be read without them.
func measure(ctx context.Context, src Source, sub events.Subject, most int64) (h head, blobs []events.Subject, err error) {
	look := func(rec events.Record) (bool, error) {
		found, decides, err := after(ctx, src, rec, most)
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

// measured is a document and what measure found of it.
type measured struct {
	sub   events.Subject
	head  head
	blobs []events.Subject
}

// measureAll measures documents, several at a time: most of it is waiting for the server.
func measureAll(ctx context.Context, src Source, most int64, subs []events.Subject) (list []measured, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // guards list
	var work sync.WaitGroup
	todo := make(chan events.Subject)
	for range 2 * runtime.GOMAXPROCS(0) {
		work.Go(func() {
			for sub := range todo {
				h, blobs, err := measure(ctx, src, sub, most)
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

// readAll measures every document of a log. Those of a kind are read one behind the other if
// they have few revisions, which takes half the time or less.
func readAll(ctx context.Context, src Source, most int64) (list []measured, err error) {
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
	rest, err := measureAll(ctx, src, most, single)
	return append(list, rest...), err
}

// fewRevisions is how many records a document has on average if it is one of few.
const fewRevisions = 8

// readKind reads all records of a kind. left are documents with content by reference: only the
// newest of it is worth to be looked for. What is not durable yet is counted too.
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
