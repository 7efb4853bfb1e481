package ingest

import (
	"context"

	"github.com/tallylog/tally/internal/tail"
)

// What is held may be so much. It is less than the tailer lets be on its way of one file,
// and of all, so that there is room for what comes.
const (
	heldLines = 256
	heldBytes = 1 << 20
	heldFiles = 32
)

// done acknowledges a batch that is durable. The last one of a file is held until what
// follows from that nothing came is durable too: after a crash it comes again, and the file
// is asked again. A batch that is too large for that is acknowledged at once, and a crash
// right behind it leaves the file unasked until it goes on.
func (in *Ingester) done(ctx context.Context, b *tail.Batch) error {
	if b.Kind != tail.Lines && b.Kind != tail.Rewritten {
		in.tailer.Ack(b)
		return nil
	}
	key := keyOf(b.File)
	in.release(key)
	if _, isDue := in.due[key]; !isDue || len(b.Lines) > heldLines || sizeOf(b) > heldBytes {
		in.tailer.Ack(b)
		return nil
	}
	in.held[key] = b
	in.count(func(s *Status) { s.held += sizeOf(b) })
	if len(in.held) <= heldFiles {
		return nil
	}
	oldest := key
	for k := range in.held {
		if in.due[k].Before(in.due[oldest]) {
			oldest = k
		}
	}
	return in.hush(ctx, oldest)
}

// release acknowledges what is held of a file.
func (in *Ingester) release(key fileKey) {
	if b := in.held[key]; b != nil {
		delete(in.held, key)
		in.count(func(s *Status) { s.held -= sizeOf(b) })
		in.tailer.Ack(b)
	}
}

// sizeOf is how many bytes of a file a batch has.
func sizeOf(b *tail.Batch) (n int64) {
	for i := range b.Lines {
		n += b.Lines[i].Len()
	}
	return n
}
