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

// Cursor is the progress of a view: an offset of the log, and the event there. If a log has another event at that
// offset, it is another log.
type Cursor struct {
	Offset   events.Offset
	EventID  string
	Recorded time.Time // of the event

	// Head is the end of the log when it was last read. A reader of the view without the log compares it with Offset to
	// see whether the view is behind.
	Head events.Offset
}

// Quarantine is a subject that a view could not fold. It stays in the view in its state before the record at Offset,
// until a retry.
type Quarantine struct {
	Subject events.Subject
	Offset  events.Offset
	Reason  string
}

// View is a stored fold of many subjects. A Runner updates it, one call at a time.
type View interface {
	// Name returns the name of the view, for messages.
	Name() string
	// Begin discards uncommitted changes and returns the stored progress. If the stored view is unusable, Begin removes
	// it and returns a zero cursor.
	Begin(ctx context.Context) (Cursor, []Quarantine, error)
	// Apply folds the next record. A *FoldError, or a panic, affects only the record's subject; any other error affects
	// the view.
	Apply(ctx context.Context, f Fact) error
	// Quarantine reverts the uncommitted changes of a subject. The next commit stores the quarantine.
	Quarantine(q Quarantine)
	// Held returns the approximate memory of the uncommitted changes, in bytes.
	Held() int64
	// Commit stores all applied changes and the cursor, all or nothing.
	Commit(ctx context.Context, c Cursor) error
	// Reset empties the view, because it belongs to another log.
	Reset(ctx context.Context) error
	// Forget removes a subject from the view and from quarantine, at the next commit. It is called before the subject
	// is folded again from its first record.
	Forget(ctx context.Context, sub events.Subject) error
}

// Selective is a View of some subjects only. Records of other subjects reach it without their data, which are neither
// read nor decoded.
type Selective interface {
	Wants(sub events.Subject) bool
}

// ErrMoved reports that another process has written the view since Begin. The changes are not stored. After another
// Begin, the view continues from its new position.
var ErrMoved = errors.New("projector: another process has written the view")

// FoldError reports that a record cannot be folded. The fold is at fault: invalid input makes the record rejected
// instead.
type FoldError struct{ Err error }

func (e *FoldError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *FoldError) Unwrap() error { return e.Err }

// lacking is a View that stores a flag that it was made without unreadable records. Its content may be incomplete, and
// its readers report that.
type lacking interface {
	Lacks(ctx context.Context) error
}

// reader is a View that reads the log itself. Uses is called before Begin.
type reader interface {
	Uses(l *Loader)
}

// setter is a View that folds records when it commits them. SetAside returns the subjects that the last commit put into
// quarantine.
type setter interface {
	SetAside() []Quarantine
}

// Runner updates one view from the log: first with the existing records, then with new ones at its Pace. It decodes
// records concurrently, ahead of the fold by up to Ahead bytes.
type Runner struct {
	Log      Follower
	View     View
	Logger   *slog.Logger // default: discard
	MaxValue int64        // largest value stored by reference, in bytes; default events.MaxValue

	Batch int           // maximum number of records of a commit; default: unlimited
	Hold  int64         // a view that holds so many bytes commits; default 8 MiB
	Ahead int64         // bytes of data decoded ahead; default 4 MiB, at least one record
	Leave time.Duration // how long a stopping runner may catch up; default 1 s
	Upto  events.Offset // last offset that CatchUp applies; 0: the end of the log
	Pace  Pace          // applies while no reader waits for the view; default: each record at once

	// Costly marks a view that takes long for a record. While many records arrive, it rests much longer than it works.
	// So it takes little time from producers, and lags.
	Costly bool

	// Room is called before each write. While it returns an error, the view pauses and Wait returns that error.
	// Default: always room.
	Room func() error

	mu          sync.Mutex    // guards the fields below
	waiting     int           // calls of Wait
	hurry       chan struct{} // closed while Wait is called
	cursor      Cursor
	head        events.Offset // end of the log at the last read
	quarantined map[events.Subject]Quarantine
	moved       chan struct{} // closed when cursor moves or full is set
	full        error         // last error of Room
	runs        bool          // Run is running
	asked       []func(life context.Context)
	interrupt   func() // makes Run look at asked

	lacks atomic.Bool // an unreadable record was skipped and the view was not told
}

const (
	maxWait      = 5 * time.Second      // between two attempts of a failing view
	commitWindow = 2 * time.Millisecond // single records that arrive within it share a commit
)

