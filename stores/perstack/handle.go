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

// Handle is a handle on one job, whether it exists or not. It does no I/O until a method is
// called, and is safe for concurrent use. It remembers which messages the log has, so that
// what is saved through it costs what is new in it: a program that writes a job keeps one.
// Handles of several processes write to one job without knowing of each other.
type Handle struct {
	st      *tally.Store
	unshown *tally.Store // for the steps of a save: only the save as a whole is acknowledged, and waits for files
	session *tally.Session
	id      string
	options Options
	*memory
}

// memory is what a handle remembers of its job. It knows nothing of the store, so that it
// keeps none alive.
type memory struct {
	decides sync.Mutex // held while the job's own document is changed: so those of one program do not get in each other's way
	writer  writer
	index   index
	deltas  deltas
	seen    atomic.Pointer[projector.Outline] // the session as it was opened last
}

// Options say how a handle works. The zero value works.
type Options struct {
	Deltas DeltaPolicy // default: KeepDeltas

	// AllowSuspects stores settings with values that look like keys where none are known to
	// stand. Default: they are a *SuspectError.
	AllowSuspects bool
}

// JobOf returns a handle on a job.
func JobOf(st *tally.Store, id string) *Handle { return JobWith(st, id, Options{}) }

// JobWith returns a handle on a job that works as options say.
func JobWith(st *tally.Store, id string, o Options) *Handle {
	return handleWith(st, id, o, new(memory))
}

func handleWith(st *tally.Store, id string, o Options, m *memory) *Handle {
	return &Handle{st: st, unshown: st.Unshown(), session: st.Session(shape.SessionID(id)), id: id, options: o, memory: m}
}

// ID is the job's id.
func (h *Handle) ID() string { return h.id }

// Session is the job's session: its history, its costs, to fork it.
func (h *Handle) Session() *tally.Session { return h.session }

// A NotFoundError says in the original's words what there is none of. It matches
// tally.ErrNotFound.
type NotFoundError struct{ Text string }

func (e *NotFoundError) Error() string { return e.Text }

// Is makes it match tally.ErrNotFound.
func (e *NotFoundError) Is(target error) bool { return target == tally.ErrNotFound }

func notFound(format string, args ...any) error {
	return &NotFoundError{fmt.Sprintf(format, args...)}
}

// belongs refuses what is of another job.
func (h *Handle) belongs(what, job string) error {
	if job != h.id {
		return &events.InvalidError{Field: what + ".jobId", Reason: fmt.Sprintf("%q, and this is job %q", job, h.id)}
	}
	return nil
}

// maxDecisions bounds how often a save is tried again after somebody else wrote.
const maxDecisions = 31

// again decides and appends until nobody else wrote in between.
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

// pause waits a little longer each time.
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
