package quota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// Again refuses records of sessions that repeat too many bytes of data by reference (events.CheckAgain). Without it,
// such a record would be acknowledged and have no effect. Again is safe for concurrent use. If several processes append
// without an owner, each counts what it reads in the log, and two of them can exceed the bound together.
type Again struct {
	src      projector.Source
	maxValue int64
	maxAgain int64 // bytes that a session may always repeat
	check    func(sum string, again, distinct int64) error

	mu       sync.Mutex // guards sessions
	sessions map[events.Subject]*references
}

// maxCounted bounds the sessions that Again remembers.
const maxCounted = 64

// NewAgain returns an Again for values of at most maxValue bytes; 0 is events.MaxValue.
func NewAgain(maxValue int64) *Again {
	if maxValue == 0 {
		maxValue = events.MaxValue
	}
	return &Again{maxValue: maxValue, maxAgain: events.MaxAgain, check: events.CheckAgain, sessions: make(map[events.Subject]*references)}
}

// Watch sets the log. It must be called once, before the first append.
func (a *Again) Watch(src projector.Source) { a.src = src }

// references counts the references to blobs in the records of a session: of records in the log up to an offset, and of
// records that are being appended.
type references struct {
	mu       sync.Mutex // guards what follows
	upto     events.Offset
	times    map[string]int    // number of references by hash of the blob
	sizes    map[string]int64  // of blobs by hash, filled on demand
	again    int64             // bytes that records in the log repeat
	appended map[string]string // hash of the blob by identity of the event
	users    int               // calls that use these references; guarded by Again.mu
}

// identity returns a key for an event within its subject. A source has no zero byte.
func identity(e events.Event) string { return e.Source + "\x00" + e.ID }

// Admit is a log.Config.Admit.
func (a *Again) Admit(ctx context.Context, parts []log.Part) (settle func([]log.Ack, error), err error) {
	var undo []func()
	over := func([]log.Ack, error) {
		for _, f := range undo {
			f()
		}
	}
	for _, p := range parts {
		for _, e := range p.Events {
			sum, ok := events.ParseBlobRef(e.Extensions[events.ExtDataRef])
			if !ok || !p.Subject.IsSession() || len(e.Data) > 0 {
				continue
			}
			r := a.use(p.Subject)
			undo = append(undo, func() { r.drop(identity(e)); a.release(r) })
			if err := a.reserve(ctx, r, p.Subject, e, sum); err != nil {
				over(nil, err)
				return nil, err
			}
		}
	}
	if undo == nil {
		return nil, nil
	}
	return over, nil
}

// use returns the references of a session. The caller releases them.
func (a *Again) use(sub events.Subject) *references {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.sessions[sub]
	if r == nil {
		for old, o := range a.sessions {
			if len(a.sessions) >= maxCounted && o.users == 0 {
				delete(a.sessions, old)
			}
		}
		r = &references{times: make(map[string]int), sizes: make(map[string]int64), appended: make(map[string]string)}
		a.sessions[sub] = r
	}
	r.users++
	return r
}

func (a *Again) release(r *references) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.users--
}

// drop removes an event whose append has ended.
func (r *references) drop(identity string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.appended, identity)
}

// reserve counts an event before it is appended, or refuses it. It does not refuse an event that is in the log already,
// because the log will not store that event again.
func (a *Again) reserve(ctx context.Context, r *references, sub events.Subject, e events.Event, sum string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := a.catchUp(ctx, r, sub); err != nil {
		return fmt.Errorf("count references of %s: %w", sub.Name(), err)
	}
	r.appended[identity(e)] = sum
	err := a.hold(ctx, r, sub, sum)
	if err == nil {
		return nil
	}
	delete(r.appended, identity(e))
	if has, herr := a.has(ctx, sub, e, r.upto); herr != nil || has {
		return herr
	}
	return err
}

// has reports whether the log has an event up to an offset.
func (a *Again) has(ctx context.Context, sub events.Subject, e events.Event, upto events.Offset) (bool, error) {
	for rec, err := range events.Readable(a.src.Read(ctx, events.Range{Subject: sub, Upto: upto, Buffered: true})) {
		if err != nil || identity(rec.Event) == identity(e) {
			return err == nil, err
		}
	}
	return false, nil
}

// catchUp counts the records that were stored since the last call.
func (a *Again) catchUp(ctx context.Context, r *references, sub events.Subject) error {
	for rec, err := range events.Readable(a.src.Read(ctx, events.Range{Subject: sub, After: r.upto, Buffered: true})) {
		if err != nil {
			return err
		}
		r.upto = rec.Offset
		sum, ok := events.ParseBlobRef(rec.Extensions[events.ExtDataRef])
		if !ok || len(rec.Data) > 0 {
			continue
		}
		if r.times[sum] > 0 {
			size, err := a.size(ctx, r, sub, sum)
			if err != nil {
				return err
			}
			r.again += size
		}
		r.times[sum]++
		delete(r.appended, identity(rec.Event))
	}
	return nil
}

// hold compares the references in the log and in pending appends with the bound. It looks up the sizes of all blobs
// only if the bound may be exceeded.
func (a *Again) hold(ctx context.Context, r *references, sub events.Subject, last string) error {
	again, times := r.again, maps.Clone(r.times)
	for _, sum := range r.appended {
		if times[sum]++; times[sum] == 1 {
			continue
		}
		size, err := a.size(ctx, r, sub, sum)
		if err != nil {
			return err
		}
		again += size
	}
	if again <= a.maxAgain {
		return nil
	}
	distinct := int64(0)
	for sum := range times {
		size, err := a.size(ctx, r, sub, sum)
		if err != nil {
			return err
		}
		distinct += size
	}
	return a.check(last, again, distinct)
}

// size returns the bytes of a blob that count: 0 for a small blob, and for a blob that cannot be read.
func (a *Again) size(ctx context.Context, r *references, sub events.Subject, sum string) (int64, error) {
	if size, known := r.sizes[sum]; known {
		return size, nil
	}
	data, err := projector.Blob(ctx, a.src, sub.Namespace, sum, a.maxValue)
	if _, missing := errors.AsType[*projector.BlobError](err); err != nil && !missing {
		return 0, err
	}
	size := int64(len(data))
	if size <= events.MaxFreeData {
		size = 0
	}
	r.sizes[sum] = size
	return size, nil
}
