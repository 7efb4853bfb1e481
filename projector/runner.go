package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallylog/tally/events"
)

// Cursor is how far a view has got: a place in the log, and the event there. A log
// that has another event at that place is another log.
type Cursor struct {
	Offset   events.Offset
	EventID  string
	Recorded time.Time // of the event

	// Head is where the log ended when it was last looked at: a reader of the view
	// without the log knows by it whether there is more.
	Head events.Offset
}

// Quarantine is a subject that a view could not fold: it stays in the view as it
// was before the record at Offset, until it is tried again.
type Quarantine struct {
	Subject events.Subject
	Offset  events.Offset
	Reason  string
}

// View is a fold over many subjects that is kept somewhere. A Runner brings it up
// to date; it makes one call at a time.
type View interface {
	// Name says which view it is, for people.
	Name() string
	// Begin forgets what was applied and not committed, and returns what is stored. What
	// is stored and cannot be used is gone afterwards, and the cursor is zero.
	Begin(ctx context.Context) (Cursor, []Quarantine, error)
	// Apply folds the next record. A *FoldError, or a panic, is of the record's
	// subject alone; any other error is of the view.
	Apply(ctx context.Context, f Fact) error
	// Quarantine takes back what was applied of a subject since the last commit. The
	// next commit stores the fact.
	Quarantine(q Quarantine)
	// Held is about how many bytes of memory what was applied takes until it is
	// committed.
	Held() int64
	// Commit stores everything that was applied, and the cursor, all or nothing.
	Commit(ctx context.Context, c Cursor) error
	// Reset empties the view: it is of another log.
	Reset(ctx context.Context) error
	// Forget takes a subject out of the view and out of quarantine, at the next commit:
	// it is about to be folded from its first record on.
	Forget(ctx context.Context, sub events.Subject) error
}

// Selective is a View that looks at some subjects only. Of a record of another one it is
// told that it was there, without its data: that is neither read nor decoded.
type Selective interface {
	Wants(sub events.Subject) bool
}

// ErrMoved says that somebody else has written the view since it was begun. What was
// applied is not stored; begun again, the view goes on from where it is.
var ErrMoved = errors.New("projector: somebody else has written the view")

// FoldError says that a record cannot be folded. It is the fold's own failure: what
// is wrong with an input makes the record void.
type FoldError struct{ Err error }

func (e *FoldError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *FoldError) Unwrap() error { return e.Err }

// lacking is a View that remembers that it was made without records that cannot be read: what
// it shows may be incomplete, and those who read it say so.
type lacking interface {
	Lacks(ctx context.Context) error
}

// Runner brings one view up to date with the log and keeps it so: it reads what there
// is, and what comes at its Pace. Records are decoded beside the fold, as many ahead of
// it as Ahead allows.
type Runner struct {
	Log      Follower
	View     View
	Logger   *slog.Logger // default: discard
	MaxValue int64        // largest value kept by reference, in bytes; default events.MaxValue

	Batch int           // most records of a commit; default: any number
	Hold  int64         // bytes that a view holds before it commits; default 8 MiB
	Ahead int64         // bytes of data decoded ahead; default 4 MiB, one record always
	Leave time.Duration // how long a runner that stops may catch up; default 1 s
	Upto  events.Offset // where CatchUp ends at the latest; 0: where the log does
	Pace  Pace          // while nobody waits for the view; default: each record as it comes

	// Costly is a view that takes long for a record. While many records come it rests much longer
	// than it works, so that it takes little from those who append, and falls behind.
	Costly bool

	// Room is asked before anything is written: as long as it returns an error the view
	// stands still, and Wait returns that error. Default: there is always room.
	Room func() error

	mu          sync.Mutex    // guards what follows
	waiting     int           // calls of Wait
	hurry       chan struct{} // closed when there is one
	cursor      Cursor
	head        events.Offset // of the log, when it was last looked at
	quarantined map[events.Subject]Quarantine
	moved       chan struct{} // closed when cursor moves, or full is set
	full        error         // what Room said last

	lacks atomic.Bool // a record was passed over that cannot be read, and the view was not told
}

const (
	maxWait = 5 * time.Second      // between two tries of a view that fails
	window  = 2 * time.Millisecond // in which records that come one by one are gathered for a commit
)

func (r *Runner) withDefaults() {
	r.Logger = cmp.Or(r.Logger, slog.New(slog.DiscardHandler))
	r.MaxValue = cmp.Or(r.MaxValue, events.MaxValue)
	r.Batch = cmp.Or(r.Batch, math.MaxInt)
	r.Hold = cmp.Or(r.Hold, 8<<20)
	r.Ahead = cmp.Or(r.Ahead, 4<<20)
	r.Leave = cmp.Or(r.Leave, time.Second)
}

