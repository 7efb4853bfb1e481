package tavern

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/agents/claude"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// Lifecycle is a handle on a session's local history, from which it can be displayed, and on the vendor's state of it,
// by which it can be resumed. Neither follows from the other.
//
// The session's field binding {vendor, id, expiresAt} names the vendor's session. Entries of the session's log record
// its events: started, expired, ended, break, each an event session.updated with its reason. A transcript that was
// imported or watched, with an id claude/<project>/<id>, is bound to that session implicitly.
type Lifecycle struct {
	st    *tally.Store
	sub   events.Subject
	local Local
}

// Local returns the path of a vendor's own file of a session on this machine. If it does not exist, or another vendor
// is asked for, the error is [tally.ErrNotFound]. [Transcripts] implements it for Claude Code.
type Local interface {
	File(ctx context.Context, b events.Binding) (string, error)
}

// Probe asks the vendor to resume a session. nil: the vendor has it and resumes it. A *Refusal: the vendor does not
// have it, or refuses. After any other error the state is unknown.
type Probe func(ctx context.Context, b events.Binding) error

// Refusal is the vendor's reason for not resuming a session.
type Refusal struct{ Reason string }

func (e *Refusal) Error() string { return "refused: " + e.Reason }

// LifecycleOf returns a handle on a session's life cycle. local finds the vendor's file; nil: no vendor keeps files
// here.
func LifecycleOf(st *tally.Store, session string, local Local) *Lifecycle {
	return &Lifecycle{st, events.Session(st.Namespace(), session), local}
}

// Errors of [Lifecycle.Resume]. Nothing was resumed.
type (
	// ExpiredError reports that the vendor refused: its state of the session is gone. The local history can be
	// displayed.
	ExpiredError struct {
		Session string
		Binding events.Binding
		Reason  string
	}

	// NoTranscriptError reports that the vendor's file of the session is not on this machine. The vendor does not
	// resume the session without it. An archive can be displayed, but does not replace the file.
	NoTranscriptError struct {
		Session  string
		Binding  events.Binding
		Archived bool // the store has an archive
	}

	// UnboundError reports that no vendor session is bound.
	UnboundError struct{ Session string }

	// GoneError reports that neither this machine nor the vendor has the session. It matches tally.ErrNotFound.
	GoneError struct {
		Session string
		Binding events.Binding
		Reason  string
	}

	// ProbeError reports that the vendor could not be asked. Whether the session can be resumed is unknown.
	ProbeError struct {
		Session string
		Binding events.Binding
		Err     error
	}
)

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("session %q cannot be resumed: %s does not have its session %q any more: %s", e.Session, e.Binding.Vendor, e.Binding.ID, e.Reason)
}

func (e *NoTranscriptError) Error() string {
	text := fmt.Sprintf("session %q cannot be resumed: the transcript of %s session %q is not on this machine", e.Session, e.Binding.Vendor, e.Binding.ID)
	if e.Archived {
		text += "; the archive can be displayed"
	}
	return text
}

func (e *UnboundError) Error() string {
	return fmt.Sprintf("session %q cannot be resumed: it is not bound to a session of a vendor", e.Session)
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("session %q: %s session %q has no transcript on this machine, and %s does not have it: %s", e.Session, e.Binding.Vendor, e.Binding.ID, e.Binding.Vendor, e.Reason)
}

// Is reports whether target is tally.ErrNotFound.
func (e *GoneError) Is(target error) bool { return target == tally.ErrNotFound }

func (e *ProbeError) Error() string {
	return fmt.Sprintf("session %q: whether %s session %q can be resumed is not known: %v", e.Session, e.Binding.Vendor, e.Binding.ID, e.Err)
}

// Unwrap returns why the vendor could not be asked.
func (e *ProbeError) Unwrap() error { return e.Err }

// Life is the known state of a session, locally and at the vendor's.
type Life struct {
	Session string
	Binding events.Binding // zero: unbound
	File    string         // the vendor's own file on this machine, or ""
	Archive string         // the session of the store that has the turns, or ""
	Log     []projector.LogEntry

	there bool      // the session has a record in the store
	now   time.Time // the log's time
}

// Displayable reports whether the session can be displayed. Source returns from what.
func (l Life) Displayable() bool { return l.File != "" || l.Archive != "" }

// SourceArchive is the source of a history that the store has.
const SourceArchive = "archive"

// Source returns the source for displaying the history: DirectFile, SourceArchive, or "".
func (l Life) Source() string {
	switch {
	case l.File != "":
		return DirectFile
	case l.Archive != "":
		return SourceArchive
	}
	return ""
}

