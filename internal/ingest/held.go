package ingest

import (
	"context"
	"time"

	"github.com/tallylog/tally/internal/ingest/tail"
)

// What is held may be so much. It is less than the tailer lets be on its way of one file,
// and of all, so that there is room for what comes.
const (
	heldLines = 256
	heldBytes = 1 << 20
	heldFiles = 512
	heldTotal = 16 << 20
)

// held is a batch that is durable. The last one of a file is held until what follows from
// that nothing came is durable too: after a crash it comes again, and the file is asked
// again. A batch that is too large for that is acknowledged at once, and a crash right
// behind it leaves the file unasked until it goes on.
type held struct {
	batch *tail.Batch
	bytes int64
}

// done holds a batch that is durable, or acknowledges it.
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
	clear(b.Lines) // their bytes are not needed any more
	in.held[key] = held{b, size}
	in.status.held += size
	tooMuch := len(in.held) > heldFiles || in.status.held > heldTotal
	if tooMuch {
		for k := range in.held {
			if in.due[k].Before(in.due[key]) {
				key = k
			}
		}
		in.due[key] = in.o.now().Add(in.o.Quiet) // so that the next one is another
	}
	in.mu.Unlock()
	if tooMuch {
		in.urge(key)
	}
}

// release acknowledges what is held of a file.
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

// sizeOf is how many bytes of a file a batch has.
func sizeOf(b *tail.Batch) (n int64) {
	for i := range b.Lines {
		n += b.Lines[i].Len()
	}
	return n
}

// isDueIn has a file told that nothing came, after a while.
func (in *Ingester) isDueIn(key fileKey, d time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	at := in.o.now().Add(d)
	if len(in.due) == 0 || at.Before(in.dueFrom) {
		in.dueFrom = at
	}
	in.due[key] = at
}

// firstDue returns when something is due, or earlier. The caller holds mu.
func (in *Ingester) firstDue(now time.Time) time.Time {
	if now.Before(in.dueFrom) { // what was put off since counts when it would have been due
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

// hushAll tells all files that something came to that nothing comes, and returns how many
// they are.
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

// hushDue tells files to which nothing came for long enough; and those that are held, if
// nothing comes because of that: a long line is read alone.
func (in *Ingester) hushDue(isIdle bool) {
	lag := in.tailer.Status().Lag
	in.mu.Lock()
	now := in.o.now()
	isStuck := isIdle && len(in.held) > 0 && lag > in.status.held+in.status.undecided
	var list []fileKey
	for key, at := range in.due {
		if _, isHeld := in.held[key]; isStuck && isHeld || !at.After(now) {
			list = append(list, key)
			in.due[key] = now.Add(in.o.Quiet) // not again before it was done
		}
	}
	in.mu.Unlock()
	for _, key := range list {
		in.urge(key)
	}
}

// urge has a file told that nothing comes.
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