// Run keeps the view up to date until ctx is done. Then it catches up with the log
// for Leave at most. A view that fails is begun again, a little later each time.
func (r *Runner) Run(ctx context.Context) {
	r.withDefaults()
	r.Pace.rest(ctx, r.Log, r.hurried()) // a program that opens a log mostly has something to append, and goes first
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, maxWait) {
		before := r.Cursor()
		err := r.follow(ctx)
		if ctx.Err() != nil {
			break
		}
		if r.Cursor().Offset != before.Offset {
			wait = 10 * time.Millisecond
		}
		level := slog.LevelWarn
		if errors.Is(err, ErrMoved) {
			level = slog.LevelInfo // as it is when the view is built anew
		}
		r.Logger.Log(ctx, level, "view stands still, and is tried again", "view", r.View.Name(), "after", uint64(r.Cursor().Offset), "err", err)
		sleep(ctx, wait)
	}
	if err := r.leave(context.WithoutCancel(ctx)); err != nil {
		r.Logger.Warn("view is left behind", "view", r.View.Name(), "after", uint64(r.Cursor().Offset), "err", err)
	}
}

// leave catches up with the log. If there is no time for that, it has the view say
// how far the log goes.
func (r *Runner) leave(ctx context.Context) error {
	last, cancel := context.WithTimeout(ctx, r.Leave)
	defer cancel()
	if err := r.CatchUp(last, nil); err == nil || last.Err() == nil {
		return err
	}
	c, _, err := r.View.Begin(ctx)
	if err == nil && c.Offset < r.head {
		c.Head = r.head
		err = r.commit(ctx, c)
	}
	return err
}

// sleep returns after a while, or when ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (r *Runner) follow(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	l := &rapids{Follower: r.Log, costly: r.Costly, last: r.Cursor().Offset, at: time.Now()}
	for {
		began := time.Now()
		// What is there already a read yields with less effort than a follow.
		if err := r.pump(ctx, r.Log.Read, 0, func(c Cursor) { l.came(c.Offset) }); err != nil {
			return err
		}
		l.shown(time.Since(began))
		if err := r.pump(ctx, r.Pace.follow(l), window, func(c Cursor) { l.came(c.Offset) }); err != nil {
			return err
		}
		r.Pace.rest(ctx, l, r.hurried())
	}
}

// CatchUp brings the view to where the log ends now. progress, if not nil, is told
// of each commit. Another process that writes the view meanwhile does a part of the work.
func (r *Runner) CatchUp(ctx context.Context, progress func(Cursor)) error {
	r.withDefaults()
	for {
		err := r.catchUp(ctx, progress)
		if !errors.Is(err, ErrMoved) || ctx.Err() != nil {
			return err
		}
	}
}

func (r *Runner) catchUp(ctx context.Context, progress func(Cursor)) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	return r.pump(ctx, r.Log.Read, 0, progress)
}

// Retry folds each subject that the view left aside from its first record on. It
// returns those that are in the view again.
func (r *Runner) Retry(ctx context.Context) ([]Quarantine, error) {
	r.withDefaults()
	_, aside, err := r.View.Begin(ctx)
	var mended []Quarantine
	for _, q := range aside {
		err := r.retry(ctx, q.Subject)
		if _, again := errors.AsType[*FoldError](err); again {
			r.Logger.Warn("subject stays in quarantine", "view", r.View.Name(), "subject", q.Subject, "reason", err.Error())
			continue
		}
		if err != nil {
			return mended, err
		}
		mended = append(mended, q)
	}
	return mended, err
}

// retry folds one subject up to where the view is, or leaves the view as it was.
func (r *Runner) retry(ctx context.Context, sub events.Subject) error {
	c, _, err := r.View.Begin(ctx)
	if err == nil {
		err = r.View.Forget(ctx, sub)
	}
	if err != nil {
		return err
	}
	var kept blobs
	for rec, err := range r.Log.Read(ctx, events.Range{Subject: sub, Upto: c.Offset}) {
		if err == nil {
			rec, err = kept.resolve(ctx, r.Log, rec, r.MaxValue)
		}
		if events.IsDamage(err) {
			continue
		}
		if err == nil {
			err = r.tryApply(ctx, Decode(rec))
		}
		if err != nil {
			return err
		}
	}
	return r.View.Commit(ctx, c)
}

