package projector

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tallylog/tally/events"
)

// blobs resolves the records of one read, and keeps for a moment which blobs it read: records
// that name one blob share its bytes, and it is not read for each of them. The zero value is
// ready to use.
type blobs struct {
	mu     sync.Mutex // guards what follows
	recent []blob     // oldest first
}

type blob struct {
	subject events.Subject
	data    []byte
}

// keepBlobs is how long a blob is kept. A read that waits for new records holds no memory, and
// shows no content that was purged meanwhile.
const keepBlobs = time.Second

// resolve is Resolve. At most limit bytes are kept, and the data are not to be altered.
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
