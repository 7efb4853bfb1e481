package log

import "sync"

// large is the size, in bytes, of a series that views stand aside for.
const large = 64 << 10

// bulk tells of large series that are being appended.
type bulk struct {
	mu    sync.Mutex // guards what follows
	n     int
	begun chan struct{} // closed while n > 0; nil: nobody asked
	over  chan struct{} // closed while n == 0
}

// ready makes the channels. The caller holds mu.
func (b *bulk) ready() {
	if b.begun == nil {
		b.begun, b.over = make(chan struct{}), make(chan struct{})
		close(b.over)
	}
}

func (b *bulk) enter() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready()
	if b.n++; b.n == 1 {
		b.over = make(chan struct{})
		close(b.begun)
	}
}

func (b *bulk) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n--; b.n == 0 {
		b.begun = make(chan struct{})
		close(b.over)
	}
}

// Bulk returns what is closed while this Log is appending a large series, some 64 KiB
// or more, and what is closed while it is not. Both are of this moment: a caller that
// waits for the next change asks again.
func (l *Log) Bulk() (begun, over <-chan struct{}) {
	l.bulk.mu.Lock()
	defer l.bulk.mu.Unlock()
	l.bulk.ready()
	return l.bulk.begun, l.bulk.over
}