// begin finds out where the view stands, and whether it is of this log.
func (r *Runner) begin(ctx context.Context) error {
	if err := r.room(); err != nil {
		return err
	}
	cursor, quarantined, err := r.View.Begin(ctx)
	if err != nil {
		return err
	}
	if r.head, err = r.Log.Head(ctx); err != nil {
		return err
	}
	reason, err := r.unknown(ctx, cursor)
	if err != nil {
		return err
	}
	if reason != "" {
		r.Logger.Warn("view is built anew", "view", r.View.Name(), "reason", reason)
		if err := r.View.Reset(ctx); err != nil {
			return err
		}
		cursor, quarantined = Cursor{}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quarantined = make(map[events.Subject]Quarantine)
	for _, q := range quarantined {
		r.quarantined[q.Subject] = q
	}
	r.moveTo(cursor)
	return nil
}

// room reports why nothing may be written now, and tells those who wait.
func (r *Runner) room() error {
	if r.Room == nil {
		return nil
	}
	err := r.Room()
	if err != nil {
		err = fmt.Errorf("view %s stands still: %w", r.View.Name(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full = err; err != nil {
		r.moveTo(r.cursor)
	}
	return err
}

// unknown says why a cursor is not one of this log; "" if it is.
func (r *Runner) unknown(ctx context.Context, c Cursor) (reason string, err error) {
	if c.Offset == 0 {
		return "", nil
	}
	if c.Offset > r.head {
		return fmt.Sprintf("it is at %v, the log ends at %v", c.Offset, r.head), nil
	}
	rec, err := r.Log.Record(ctx, c.Offset)
	if damage, ok := errors.AsType[*events.DamageError](err); ok {
		return damage.Error(), nil
	}
	if err == nil && rec.ID != c.EventID {
		return fmt.Sprintf("the log has event %q at %v, not %q", rec.ID, c.Offset, c.EventID), nil
	}
	return "", err
}

// moveTo says where the view is. The caller holds the lock.
func (r *Runner) moveTo(c Cursor) {
	r.cursor = c
	if r.moved != nil {
		close(r.moved)
		r.moved = nil
	}
}

// pump applies the records after the cursor and commits them, until there are no
// more.
func (r *Runner) pump(ctx context.Context, read reading, window time.Duration, progress func(Cursor)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	q := &queue{limit: r.Ahead, facts: make(chan decoded, 64), room: make(chan struct{}, 1)}
	go r.decode(ctx, read(ctx, events.Range{After: r.Cursor().Offset, Upto: r.Upto}), q)
	defer q.drain()
	defer stop()
	for {
		c, more, err := r.batch(ctx, q, window)
		if err != nil {
			return err
		}
		if v, is := r.View.(lacking); is && r.lacks.Swap(false) { // before those who wait for the cursor read
			if err := v.Lacks(ctx); err != nil {
				return err
			}
		}
		if c.Offset != r.Cursor().Offset {
			if err := r.commit(ctx, c); err != nil {
				return err
			}
			if progress != nil {
				progress(c)
			}
		}
		if !more || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// decode fills the queue. It is the other half of the work, done beside the fold.
func (r *Runner) decode(ctx context.Context, records iter.Seq2[events.Record, error], q *queue) {
	defer close(q.facts)
	var kept blobs
	for rec, err := range records {
		d := decoded{err: err}
		if err == nil {
			d.fact, d.err = r.factOf(ctx, &kept, rec)
		}
		if events.IsDamage(d.err) {
			r.lacks.Store(true)
			continue // reads and verify name it; the cursor stays at a record that can be recognised
		}
		if !q.put(ctx, d) || d.err != nil {
			return
		}
	}
}

// factOf reads and decodes what a record holds, if the view looks at its subject.
func (r *Runner) factOf(ctx context.Context, kept *blobs, rec events.Record) (Fact, error) {
	if v, ok := r.View.(Selective); ok && !v.Wants(rec.Subject) {
		rec.Data, rec.Extensions = nil, nil
		return Fact{Record: rec}, nil
	}
	rec, err := kept.resolve(ctx, r.Log, rec, r.MaxValue)
	if err != nil {
		return Fact{}, err
	}
	return Decode(rec), nil
}

// batch applies the next records until a commit is due: the view holds enough, nothing
// more is there behind a window, if there is one, or ctx is done, so that nothing was
// done in vain. more is false at the end of the records.
func (r *Runner) batch(ctx context.Context, q *queue, window time.Duration) (c Cursor, more bool, err error) {
	c = r.Cursor()
	d, more := <-q.facts
	var over <-chan time.Time
	if window > 0 {
		over = time.After(window)
	}
	for n := 1; more; n++ {
		q.took(d)
		err := d.err
		if err == nil {
			err = r.apply(ctx, d.fact)
		}
		if err != nil {
			return c, false, err
		}
		c = Cursor{d.fact.Offset, d.fact.ID, d.fact.Recorded, max(r.head, d.fact.Offset)}
		if n == r.Batch || r.View.Held() >= r.Hold || ctx.Err() != nil {
			return c, true, nil
		}
		select {
		case d, more = <-q.facts:
			continue
		default:
		}
		select {
		case d, more = <-q.facts:
		case <-over:
			return c, true, nil
		}
	}
	return c, false, nil
}

// apply folds one record. What goes wrong in the fold puts its subject aside; the
// view goes on with the others.
func (r *Runner) apply(ctx context.Context, f Fact) error {
	if _, aside := r.quarantined[f.Subject]; aside { // only this goroutine changes it while a view runs
		return nil
	}
	err := r.tryApply(ctx, f)
	fold, ok := errors.AsType[*FoldError](err)
	if !ok {
		return err
	}
	q := Quarantine{f.Subject, f.Offset, fold.Error()}
	r.Logger.Warn("subject is quarantined", "view", r.View.Name(), "subject", f.Subject, "offset", uint64(f.Offset), "reason", q.Reason)
	r.View.Quarantine(q)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quarantined[f.Subject] = q
	return nil
}

func (r *Runner) tryApply(ctx context.Context, f Fact) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &FoldError{fmt.Errorf("panic: %v", p)}
		}
	}()
	return r.View.Apply(ctx, f)
}

func (r *Runner) commit(ctx context.Context, c Cursor) error {
	if err := r.room(); err != nil {
		return err
	}
	if err := r.View.Commit(ctx, c); err != nil {
		return err // before here: the batch is applied again from the old cursor
	}
	// Committed: rows and cursor are one. Readers may see c already.
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moveTo(c)
	return nil
}

// Cursor is how far the view has got.
func (r *Runner) Cursor() Cursor {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cursor
}

// Quarantined counts the subjects that the view leaves alone.
func (r *Runner) Quarantined() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.quarantined)
}

// Wait returns when the view shows at least the record at an offset. A view does not
// rest while somebody waits.
func (r *Runner) Wait(ctx context.Context, at events.Offset) error {
	defer r.await()()
	for {
		r.mu.Lock()
		if r.moved == nil {
			r.moved = make(chan struct{})
		}
		reached, moved, full := r.cursor.Offset, r.moved, r.full
		r.mu.Unlock()
		if reached >= at {
			return nil
		}
		if full != nil {
			return fmt.Errorf("projector: %w", full)
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("projector: view %s is at %v, waiting for %v: %w", r.View.Name(), reached, at, ctx.Err())
		}
	}
}

// await ends the view's rest, and keeps it from resting until done is called.
func (r *Runner) await() (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting++; r.waiting == 1 {
		close(r.hurriedLocked())
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.waiting--; r.waiting == 0 {
			r.hurry = nil
		}
	}
}

// hurried returns what is closed when somebody waits.
func (r *Runner) hurried() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hurriedLocked()
}