// Resumable describes whether a session can be resumed, as far as it is known. Only the vendor knows for certain; see
// [Lifecycle.Resume].
type Resumable struct {
	Never       string    // why the session cannot be resumed; "": it may be
	LastSuccess time.Time // when the vendor last had the session; zero: unknown
	Refused     time.Time // when the vendor refused it since then, or zero
	Reason      string    // of the refusal
	Expires     time.Time // when the vendor says that it ends; zero: unknown
	Over        bool      // Expires has passed, by the log's time
}

// String returns a description in words.
func (r Resumable) String() string {
	last := "no success is known"
	if !r.LastSuccess.IsZero() {
		last = "last success at " + shownTime(r.LastSuccess)
	}
	switch {
	case r.Never != "":
		return "no: " + r.Never
	case !r.Refused.IsZero():
		return fmt.Sprintf("refused at %s: %s; %s", shownTime(r.Refused), r.Reason, last)
	case r.Over:
		return fmt.Sprintf("not known, said to end at %s, which has passed; %s", shownTime(r.Expires), last)
	}
	return "not known, " + last
}

func shownTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Resumable describes the recorded state, without asking the vendor. An archive does not count.
func (l Life) Resumable() Resumable {
	var r Resumable
	for _, e := range l.Log {
		at, _ := e.At.Time()
		switch {
		case l.Binding.ID == "" || e.Session != l.Binding.ID:
		case e.Event == lifeStarted:
			r.LastSuccess, r.Refused, r.Reason = at, time.Time{}, ""
		case e.Event == lifeExpired:
			r.Refused, r.Reason = at, e.Reason
		}
	}
	switch {
	case l.Binding.ID == "":
		r.Never = "it is not bound to a session of a vendor"
	case l.File == "":
		r.Never = "the vendor's transcript is not on this machine"
	}
	if at, ok := l.Binding.ExpiresAt.Time(); ok {
		r.Expires, r.Over = at, !at.After(l.now)
	}
	return r
}

// Events of the session's log.
const (
	lifeStarted = "started"
	lifeExpired = "expired"
	lifeEnded   = "ended"
	lifeBreak   = "break"
)

// Life returns the known state of the session. If neither the store nor the machine has the session, the error is
// [tally.ErrNotFound].
func (l *Lifecycle) Life(ctx context.Context) (Life, error) {
	life, err := l.look(ctx)
	if err == nil && !life.there && !life.Displayable() {
		err = fmt.Errorf("%s: %w", l.sub.Name(), tally.ErrNotFound)
	}
	return life, err
}

func (l *Lifecycle) look(ctx context.Context) (Life, error) {
	now, err := l.st.Loader().Peek(ctx, l.sub)
	if err != nil {
		return Life{}, err
	}
	life := Life{Session: l.sub.ID, there: now.Offset() > 0, Log: now.Ledger().Log}
	if life.Binding, err = bindingOf(now.Ledger(), l.sub.ID); err != nil {
		return life, err
	}
	if life.Binding.ID != "" && l.local != nil {
		life.File, err = l.local.File(ctx, life.Binding)
		if err != nil && !errors.Is(err, tally.ErrNotFound) {
			return life, err
		}
	}
	if life.Archive, err = l.archive(ctx, now, life.Binding); err != nil {
		return life, err
	}
	life.now, err = l.st.LogTime(ctx)
	return life, err
}

// bindingOf returns the vendor's session that a session is bound to, or zero.
func bindingOf(l *projector.Ledger, id string) (b events.Binding, err error) {
	if raw, ok := l.Fields.Get("binding"); ok {
		err = rawjson.Unmarshal(raw, &b)
		return b, err
	}
	vendor := (claude.Agent{}).Name()
	rest, ok := strings.CutPrefix(id, vendor+"/")
	if _, own, found := strings.Cut(rest, "/"); ok && found && !strings.Contains(own, "/") && !hasEnded(l, own) {
		b = events.Binding{Vendor: vendor, ID: own}
	}
	return b, nil
}

// hasEnded reports whether a vendor's session has ended and not started again.
func hasEnded(l *projector.Ledger, vendorID string) (ended bool) {
	for _, e := range l.Log {
		if e.Session == vendorID && (e.Event == lifeStarted || e.Event == lifeEnded) {
			ended = e.Event == lifeEnded
		}
	}
	return ended
}

// archive returns the session of the store that has the turns: this one, or the transcript of the vendor's file.
func (l *Lifecycle) archive(ctx context.Context, now *projector.Outline, b events.Binding) (string, error) {
	if now.Len(events.MainThread) > 0 {
		return l.sub.ID, nil
	}
	if b.ID == "" {
		return "", nil
	}
	for info, err := range l.st.Subjects(ctx, events.KindSession) {
		if err != nil {
			return "", err
		}
		id := info.Subject.ID
		if id == l.sub.ID || !strings.HasPrefix(id, b.Vendor+"/") || !strings.HasSuffix(id, "/"+b.ID) {
			continue
		}
		o, err := l.st.Loader().Peek(ctx, info.Subject)
		if err != nil {
			return "", err
		}
		if o.Len(events.MainThread) > 0 {
			return id, nil
		}
	}
	return "", nil
}

