package projector

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
)

// blobs resolves the records of one read. It caches recently read blobs for a moment, so records that name the same
// blob share its bytes and it is read once. The zero value is ready to use.
type blobs struct {
	mu     sync.Mutex // guards the fields below
	recent []blob     // oldest first
}

type blob struct {
	subject events.Subject
	data    []byte
}

// keepBlobs is how long a blob stays cached. The limit frees the memory of a read that waits for new records, and hides
// content that was purged meanwhile.
const keepBlobs = time.Second

// resolve is like Resolve, with the cache. The cache holds at most limit bytes. The caller must not change the data.
func (b *blobs) resolve(ctx context.Context, src Source, rec events.Record, limit int64) (events.Record, error) {
	sum := nameOf(rec)
	if sum == "" || len(rec.Data) > 0 {
		return rec, nil
	}
	sub := events.Document(rec.Subject.Namespace, events.KindBlob, sum)
	if data := b.get(sub); data != nil {
		rec.Data = data
		return rec, nil
	}
	rec, err := Resolve(ctx, src, rec, limit)
	if err == nil {
		b.put(blob{sub, rec.Data}, limit)
	}
	return rec, err
}

func (b *blobs) get(sub events.Subject) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.recent, func(k blob) bool { return k.subject == sub })
	if i < 0 {
		return nil
	}
	return b.recent[i].data
}

func (b *blobs) put(k blob, limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recent = append(b.recent, k)
	size := int64(0)
	for i := len(b.recent) - 1; i >= 0; i-- {
		if size += int64(len(b.recent[i].data)); size > limit {
			b.recent = slices.Delete(b.recent, 0, i+1)
			break
		}
	}
	time.AfterFunc(keepBlobs, func() { b.drop(k.subject) })
}

func (b *blobs) drop(sub events.Subject) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recent = slices.DeleteFunc(b.recent, func(k blob) bool { return k.subject == sub })
}
