package ailoop

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/stores/ailoop/internal/chat"
)

// idPrefix stands before the ids of histories, which share one name space
// with all sessions.
const idPrefix = "history/"

// History keeps a conversation's history in the log, as the session
// history/<id>. Nothing that was ever saved is lost: [History.Revisions] lists
// what was, [History.LoadAt] reads it.
//
// A save appends what is new and nothing else: the messages after those that
// were there, or only the pins that changed; a snapshot that does not begin like
// the one before is a replacement that repeats none of the messages that stay.
// An equal snapshot appends no event.
//
// A handle is one writer. It remembers what it loaded or saved last, and a save
// is made on the condition that nobody else changed the conversation since: if
// somebody did, nothing is written and the error matches log.ErrConflict. Load
// again, and decide again. A handle that has loaded nothing writes a new history,
// or adds to one that the snapshot begins with; Overwrite asks for no condition. A save
// whose outcome is not known (log.ErrUnknown) can be repeated.
//
// A handle does no I/O until a method is called, and is safe for concurrent use:
// its saves happen one after the other. Handles of different ids have nothing to
// do with each other.
type History struct {
	st  *tally.Store
	sub events.Subject
	id  string

	mu     sync.Mutex // guards what follows; held during a save
	base   *state     // nil: neither loaded nor saved
	unsure bool       // it is not known whether the last save was stored
}

// state is what a handle knows of its session.
type state struct {
	at      events.Offset // up to which it knows the session; 0: there is none
	created bool          // the session has a session.created
	found   bool          // a snapshot was saved
	meta    events.Raw    // of the thread
	content chat.Snapshot
}

// Of returns a handle on a history, whether it exists or not.
func Of(st *tally.Store, id string) *History {
	return &History{st: st, sub: events.Session(st.Namespace(), idPrefix+id), id: id}
}

// ID is the history's id.
func (h *History) ID() string { return h.id }

// Subject names the history's session in the log.
func (h *History) Subject() events.Subject { return h.sub }

// Session returns the history's session: to rewind it, to fork it.
func (h *History) Session() *tally.Session { return h.st.Session(idPrefix + h.id) }

// Load implements HistoryStore. A session of another kind is a *tally.KindError, a
// turn that is not a message a *MessageError.
func (h *History) Load(ctx context.Context) (s Snapshot, found bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, err := h.load(ctx, "")
	if err != nil {
		return Snapshot{}, false, err
	}
	h.base = now
	return snapshotOf(now.content), now.found, nil
}

// LoadAt returns the snapshot as of a position: an offset such as @17 (see
// Revisions), a time, ~2. It does not change what the next Save is based on. A
// position that there is not is ErrNotFound; found is false if nothing was saved
// up to there.
func (h *History) LoadAt(ctx context.Context, position string) (s Snapshot, found bool, err error) {
	then, err := h.load(ctx, position)
	if err != nil {
		return Snapshot{}, false, err
	}
	return snapshotOf(then.content), then.found, nil
}

// Save implements HistoryStore.
func (h *History) Save(ctx context.Context, s Snapshot) error {
	return h.save(ctx, s, nil)
}

// Compact saves a snapshot that a compaction made of the one before, and records
// how. What it dropped is not gone: LoadAt reads it.
func (h *History) Compact(ctx context.Context, s Snapshot, r CompactionReport) error {
	if r.Strategy == "" || r.Before < 0 || r.After < 0 {
		return &events.InvalidError{Field: "compaction", Reason: "want a strategy, and sizes from 0"}
	}
	return h.save(ctx, s, &r)
}

// CompactionReport says how a conversation was made smaller.
type CompactionReport struct {
	Strategy string // such as truncate or summarize
	Before   int64  // size before and after, in the strategy's own unit
	After    int64
}

func (h *History) save(ctx context.Context, s Snapshot, compaction *CompactionReport) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	to := s.raw()
	base, err := h.baseFor(ctx, to)
	if err != nil {
		return err
	}
	payloads := h.changes(base, to, compaction)
	if len(payloads) == 0 {
		return h.confirm(ctx, to, base.at)
	}
	expect := log.At(0)
	if base.at > 0 {
		expect = log.Since(base.at, projector.MoveTypes()...)
	}
	again := h.unsure
	ack, err := h.Session().Append(ctx, expect, payloads...)
	h.unsure = errors.Is(err, log.ErrUnknown)
	switch {
	case again && errors.Is(err, log.ErrConflict): // perhaps with the save before, and that was this one
		return h.confirm(ctx, to, base.at)
	case err != nil:
		return fmt.Errorf("save %s: %w", h.sub.Name(), err)
	case ack.Duplicate: // stored by the try before, and perhaps not in effect any more
		return h.confirm(ctx, to, base.at)
	}
	h.base = base.saved(to, ack.Last)
	return nil
}

