package ingest

import (
	"context"
	"time"

	"github.com/tallylog/tally/internal/ingest/tail"
)

// Bounds of held batches. They are below the tailer's bounds, for one file and in total, so that new batches have room.
const (
	heldLines = 256
	heldBytes = 1 << 20
	heldFiles = 512
	heldTotal = 16 << 20
)

// heldBatch is a durable batch. The last batch of a file is held until the events derived from the file's silence are
// durable too: after a crash it is delivered again, and so is the silence. A batch that is too large is acknowledged at
// once; after a crash the silence is then not delivered until the file continues.
type heldBatch struct {
	batch *tail.Batch
	bytes int64
}

// done holds a durable batch, or acknowledges it.
func (in *Ingester) done(b *tail.Batch) {
	if b.Kind != tail.Lines && b.Kind != tail.Rewritten {
		in.tailer.Ack(b)
		return
	}
	key, size := keyOf(b.File), sizeOf(b)
	in.release(key)
	in.mu.Lock()
	if _, isDue := in.due[key]; !isDue || len(b.Lines) > heldLines || size > heldBytes {
		in.mu.Unlock()
		in.tailer.Ack(b)
		return
	}
	clear(b.Lines) // the content is no longer needed
	in.held[key] = heldBatch{b, size}
	in.status.held += size
	tooMuch := len(in.held) > heldFiles || in.status.held > heldTotal
	if tooMuch {
		for k := range in.held {
			if in.due[k].Before(in.due[key]) {
				key = k
			}
		}
		in.due[key] = in.o.now().Add(in.o.Quiet) // so that the next one is different
	}
	in.mu.Unlock()
	if tooMuch {
		in.urge(key)
	}
}

// release acknowledges the held batch of a file.
func (in *Ingester) release(key fileKey) {
	in.mu.Lock()
	h, ok := in.held[key]
	delete(in.held, key)
	in.status.held -= h.bytes
	in.mu.Unlock()
	if ok {
		in.tailer.Ack(h.batch)
	}
}

// sizeOf returns the number of bytes in a batch.
func sizeOf(b *tail.Batch) (n int64) {
	for i := range b.Lines {
		n += b.Lines[i].Len()
	}
	return n
}

// isDueIn schedules the silence of a file.
func (in *Ingester) isDueIn(key fileKey, d time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	at := in.o.now().Add(d)
	if len(in.due) == 0 || at.Before(in.dueFrom) {
		in.dueFrom = at
	}
	in.due[key] = at
}

// firstDue returns the time of the next silence, or an earlier one. The caller holds mu.
func (in *Ingester) firstDue(now time.Time) time.Time {
	if now.Before(in.dueFrom) { // postponed ones count at their former time
		return in.dueFrom
	}
	first := true
	for _, at := range in.due {
		if first || at.Before(in.dueFrom) {
			in.dueFrom, first = at, false
		}
	}
	return in.dueFrom
}

// hushAll delivers the silence of all scheduled files, and returns their number.
func (in *Ingester) hushAll() int {
	in.mu.Lock()
	list := make([]fileKey, 0, len(in.due))
	for key := range in.due {
		list = append(list, key)
	}
	in.mu.Unlock()
	for _, key := range list {
		in.urge(key)
	}
	return len(list)
}

// hushDue delivers the silence of files without lines for long enough. If reading is stuck because of held batches, it
// includes held files: a long line is read alone.
func (in *Ingester) hushDue(isIdle bool) {
	lag := in.tailer.Status().Lag
	in.mu.Lock()
	now := in.o.now()
	isStuck := isIdle && len(in.held) > 0 && lag > in.status.held+in.status.undecided
	var list []fileKey
	for key, at := range in.due {
		if _, isHeld := in.held[key]; isStuck && isHeld || !at.After(now) {
			list = append(list, key)
			in.due[key] = now.Add(in.o.Quiet) // not again before it was delivered
		}
	}
	in.mu.Unlock()
	for _, key := range list {
		in.urge(key)
	}
}

// urge queues the delivery of a file's silence.
func (in *Ingester) urge(key fileKey) {
	is, ok := in.fileOf(tail.File{Root: key.root, Rel: key.rel}, nil)
	if !ok {
		in.forgetDue(key)
		in.release(key)
		return
	}
	in.workers.urge(is.Session, func(ctx context.Context) error { return in.hush(ctx, key, is) })
}

func (in *Ingester) forgetDue(key fileKey) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.due, key)
}