// hurriedLocked returns the channel of this moment, open if nobody waits. The caller
// holds mu.
func (r *Runner) hurriedLocked() chan struct{} {
	if r.hurry == nil {
		r.hurry = make(chan struct{})
	}
	return r.hurry
}

// decoded is a fact on its way to the fold, or the error that ends the way.
type decoded struct {
	fact Fact
	err  error
}

// queue holds facts between decoding and folding, and no more bytes of them than
// allowed, unless it is a single one.
type queue struct {
	limit int64
	bytes atomic.Int64
	facts chan decoded
	room  chan struct{} // somebody took something
}

// put waits for room. It is false if ctx ended first.
func (q *queue) put(ctx context.Context, d decoded) bool {
	size := int64(len(d.fact.Data))
	for q.bytes.Load() > 0 && q.bytes.Load()+size > q.limit {
		select {
		case <-q.room:
		case <-ctx.Done():
			return false
		}
	}
	q.bytes.Add(size)
	select {
	case q.facts <- d:
		return true
	case <-ctx.Done():
		return false
	}
}

func (q *queue) took(d decoded) {
	q.bytes.Add(-int64(len(d.fact.Data)))
	select {
	case q.room <- struct{}{}:
	default: // the writer will look
	}
}

// drain returns when the writer is gone.
func (q *queue) drain() {
	for d := range q.facts {
		q.took(d)
	}
}