// Bind binds the session to a vendor's session, and records that it has started.
func (l *Lifecycle) Bind(ctx context.Context, b events.Binding, reason string) error {
	raw, err := rawjson.Marshal(b)
	if err != nil {
		return err
	}
	return l.note(ctx, events.Fields{{Name: "binding", Value: raw}}, lifeStarted, b.ID, reason)
}

// End records that the bound vendor's session has ended, and unbinds it.
func (l *Lifecycle) End(ctx context.Context, reason string) error {
	unbound := events.Fields{{Name: "binding", Value: events.Raw("null")}}
	return l.noteOf(ctx, unbound, lifeEnded, reason, func(now *projector.Outline) (events.Binding, error) { return bindingOf(now.Ledger(), l.sub.ID) })
}

// Break records that the rest of the session does not know its earlier part, because a new vendor's session replaced
// one that could not be resumed.
func (l *Lifecycle) Break(ctx context.Context, reason string) error {
	return l.note(ctx, events.Fields{}, lifeBreak, "", reason)
}

// note appends an entry to the session's log. Concurrent entries do not matter: all are kept, in order.
func (l *Lifecycle) note(ctx context.Context, set events.Fields, event, vendorID, reason string) error {
	return l.noteOf(ctx, set, event, reason, func(*projector.Outline) (events.Binding, error) { return events.Binding{ID: vendorID}, nil })
}

// noteOf is note about the vendor's session that a function returns for the session as of the append.
func (l *Lifecycle) noteOf(ctx context.Context, set events.Fields, event, reason string, about func(*projector.Outline) (events.Binding, error)) error {
	said := events.SessionLog{Event: event, At: events.TimestampOf(l.st.Now())}
	_, err := l.st.Session(l.sub.ID).Update(ctx, []string{events.TypeSessionUpdated}, func(now *projector.Outline) ([]events.Payload, error) {
		b, err := about(now)
		said.Session = b.ID
		return []events.Payload{&events.SessionUpdated{Set: set, Reason: reason, Log: &said}}, err
	})
	return err
}

// Resume asks the vendor to resume the session. The vendor's file must be on this machine, and the vendor must still
// have its state. Resume records the probe's result in the session's log, a refusal with its reason; [Life.Resumable]
// shows it.
//
//	file here, state there: resumed
//	file here, refused:     *ExpiredError
//	no file, state there:   *NoTranscriptError
//	archive only:           *NoTranscriptError; the vendor is not asked
//	neither:                *GoneError, which is tally.ErrNotFound
//
// If the session has no binding, the error is *UnboundError. If the probe fails, it is *ProbeError, and nothing is
// recorded.
func (l *Lifecycle) Resume(ctx context.Context, probe Probe) (Life, error) {
	life, err := l.look(ctx)
	if err != nil {
		return life, err
	}
	b := life.Binding
	switch {
	case b.ID == "" && !life.there:
		return life, fmt.Errorf("%s: %w", l.sub.Name(), tally.ErrNotFound)
	case b.ID == "":
		return life, &UnboundError{l.sub.ID}
	case life.File == "" && life.Archive != "":
		return life, &NoTranscriptError{l.sub.ID, b, true}
	}
	err = probe(ctx, b)
	refusal, refused := errors.AsType[*Refusal](err)
	switch {
	case err != nil && !refused:
		return life, &ProbeError{l.sub.ID, b, err}
	case err == nil && life.File == "":
		return life, &NoTranscriptError{l.sub.ID, b, false}
	case err == nil:
		return l.record(ctx, life, lifeStarted, "resumed", nil)
	case life.File == "":
		return l.record(ctx, life, lifeExpired, refusal.Reason, &GoneError{l.sub.ID, b, refusal.Reason})
	}
	return l.record(ctx, life, lifeExpired, refusal.Reason, &ExpiredError{l.sub.ID, b, refusal.Reason})
}

// record records the vendor's answer in the session's log, and returns the state after it. It does not create a session
// that the store does not have.
func (l *Lifecycle) record(ctx context.Context, life Life, event, reason string, outcome error) (Life, error) {
	if !life.there {
		life.Log = append(life.Log, projector.LogEntry{SessionLog: events.SessionLog{Event: event, Session: life.Binding.ID, At: events.TimestampOf(l.st.Now())}, Reason: reason})
		return life, outcome
	}
	if err := l.note(ctx, events.Fields{}, event, life.Binding.ID, reason); err != nil {
		return life, errors.Join(outcome, err)
	}
	after, err := l.look(ctx)
	return after, errors.Join(outcome, err)
}
