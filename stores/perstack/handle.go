package perstack

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/perstack/internal/shape"
)

// Handle is a handle on one job, whether it exists or not. It does no I/O until a method is called, and is safe for
// concurrent use. It remembers which messages the log has, so that a save costs only its new parts: keep one handle per
// job that you write. Handles of several processes may write to one job.
type Handle struct {
	st      *tally.Store
	unshown *tally.Store // for the steps of a save: only the whole save is acknowledged and waits for files
	session *tally.Session
	id      string
	options Options
	*memory
}

// memory is a handle's cache of its job. It has no reference to the store, so that it does not keep the store alive.
type memory struct {
	decides sync.Mutex // held while the job's own document changes, so that calls of one program do not conflict
	writer  writer
	index   index
	deltas  deltas
	seen    atomic.Pointer[projector.Outline] // the session as of the last read
}

// Options configure a handle. The zero value works.
type Options struct {
	Deltas DeltaPolicy // default: KeepDeltas

	// AllowSuspects stores settings with values that look like keys at positions where no keys are expected. By default
	// they are refused with a *SuspectError.
	AllowSuspects bool
}

// JobOf returns a handle on a job.
func JobOf(st *tally.Store, id string) *Handle { return JobWith(st, id, Options{}) }

// JobWith returns a handle on a job with options.
func JobWith(st *tally.Store, id string, o Options) *Handle {
	return handleWith(st, id, o, new(memory))
}

func handleWith(st *tally.Store, id string, o Options, m *memory) *Handle {
	return &Handle{st: st, unshown: st.Unshown(), session: st.Session(shape.SessionID(id)), id: id, options: o, memory: m}
}

// ID returns the job's id.
func (h *Handle) ID() string { return h.id }

// Session returns the job's session, with its history and costs, for forking.
func (h *Handle) Session() *tally.Session { return h.session }

// A NotFoundError reports a missing object in the original's words. It matches tally.ErrNotFound.
type NotFoundError struct{ Text string }

func (e *NotFoundError) Error() string { return e.Text }

// Is reports whether target is tally.ErrNotFound.
func (e *NotFoundError) Is(target error) bool { return target == tally.ErrNotFound }

func notFound(format string, args ...any) error {
	return &NotFoundError{fmt.Sprintf(format, args...)}
}

// belongs refuses a value of another job.
func (h *Handle) belongs(what, job string) error {
	if job != h.id {
		return &events.InvalidError{Field: what + ".jobId", Reason: fmt.Sprintf("%q, but this is job %q", job, h.id)}
	}
	return nil
}

// maxDecisions bounds how often a save is tried again after a conflict.
const maxDecisions = 31

// again calls do until it does not conflict with another writer.
func (h *Handle) again(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if !errors.Is(err, log.ErrConflict) || try == maxDecisions {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

// pause waits, longer after each try.
func pause(ctx context.Context, try int) error {
	t := time.NewTimer(time.Millisecond << min(try-1, 6))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
