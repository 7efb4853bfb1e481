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

// idPrefix precedes the ids of histories, which share one name space with all sessions.
const idPrefix = "history/"

// History keeps a conversation's history in the log, as the session history/<id>. No saved snapshot is ever lost:
// [History.Revisions] lists the earlier ones, [History.LoadAt] reads them.
//
// A save appends only the changes: new messages at the end, or only changed pins. If the snapshot changes earlier
// messages, the save is a replacement that repeats none of the kept messages. An equal snapshot appends no event.
//
// A handle is one writer. It remembers the snapshot that it loaded or saved last. A save has the condition that no
// other writer changed the conversation since. If one did, Save writes nothing and returns an error that matches
// log.ErrConflict: load again, and decide again. A handle that has loaded nothing can create a history, or add to one
// with which the snapshot begins. Overwrite has no condition. If the outcome of a save is unknown (log.ErrUnknown),
// the save can be repeated.
//
// A handle does no I/O until a method is called, and is safe for concurrent use: its saves happen one after the
// other. Handles of different ids are independent.
type History struct {
	st  *tally.Store
	sub events.Subject
	id  string

	mu     sync.Mutex // guards the fields below; held during a save
	base   *state     // nil: neither loaded nor saved
	unsure bool       // the outcome of the last save is unknown
}

// state is the state of a session as the handle knows it.
type state struct {
	at      events.Offset // offset of that state; 0: the session does not exist
	created bool          // the session has a session.created
	found   bool          // a snapshot was saved
	meta    events.Raw    // of the thread
	content chat.Snapshot
}

// Of returns a handle on a history, which need not exist.
func Of(st *tally.Store, id string) *History {
	return &History{st: st, sub: events.Session(st.Namespace(), idPrefix+id), id: id}
}

// ID returns the history's id.
func (h *History) ID() string { return h.id }

// Subject returns the history's session in the log.
func (h *History) Subject() events.Subject { return h.sub }

// Session returns the history's session, for rewinds and forks.
func (h *History) Session() *tally.Session { return h.st.Session(idPrefix + h.id) }

// Load implements HistoryStore. If the session has another kind, the error is a *tally.KindError. If a turn is not a
// message, it is a *MessageError.
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

// LoadAt returns the snapshot at a position: an offset such as @17 (see Revisions), a time, or ~2. It does not change
// the base of the next Save. If the position does not exist, the error is ErrNotFound. If no snapshot was saved
// before it, found is false.
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

// Compact saves the snapshot that a compaction made of the one before, with a report. LoadAt still reads the dropped
// messages.
func (h *History) Compact(ctx context.Context, s Snapshot, r CompactionReport) error {
	if r.Strategy == "" || r.Before < 0 || r.After < 0 {
		return &events.InvalidError{Field: "compaction", Reason: "want a strategy, and sizes from 0"}
	}
	return h.save(ctx, s, &r)
}

// CompactionReport describes how a conversation was made smaller.
type CompactionReport struct {
	Strategy string // such as truncate or summarize
	Before   int64  // size before and after, in a unit of the strategy
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
	case again && errors.Is(err, log.ErrConflict): // perhaps the save before was stored, and conflicts with its repetition
		return h.confirm(ctx, to, base.at)
	case err != nil:
		return fmt.Errorf("save %s: %w", h.sub.Name(), err)
	case ack.Duplicate: // stored by the attempt before, and perhaps rewound since
		return h.confirm(ctx, to, base.at)
	}
	h.base = base.saved(to, ack.Last)
	return nil
}

// Overwrite replaces the whole history by a snapshot, whichever writer saved the current one: it is a Save without a
// condition. LoadAt still reads the replaced snapshot.
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

// saved returns the state after a snapshot was saved at an offset.
func (k *state) saved(content chat.Snapshot, at events.Offset) *state {
	return &state{at: at, created: true, found: true, meta: k.meta, content: content}
}

// confirm compares a snapshot that was stored before with the current one.
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

// baseFor returns the base of a save. If the handle has none, it loads the session, and returns a conflict if the
// snapshot would remove anything from it.
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

// changes returns the events of a save: one, and a second if the session is new or its unknown members change.
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
	case !base.found: // a conversation without messages
		payloads = append(payloads, chat.Change{Replaced: true}.Payload(events.MainThread, base.meta, "save"))
	}
	if !chat.EqualUnknown(base.content.Unknown, to.Unknown) {
		payloads = append(payloads, &events.SessionUpdated{Set: events.Fields{chat.UnknownMember(to.Unknown)}, Reason: "save"})
	}
	return payloads
}

// compacted returns a replacement, even if only the end changes.
func compacted(base *state, to chat.Snapshot, r CompactionReport) events.Payload {
	change := chat.Replace(base.content, to)
	p := change.Payload(events.MainThread, base.meta, "compact").(*events.ThreadReplaced)
	p.Strategy, p.Before, p.After = r.Strategy, r.Before, r.After
	return p
}

// load loads the session at a position.
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

// stateOf returns the state of a loaded session.
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