func (r *Runner) withDefaults() {
	r.Logger = cmp.Or(r.Logger, slog.New(slog.DiscardHandler))
	r.MaxValue = cmp.Or(r.MaxValue, events.MaxValue)
	r.Batch = cmp.Or(r.Batch, math.MaxInt)
	r.Hold = cmp.Or(r.Hold, 8<<20)
	r.Ahead = cmp.Or(r.Ahead, 4<<20)
	r.Leave = cmp.Or(r.Leave, time.Second)
	if v, ok := r.View.(reader); ok {
		v.Uses(&Loader{Source: r.Log, MaxValue: r.MaxValue, Logger: r.Logger, ReadOnly: true})
	}
}

// Run keeps the view up to date until ctx is done. Then it catches up with the log, for at most Leave. If the view
// fails, Run starts it again with a growing delay.
func (r *Runner) Run(ctx context.Context) {
	var running sync.WaitGroup
	r.Start(ctx, &running)
	running.Wait()
}

// Start calls Run in a goroutine of a group. When Start returns, other goroutines may read the fields of r, and Refold
// is a task of that goroutine.
func (r *Runner) Start(ctx context.Context, group *sync.WaitGroup) {
	r.withDefaults()
	ends := r.starts()
	group.Go(func() {
		defer ends()
		r.run(ctx)
	})
}

func (r *Runner) run(ctx context.Context) {
	r.Pace.rest(ctx, r.Log, r.hurried()) // a program that opens a log usually appends first, and has priority
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, maxWait) {
		before := r.Cursor()
		isAsked, err := r.followUntilAsked(ctx)
		if ctx.Err() != nil {
			break
		}
		if isAsked {
			continue
		}
		if r.Cursor().Offset != before.Offset {
			wait = 10 * time.Millisecond
		}
		level := slog.LevelWarn
		if errors.Is(err, ErrMoved) {
			level = slog.LevelInfo // normal while the view is rebuilt
		}
		r.Logger.Log(ctx, level, "view stopped, will retry", "view", r.View.Name(), "after", uint64(r.Cursor().Offset), "err", err)
		sleep(ctx, wait)
	}
	if err := r.leave(context.WithoutCancel(ctx)); err != nil {
		r.Logger.Warn("view does not reach the end of the log", "view", r.View.Name(), "after", uint64(r.Cursor().Offset), "err", err)
	}
}

// leave catches up with the log. If the time is too short, it stores the end of the log in the view.
func (r *Runner) leave(ctx context.Context) error {
	last, cancel := context.WithTimeout(ctx, r.Leave)
	defer cancel()
	if err := r.CatchUp(last, nil); err == nil || last.Err() == nil {
		return err
	}
	c, _, err := r.View.Begin(ctx)
	if err != nil {
		return err
	}
	if head, ok := r.end(ctx); ok { // CatchUp may have ended before it asked
		r.head = head
	}
	if c.Offset < r.head {
		c.Head = r.head
		err = r.commit(ctx, c)
	}
	return err
}

// end returns the end of the log, if the log answers in time.
func (r *Runner) end(ctx context.Context) (events.Offset, bool) {
	ctx, cancel := context.WithTimeout(ctx, r.Leave)
	defer cancel()
	head, err := r.Log.Head(ctx)
	return head, err == nil
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
		// For existing records, Read costs less than Follow.
		if err := r.pump(ctx, r.Log.Read, 0, func(c Cursor) { l.came(c.Offset) }); err != nil {
			return err
		}
		l.shown(time.Since(began))
		if err := r.pump(ctx, r.Pace.follow(l), commitWindow, func(c Cursor) { l.came(c.Offset) }); err != nil {
			return err
		}
		r.Pace.rest(ctx, l, r.hurried())
	}
}

// CatchUp updates the view to the current end of the log. progress, if not nil, is called after each commit. Another
// process that writes the view meanwhile does a part of the work.
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

