package ingest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents"
	"github.com/tallylog/tally/internal/ingest/tail"
	"github.com/tallylog/tally/log"
)

// Run appends new lines until ctx is done or the Ingester is closed, and returns the reason. With Once it returns nil
// when all existing lines are durable. Call it once.
func (in *Ingester) Run(ctx context.Context) error {
	working, cancel := context.WithCancelCause(ctx)
	in.workers = newWorkers(working, cancel)
	err := in.follow(working)
	if ctx.Err() != nil || err == nil || errors.Is(err, tail.ErrClosed) || errors.Is(err, ErrStuck) {
		in.workers.rest()
	}
	cancel(cmp.Or(err, context.Canceled))
	in.workers.rest()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// follow processes batches, and due work in between.
func (in *Ingester) follow(ctx context.Context) error {
	came, tried := time.Now(), time.Now()
	for ctx.Err() == nil {
		b, err := in.next(ctx, tried)
		isOver := errors.Is(err, io.EOF)
		switch {
		case err == nil:
			in.take(b)
			came = time.Now()
		case ctx.Err() != nil:
		case isOver || errors.Is(err, context.DeadlineExceeded):
			isIdle := isOver || time.Since(came) >= patience
			tried = time.Now()
			if over, err := in.idle(ctx, isIdle, isOver); over || err != nil {
				return err
			}
		default:
			return err
		}
	}
	return context.Cause(ctx)
}

// patience is how long files wait for the session they continue, once no other lines arrive.
const patience = 200 * time.Millisecond

// next waits for a batch, at most until work is due.
func (in *Ingester) next(ctx context.Context, tried time.Time) (*tail.Batch, error) {
	wait := time.Hour
	in.mu.Lock()
	switch {
	case len(in.waiting) > 0:
		wait = max(0, patience-time.Since(tried))
	case len(in.held) > 0 || in.o.Once && len(in.stuck) > 0 || in.workers.isBusy(): // a processed batch may be held
		wait = patience
	}
	now := in.o.now()
	if len(in.due) > 0 {
		wait = min(wait, max(0, in.firstDue(now).Sub(now)))
	}
	in.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return in.tailer.Next(ctx)
}

// take queues a batch behind the earlier ones of its session.
func (in *Ingester) take(b *tail.Batch) {
	is, ok := in.fileOf(b.File, b)
	if !ok {
		in.workers.put(b.File.Root+"/"+b.File.Rel, func(ctx context.Context) error { return in.deal(ctx, b) })
		return
	}
	in.workers.put(is.Session, func(ctx context.Context) error {
		list, err := in.admit(ctx, b, is)
		if err != nil {
			return err
		}
		return in.dealAll(ctx, list)
	})
}

func (in *Ingester) dealAll(ctx context.Context, list []*tail.Batch) error {
	for _, b := range list {
		if err := in.deal(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// deal processes a batch, unless an earlier one of its file failed or waits.
func (in *Ingester) deal(ctx context.Context, b *tail.Batch) error {
	key := keyOf(b.File)
	in.mu.Lock()
	isStuck, isLate := in.stuck[key], in.waiting[key] != nil
	if isLate {
		in.waiting[key].batches = append(in.waiting[key].batches, b)
	}
	in.mu.Unlock()
	if isStuck || isLate {
		return nil
	}
	err := error(errAbsent)
	if !in.isBehind(b) {
		err = in.settle(ctx, b, false)
	}
	if errors.Is(err, errAbsent) {
		in.mu.Lock()
		in.waiting[key] = &waitingFile{time.Now(), []*tail.Batch{b}}
		in.mu.Unlock()
		return nil
	}
	return err
}

// waitingFile holds the batches of a file that waits for the session it continues.
type waitingFile struct {
	since   time.Time
	batches []*tail.Batch
}

// isBehind reports whether a file is new and an earlier file of its session waits.
func (in *Ingester) isBehind(b *tail.Batch) bool {
	if b.Kind != tail.Lines || !isFirst(b) {
		return false
	}
	is, ok := in.fileOf(b.File, b)
	for _, f := range in.waitingFiles() {
		of, _ := in.fileOf(f, nil)
		if ok && f.Root == b.File.Root && of.Session == is.Session && of.Thread == agents.Main && is.Thread == agents.Main && of.Stem < is.Stem {
			return true
		}
	}
	return false
}

// isFirst reports whether a batch has the first line of its file.
func isFirst(b *tail.Batch) bool {
	return len(b.Lines) > 0 && b.Lines[0].Offset == int64(len(b.Lines[0].Before))
}

// settle processes a batch and acknowledges it.
func (in *Ingester) settle(ctx context.Context, b *tail.Batch, force bool) error {
	err := in.insist(ctx, func() error { return in.do(ctx, b, force) })
	switch {
	case err == nil:
		in.done(b)
	case ctx.Err() != nil:
		return ctx.Err()
	case isRace(err):
		in.mu.Lock()
		in.stuck[keyOf(b.File)] = true
		in.mu.Unlock()
		in.tailer.Skip(b.File)
		in.report(Problem{Root: b.File.Root, File: b.File.Rel, Reason: err.Error() + ": the rest is not read"})
	default:
		return err
	}
	return nil
}

// insist calls do until it succeeds or fails finally. It waits while the log refuses, and decides again if another
// producer appended meanwhile, a limited number of times.
func (in *Ingester) insist(ctx context.Context, do func() error) error {
	for attempt, races := 0, 0; ; attempt++ {
		err := in.patiently(ctx, do)
		switch {
		case errors.Is(err, errAgain) && ctx.Err() == nil:
			continue
		case err == nil || ctx.Err() != nil || !isRace(err) || races > maxTries:
			return err
		}
		races++
		pause(ctx, attempt)
	}
}

// maxTries bounds the retries after another producer's appends.
const maxTries = 10

var (
	errAbsent = errors.New("the log does not have the line that the session continues")
	errAgain  = errors.New("decide again")
)

// ErrStuck is returned by Run, with Once, if a file could not be appended. The file was reported, and the next Ingester
// tries again.
var ErrStuck = errors.New("ingest: some files could not be appended")

// isRace reports whether a retry with the session's current state may succeed.
func isRace(err error) bool {
	_, partial := errors.AsType[*log.PartialError](err)
	_, other := errors.AsType[*events.InvalidError](err)
	return partial || other || errors.Is(err, log.ErrConflict) || errors.Is(err, log.ErrAborted) || errors.Is(err, log.ErrTooLarge) || errors.Is(err, errCircle)
}

// do processes a batch.
func (in *Ingester) do(ctx context.Context, b *tail.Batch, force bool) error {
	if is, ok := in.fileOf(b.File, b); ok && b.Kind != tail.Unreadable && in.isAlone(is.Session) {
		b.Note = in.noteOf(b.File, is)
		return nil
	}
	if i, ok := in.indexOf(b.File); ok && b.Kind != tail.Unreadable {
		return in.index(ctx, b, i, force)
	}
	switch b.Kind {
	case tail.Lines, tail.Rewritten:
		return in.lines(ctx, b, force)
	case tail.Moved:
		return in.moved(ctx, b)
	case tail.Gone:
		return in.vanished(ctx, b)
	case tail.Unreadable:
		in.report(Problem{Root: b.File.Root, File: b.File.Rel, Reason: b.Err.Error()})
	}
	return nil
}

// idle does the work for a moment without lines: it retries waiting files, and delivers silence. isOver means that no
// more is read; then idle returns whether all work is done.
func (in *Ingester) idle(ctx context.Context, isIdle, isOver bool) (over bool, err error) {
	if isIdle {
		if in.workers.rest() && !isOver {
			return false, nil // completed work may allow further reads
		}
	}
	n, isStuck := in.countWaiting()
	if n > 0 {
		in.retryAll(isIdle)
		if isOver {
			return false, nil
		}
		n, isStuck = in.countWaiting()
	}
	if n == 0 && (isOver || in.o.Once && isIdle && isStuck) {
		told := in.hushAll()
		in.workers.rest()
		if ctx.Err() != nil || !isOver && told > 0 { // further reads may be possible now
			return false, nil
		}
		if n, isStuck = in.countWaiting(); n > 0 { // files that waited for a cwd may now wait for the session they continue
			return false, nil
		}
		if isStuck {
			return true, ErrStuck
		}
		return true, nil
	}
	in.hushDue(isIdle)
	return false, nil
}

// countWaiting returns the number of waiting files, and whether some files cannot be appended.
func (in *Ingester) countWaiting() (n int, isStuck bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.waiting), len(in.stuck) > 0
}

// retryAll retries waiting files. If no other lines arrive, it continues until no file waits: if the reference of all
// of them is missing, the file with the lowest stem proceeds without it.
func (in *Ingester) retryAll(isIdle bool) {
	for {
		list := in.waitingFiles()
		if len(list) == 0 {
			return
		}
		if !isIdle {
			in.retry(list, false)
			in.retry(in.impatient(), true)
			return
		}
		in.retry(list, false)
		in.workers.rest()
		if in.workers.ctx.Err() != nil {
			return
		}
		if left := in.waitingFiles(); len(left) == len(list) {
			in.retry(left[:1], true)
			in.workers.rest()
		}
	}
}

// waitingFiles lists the waiting files, ordered by stem.
func (in *Ingester) waitingFiles() (list []tail.File) {
	in.mu.Lock()
	for _, w := range in.waiting {
		list = append(list, w.batches[0].File)
	}
	in.mu.Unlock()
	return in.byStem(list)
}

// byStem sorts files in the read order of a session.
func (in *Ingester) byStem(list []tail.File) []tail.File {
	stems := make(map[tail.File]string, len(list))
	for _, f := range list {
		is, _ := in.fileOf(f, nil)
		stems[f] = is.Stem
	}
	slices.SortFunc(list, func(a, b tail.File) int { return cmp.Or(cmp.Compare(stems[a], stems[b]), cmp.Compare(a.Rel, b.Rel)) })
	return list
}

// impatient returns files that have waited long while the others have little to read. Their references are not in the
// rest.
func (in *Ingester) impatient() (list []tail.File) {
	lag := in.tailer.Status().Lag
	in.mu.Lock()
	for _, w := range in.waiting {
		for _, b := range w.batches {
			lag -= sizeOf(b)
		}
	}
	for _, w := range in.waiting {
		if time.Since(w.since) > longPatience && lag-in.status.held-in.status.undecided < littleLag {
			list = append(list, w.batches[0].File)
		}
	}
	in.mu.Unlock()
	return in.byStem(list)
}

// While lines arrive continuously, a file waits for the session it continues for at least longPatience, and while more
// than littleLag bytes are unread.
const (
	longPatience = 10 * time.Second
	littleLag    = 4 << 20
)

func (in *Ingester) retry(list []tail.File, force bool) {
	for _, f := range list {
		is, _ := in.fileOf(f, nil)
		in.workers.urge(is.Session, func(ctx context.Context) error { return in.unwait(ctx, keyOf(f), force) })
	}
}

// unwait processes the batches of a waiting file, as far as possible.
func (in *Ingester) unwait(ctx context.Context, key fileKey, force bool) error {
	for {
		in.mu.Lock()
		w := in.waiting[key]
		var b *tail.Batch
		if w != nil {
			b = w.batches[0]
		}
		in.mu.Unlock()
		if b == nil {
			return nil
		}
		err := error(errAbsent)
		if !in.isBehind(b) {
			err = in.settle(ctx, b, force)
		}
		if errors.Is(err, errAbsent) {
			return nil
		}
		if err != nil {
			return err
		}
		force = false
		in.mu.Lock()
		if w.batches = w.batches[1:]; len(w.batches) == 0 || in.stuck[key] {
			delete(in.waiting, key)
		}
		in.mu.Unlock()
	}
}

// pause waits before another attempt, longer each time, with a random part.
func pause(ctx context.Context, attempt int) {
	d := 5 * time.Millisecond << min(attempt, 10)
	t := time.NewTimer(d/2 + rand.N(d))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