// Overwrite makes the history hold this snapshot and no other, whatever is there and
// whoever saved it: a Save without its condition. What it replaces is not gone: LoadAt
// reads it.
func (h *History) Overwrite(ctx context.Context, s Snapshot) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	to := s.raw()
	ack, err := h.Session().Update(ctx, projector.MoveTypes(), func(now *projector.Outline) ([]events.Payload, error) {
		whole, err := now.Session(ctx)
		if err != nil {
			return nil, err
		}
		if h.base, err = h.stateOf(whole); err != nil {
			return nil, err
		}
		return h.changes(h.base, to, nil), nil
	})
	h.unsure = errors.Is(err, log.ErrUnknown)
	switch {
	case err != nil:
		return fmt.Errorf("overwrite %s: %w", h.sub.Name(), err)
	case ack.Last > 0:
		h.base = h.base.saved(to, ack.Last)
	}
	return nil
}

// saved returns what is known after a snapshot was saved at an offset.
func (k *state) saved(content chat.Snapshot, at events.Offset) *state {
	return &state{at: at, created: true, found: true, meta: k.meta, content: content}
}

// confirm holds a snapshot that was stored before against what is there now.
func (h *History) confirm(ctx context.Context, to chat.Snapshot, base events.Offset) error {
	now, err := h.load(ctx, "")
	if err != nil {
		return err
	}
	if !now.found || !chat.Equal(now.content, to) {
		return fmt.Errorf("save %s: %w", h.sub.Name(), &log.ConflictError{Subject: h.sub, Want: base, Have: now.at})
	}
	h.base = now
	return nil
}

// baseFor returns what the handle knows of the session. If that is nothing, it is
// what is there, on the condition that the snapshot takes none of it away.
func (h *History) baseFor(ctx context.Context, to chat.Snapshot) (*state, error) {
	if h.base != nil {
		return h.base, nil
	}
	now, err := h.load(ctx, "")
	if err != nil {
		return nil, err
	}
	if now.found && chat.Between(now.content, to).Replaced {
		return nil, fmt.Errorf("save %s, which was not loaded: %w", h.sub.Name(), &log.ConflictError{Subject: h.sub, Want: 0, Have: now.at})
	}
	return now, nil
}

// changes says what a save appends: one event, and a second where the session is new
// or the members change that are not of this version.
func (h *History) changes(base *state, to chat.Snapshot, compaction *CompactionReport) []events.Payload {
	var payloads []events.Payload
	if !base.created {
		payloads = append(payloads, &events.SessionCreated{Kind: events.KindHistory, CreatedAt: events.TimestampOf(h.st.Now())})
	}
	switch change := chat.Between(base.content, to); {
	case compaction != nil:
		payloads = append(payloads, compacted(base, to, *compaction))
	case !change.Nothing():
		payloads = append(payloads, change.Payload(events.MainThread, base.meta, "save"))
	case !base.found: // a conversation in which nothing was said
		payloads = append(payloads, chat.Change{Replaced: true}.Payload(events.MainThread, base.meta, "save"))
	}
	if !chat.EqualUnknown(base.content.Unknown, to.Unknown) {
		payloads = append(payloads, &events.SessionUpdated{Set: events.Fields{chat.UnknownMember(to.Unknown)}, Reason: "save"})
	}
	return payloads
}

// compacted is a replacement, also where nothing but its end would change.
func compacted(base *state, to chat.Snapshot, r CompactionReport) events.Payload {
	change := chat.Replace(base.content, to)
	p := change.Payload(events.MainThread, base.meta, "compact").(*events.ThreadReplaced)
	p.Strategy, p.Before, p.After = r.Strategy, r.Before, r.After
	return p
}

// load loads the session as of a position.
func (h *History) load(ctx context.Context, position string) (*state, error) {
	s, err := h.Session().Load(ctx, position)
	if errors.Is(err, tally.ErrNotFound) && position == "" {
		return &state{}, nil
	}
	if err != nil {
		return nil, err
	}
	return h.stateOf(s)
}

// stateOf reads the snapshot of a session.
func (h *History) stateOf(s *projector.Session) (_ *state, err error) {
	if s.Ledger.Created != 0 {
		if err := tally.CheckKind(s.Subject, s.Ledger, events.KindHistory); err != nil {
			return nil, err
		}
	}
	if len(s.Damaged) > 0 {
		return nil, &events.DamageError{Offset: s.Damaged[0]}
	}
	known := &state{at: s.Offset(), created: s.Ledger.Created != 0}
	th := s.Threads[events.MainThread]
	if th == nil {
		return known, nil
	}
	known.found, known.meta = true, th.Meta
	if known.content, err = chat.Of(s); err != nil {
		return nil, err
	}
	return known, nil
}
