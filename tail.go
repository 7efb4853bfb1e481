package tally

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// How much waits for a caller of Tail: records, and bytes of their data.
const (
	maxTailRecords = 1000
	maxTailBytes   = 4 << 20
)

// Tail yields the stored records of a range behind r.After, and then new ones, each once and in the order of the log,
// until ctx is done. It yields what [log.Log.Follow] does, but all callers of a process share one reader of the log,
// and the records: a caller must not change their data. The fields Upto, Known, Limit and Buffered of r must be zero.
//
// For a record that cannot be read it yields *events.DamageError and goes on. These errors end it: *LaggedError if the
// caller was too slow for the new records; log.ErrUnavailable if the store is closed, or the process that owns it has
// ended. After each, a Tail from the last yielded offset continues without gap or repeat. No caller delays another one
// or a writer.
func (st *Store) Tail(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		if r.Upto != 0 || r.Known != 0 || r.Limit != 0 || r.Buffered {
			yield(events.Record{}, &events.InvalidError{Field: "range", Reason: "want no upper bound, limit, known records or buffered records"})
			return
		}
		t := &tailReader{st: st, r: r, whole: true, most: maxTailRecords, selects: func(s events.Subject) bool {
			return events.Range{Subject: r.Subject, Namespace: r.Namespace, Kind: r.Kind}.Includes(s, 1)
		}}
		t.give = func(ctx context.Context, n notice) error {
			if n.err != nil && n.shared {
				return t.reread(ctx, n, yield)
			}
			t.over = !yield(n.rec, n.err)
			return nil
		}
		if err := t.read(ctx); err != nil {
			yield(events.Record{}, err)
		}
	}
}

// reread yields the error of a damaged record if the range has it. The shared reader does not know the record's subject.
func (t *tailReader) reread(ctx context.Context, n notice, yield func(events.Record, error) bool) error {
	r := t.r
	r.After, r.Upto = n.at-1, n.at
	for rec, err := range t.st.Log.Read(ctx, r) {
		if err != nil && !events.IsDamage(err) {
			return err
		}
		t.over = !yield(rec, err)
	}
	return nil
}

// tailReader yields the records of a range: those that the log has, and then those that the tail offers.
type tailReader struct {
	st      *Store
	r       events.Range // everything up to After was passed on
	selects func(events.Subject) bool
	whole   bool // records keep their data
	most    int  // records that wait
	give    func(context.Context, notice) error
	over    bool // pass on nothing more
	line    *line
}

// reached is called between the steps of a tailReader. Tests act there.
var reached = func(point string) {}

// read passes on records until ctx is done, the reader is over, or an error.
func (t *tailReader) read(ctx context.Context) error {
	for !t.over && ctx.Err() == nil {
		if err := t.round(ctx); err != nil {
			if t.over || ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
	return nil
}

// round passes on what the log has and then new records, until too many came while it was reading.
func (t *tailReader) round(ctx context.Context) error {
	t.line = &line{subject: t.r.Subject, selects: t.selects, whole: t.whole, most: t.most, more: make(chan struct{}, 1)}
	upto, err := t.st.tail.join(ctx, t.line)
	if err != nil {
		return err
	}
	defer t.st.tail.leave(t.line)
	reached("joined")
	if err := t.catchUp(ctx, upto); err != nil || t.over {
		return err
	}
	reached("caught up")
	if t.line.isFull() {
		return nil // it came during the read: the log has it
	}
	return t.live(ctx)
}

// catchUp passes on the log's records up to an offset.
func (t *tailReader) catchUp(ctx context.Context, upto events.Offset) error {
	if upto <= t.r.After {
		return nil
	}
	r := t.r
	r.Upto = upto
	for rec, err := range t.st.Log.Follow(ctx, r) {
		if err != nil && !events.IsDamage(err) {
			return err
		}
		if err == nil && !t.selects(rec.Subject) {
			continue
		}
		if err := t.pass(ctx, noticeOf(rec, err, t.whole)); err != nil || t.over {
			return err
		}
	}
	t.over = t.over || ctx.Err() != nil
	t.r.After = upto
	return nil
}

// live passes on new records.
func (t *tailReader) live(ctx context.Context) error {
	for {
		list, full, err := t.line.take()
		for _, n := range list {
			if n.at <= t.r.After {
				continue
			}
			n.shared = true
			if err := t.pass(ctx, n); err != nil || t.over {
				return err
			}
		}
		switch {
		case full:
			return &LaggedError{t.r.After}
		case err != nil:
			return err
		case len(list) > 0:
			continue
		}
		reached("waiting")
		select {
		case <-t.line.more:
		case <-ctx.Done():
			t.over = true
			return nil
		}
	}
}

func (t *tailReader) pass(ctx context.Context, n notice) error {
	if err := t.give(ctx, n); err != nil {
		return err
	}
	t.r.After = n.at
	return nil
}

// notice is a record, or the damage at its offset.
type notice struct {
	at     events.Offset
	rec    events.Record // the data may have been left out
	len    int           // of its data
	err    error
	shared bool // the tail's: damage may be that of another subject
}

// noticeOf returns the notice of a record that was read, or of the error. Unless it is to be whole, it lacks the data.
func noticeOf(rec events.Record, err error, whole bool) notice {
	if damage, ok := errors.AsType[*events.DamageError](err); ok {
		return notice{at: damage.Offset, err: err}
	}
	n := notice{at: rec.Offset, rec: rec, len: len(rec.Data)}
	if !whole && rec.Type != events.TypeDocumentDeleted { // the data of a deletion are kept: they have its reason
		n.rec.Data = nil
	}
	return n
}

// line is the queue of records that wait for a reader.
type line struct {
	subject events.Subject // the only one, unless it is zero
	selects func(events.Subject) bool
	whole   bool          // records keep their data
	most    int           // records that wait
	more    chan struct{} // something came

	mu    sync.Mutex // guards the fields below
	list  []notice
	bytes int   // of data in list
	full  bool  // a record found no room, and no more are taken
	err   error // why no more records come
}

// offer adds a record if there is room. It never blocks.
func (l *line) offer(rec events.Record, err error) {
	if err == nil && !l.selects(rec.Subject) {
		return
	}
	n := noticeOf(rec, err, l.whole)
	size := len(n.rec.Data)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.full:
		return
	case len(l.list) == l.most || len(l.list) > 0 && l.bytes+size > maxTailBytes:
		l.full = true
	default:
		l.list, l.bytes = append(l.list, n), l.bytes+size
	}
	l.wake()
}

// end marks that no more records come, and why.
func (l *line) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	l.wake()
}