// Retry folds each quarantined subject from its first record. It returns the recovered subjects.
func (r *Runner) Retry(ctx context.Context) ([]Quarantine, error) {
	r.withDefaults()
	_, aside, err := r.View.Begin(ctx)
	var mended []Quarantine
	for _, q := range aside {
		_, err := r.retry(ctx, q.Subject)
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

// retry folds one subject up to the view's cursor. On an error it leaves the view unchanged, unless the view is a setter.
// A *FoldError comes with the offset of the record.
func (r *Runner) retry(ctx context.Context, sub events.Subject) (events.Offset, error) {
	c, _, err := r.View.Begin(ctx)
	if err == nil && c.Offset == 0 {
		return 0, nil // the view has nothing yet
	}
	if err == nil {
		err = r.View.Forget(ctx, sub)
	}
	if err != nil {
		return 0, err
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
			return rec.Offset, err
		}
	}
	if err := r.View.Commit(ctx, c); err != nil {
		return 0, err
	}
	for _, q := range r.setAside() {
		if q.Subject == sub {
			return q.Offset, &FoldError{errors.New(q.Reason)}
		}
	}
	return 0, nil
}

// setAside returns the subjects that the last commit put into quarantine.
func (r *Runner) setAside() []Quarantine {
	if v, ok := r.View.(setter); ok {
		return v.SetAside()
	}
	return nil
}

// begin reads the view's cursor and checks that it belongs to this log.
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
		r.Logger.Warn("view is rebuilt", "view", r.View.Name(), "reason", reason)
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

// room returns why writes are impossible now, and notifies the callers of Wait.
func (r *Runner) room() error {
	if r.Room == nil {
		return nil
	}
	err := r.Room()
	if err != nil {
		err = fmt.Errorf("view %s stopped: %w", r.View.Name(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full = err; err != nil {
		r.moveTo(r.cursor)
	}
	return err
}

// unknown returns why a cursor does not belong to this log, or "".
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

// moveTo sets the cursor. The caller holds mu.
func (r *Runner) moveTo(c Cursor) {
	r.cursor = c
	if r.moved != nil {
		close(r.moved)
		r.moved = nil
	}
}

// pump applies the records after the cursor and commits them, until the records end.
func (r *Runner) pump(ctx context.Context, read reading, window time.Duration, progress func(Cursor)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	q := &factQueue{limit: r.Ahead, facts: make(chan decoded, 64), room: make(chan struct{}, 1)}
	go r.decode(ctx, read(ctx, events.Range{After: r.Cursor().Offset, Upto: r.Upto}), q)
	defer q.drain()
	defer stop()
	for {
		c, more, err := r.batch(ctx, q, window)
		if err != nil {
			return err
		}
		if v, is := r.View.(lacking); is && r.lacks.Swap(false) { // before waiting readers see the cursor
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

// decode fills the queue, concurrently with the fold.
func (r *Runner) decode(ctx context.Context, records iter.Seq2[events.Record, error], q *factQueue) {
	defer close(q.facts)
	var kept blobs
	for rec, err := range records {
		d := decoded{err: err}
		if err == nil {
			d.fact, d.err = r.factOf(ctx, &kept, rec)
		}
		if events.IsDamage(d.err) {
			r.lacks.Store(true)
			continue // reads and verify report it; the cursor stays at a recognisable record
		}
		if !q.put(ctx, d) || d.err != nil {
			return
		}
	}
}

// factOf reads and decodes a record, if the view wants its subject.
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

// batch applies records until a commit is due: the view holds enough, no record arrived within window, or ctx is done,
// so that the work so far is kept. more is false at the end of the records.
func (r *Runner) batch(ctx context.Context, q *factQueue, window time.Duration) (c Cursor, more bool, err error) {
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

// apply folds one record. If the fold fails, apply quarantines the subject and the view continues with the others.
func (r *Runner) apply(ctx context.Context, f Fact) error {
	if _, aside := r.quarantined[f.Subject]; aside { // only this goroutine writes the map while a view runs
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
		return err // a crash before this point applies the batch again from the old cursor
	}
	// Committed: rows and cursor are one. Readers may see c already.
	aside := r.setAside()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range aside {
		r.Logger.Warn("subject is quarantined", "view", r.View.Name(), "subject", q.Subject, "offset", uint64(q.Offset), "reason", q.Reason)
		r.quarantined[q.Subject] = q
	}
	r.moveTo(c)
	return nil
}

// Cursor returns the progress of the view.
func (r *Runner) Cursor() Cursor {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cursor
}

// Quarantined returns the number of quarantined subjects.
func (r *Runner) Quarantined() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.quarantined)
}

// Wait returns when the view has applied the record at an offset. A view does not rest during Wait.
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

// await ends the view's rest, and prevents it until done is called.
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

// hurried returns a channel that is closed while Wait is called.
func (r *Runner) hurried() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hurriedLocked()
}

// hurriedLocked returns the current channel, open if there is no call of Wait. The caller holds mu.
func (r *Runner) hurriedLocked() chan struct{} {
	if r.hurry == nil {
		r.hurry = make(chan struct{})
	}
	return r.hurry
}

// decoded is a fact for the fold, or the error that ends the records.
type decoded struct {
	fact Fact
	err  error
}

// factQueue holds facts between decoding and folding. It is bounded in bytes, but always takes a single fact.
type factQueue struct {
	limit int64
	bytes atomic.Int64
	facts chan decoded
	room  chan struct{} // signals that a fact was taken
}

// put waits for room and adds the fact. It returns false if ctx ended first.
func (q *factQueue) put(ctx context.Context, d decoded) bool {
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

func (q *factQueue) took(d decoded) {
	q.bytes.Add(-int64(len(d.fact.Data)))
	select {
	case q.room <- struct{}{}:
	default: // the writer checks again
	}
}

// drain returns when the writer has ended.
func (q *factQueue) drain() {
	for d := range q.facts {
		q.took(d)
	}
}