func (l *line) wake() {
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// take returns the waiting records, whether a later one found no room, and the error after which no more come.
func (l *line) take() (list []notice, full bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list, l.list, l.bytes = l.list, nil, 0
	return list, l.full, l.err
}

func (l *line) isFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.full
}

// tail reads new records for all watchers and followers of a store, while there are any.
type tail struct {
	src     *log.Log
	running sync.WaitGroup

	mu  sync.Mutex // guards the fields below
	now *following // nil: there are no lines
}

// following is a tail while it reads. The tail's mu guards it.
type following struct {
	lines map[events.Subject]map[*line]bool // by the only subject of a line, zero for the others
	at    events.Offset                     // everything up to here was offered
	stop  context.CancelFunc
}

// join makes the tail offer a line all records behind the returned offset.
func (t *tail) join(ctx context.Context, l *line) (events.Offset, error) {
	head, err := t.src.Durable(ctx)
	if err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == nil {
		life, stop := context.WithCancel(context.Background()) // until the last line leaves, or the log is closed
		f := &following{lines: make(map[events.Subject]map[*line]bool), at: head, stop: stop}
		t.now = f
		t.running.Go(func() { t.follow(life, f, head) })
	}
	if t.now.lines[l.subject] == nil {
		t.now.lines[l.subject] = make(map[*line]bool)
	}
	t.now.lines[l.subject][l] = true
	return t.now.at, nil
}

// leave stops offering records to a line.
func (t *tail) leave(l *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == nil {
		return
	}
	delete(t.now.lines[l.subject], l)
	if len(t.now.lines[l.subject]) == 0 {
		delete(t.now.lines, l.subject)
	}
	if len(t.now.lines) == 0 {
		t.now.stop()
		t.now = nil
	}
}

// follow offers new records to the lines. When it ends, it passes its error to all of them.
func (t *tail) follow(life context.Context, f *following, after events.Offset) {
	defer f.stop()
	for rec, err := range t.src.Follow(life, events.Range{After: after}) {
		if err != nil && !events.IsDamage(err) {
			t.end(f, err)
			return
		}
		at := noticeOf(rec, err, false).at
		t.mu.Lock()
		f.at = at
		if err != nil {
			for _, lines := range f.lines {
				offer(lines, rec, err)
			}
		} else {
			offer(f.lines[rec.Subject], rec, nil)
			offer(f.lines[events.Subject{}], rec, nil)
		}
		t.mu.Unlock()
	}
}

func offer(lines map[*line]bool, rec events.Record, err error) {
	for l := range lines {
		l.offer(rec, err)
	}
}

// end tells all lines why no more records come. The next join starts a new tail.
func (t *tail) end(f *following, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, lines := range f.lines {
		for l := range lines {
			l.end(err)
		}
	}
	if t.now == f {
		t.now = nil
	}
}

// wait returns when no tail reads any more, after the log was closed.
func (t *tail) wait() { t.running.Wait() }
