package log

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
)

// Errors that callers branch on. Typed errors with the facts match them.
var (
	// ErrConflict: the subject is not as expected, nothing was written. Load it again and decide again. See
	// *ConflictError.
	ErrConflict = errors.New("conflict")

	// ErrUnknown: no answer came. The events may have been stored or not;
	// appending the same events again settles it.
	ErrUnknown = errors.New("outcome unknown")

	// ErrAborted: an earlier AppendAsync to the same subject failed, so this one
	// was not written.
	ErrAborted = errors.New("aborted")

	// ErrNotFound: there is no such record.
	ErrNotFound = events.ErrNotFound

	// ErrFull: the store has no room. Nothing was written.
	ErrFull = errors.New("store full")

	// ErrQuota: see *QuotaError. Nothing was written.
	ErrQuota = errors.New("over a limit")

	// ErrUnavailable: the store cannot serve the call now. Nothing was written.
	ErrUnavailable = errors.New("store unavailable")

	// ErrDamaged: a file that the store keeps about itself has been changed or cut.
	ErrDamaged = errors.New("damaged")

	// ErrNewer: a newer version of tally wrote the store, in a form that this one does not know. Nothing was changed.
	ErrNewer = errors.New("written by a newer version")

	// ErrTooLarge: see *SizeError. Nothing was written.
	ErrTooLarge = errors.New("too large")

	// ErrGuard: a server that others run cannot check all guards of an AppendAll, because the append has too few
	// messages. Nothing was written.
	ErrGuard = errors.New("too many guards")

	// ErrDuplicate is a Backend's answer to several messages of which at least one was stored lately. A Log never
	// returns it.
	ErrDuplicate = errors.New("duplicate message")

	// ErrBusy is a Backend's answer if a retry a moment later may succeed. A Log retries, and in the end returns
	// ErrUnavailable.
	ErrBusy = errors.New("busy")
)

// ConflictError reports the expected and the actual state of a subject. It matches ErrConflict; nothing was written.
type ConflictError struct {
	Subject events.Subject
	Want    events.Offset // of the expectation
	Have    events.Offset // the subject's last offset; 0 if it has no event, or if it is unknown
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("append to %s: want last record %s, have %s", e.Subject.Name(), recordOrNone(e.Want), recordOrNone(e.Have))
}

// recordOrNone returns an offset for error texts.
func recordOrNone(at events.Offset) string {
	if at == 0 {
		return "none"
	}
	return at.String()
}

// Is reports whether target is ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// Existing is an event of an append that the log already holds.
type Existing struct {
	Index  int           `json:"index"` // among the events of the append
	ID     string        `json:"id"`
	Offset events.Offset `json:"offset"`
}

// PartialError reports that some events of an append are in the log and others are not. Nothing was written. To add the
// others, append them alone.
type PartialError struct {
	Subject events.Subject
	Have    []Existing
}

func (e *PartialError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "append to %s: some of its events, not all, are already in the log:", e.Subject.Name())
	for i, h := range e.Have {
		if i == 3 {
			fmt.Fprintf(&b, " and %d more", len(e.Have)-i)
			break
		}
		fmt.Fprintf(&b, " %s at %v", h.ID, h.Offset)
	}
	return b.String()
}

// SizeError reports which part of an append exceeds its limit. It matches ErrTooLarge; nothing was written.
type SizeError struct {
	Index int    // of the event; -1: the append as a whole
	What  string // "data", "headers", "events"
	Size  int
	Max   int
}

func (e *SizeError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("log: append: %d %s, at most %d are allowed", e.Size, e.What, e.Max)
	}
	return fmt.Sprintf("log: append: %s of event %d: %d bytes, at most %d are allowed", e.What, e.Index, e.Size, e.Max)
}

// Is reports whether target is ErrTooLarge.
func (e *SizeError) Is(target error) bool { return target == ErrTooLarge }

// FullError reports how much room a store has. It matches ErrFull; nothing was written.
type FullError struct {
	Free    int64 // bytes on the disk
	Reserve int64 // bytes kept free, so that the store can be closed, read and recovered
}

func (e *FullError) Error() string {
	return fmt.Sprintf("store full: %d bytes are free on its disk, and %d must stay free", e.Free, e.Reserve)
}

// Is reports whether target is ErrFull.
func (e *FullError) Is(target error) bool { return target == ErrFull }

// QuotaError reports the limit that an append would exceed. It matches ErrQuota; nothing was written.
type QuotaError struct {
	Scope string // the limit's scope: "store", "owner:NAME" or "kind:KIND"
	Meter string // the measure: "live", bytes that can be read at head
	Limit int64
	Have  int64 // now
	Want  int64 // with the append
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("over the limit of %s: %d %s bytes are allowed, %d are used, and the append needs %d in all", e.Scope, e.Limit, e.Meter, e.Have, e.Want)
}

// Is reports whether target is ErrQuota.
func (e *QuotaError) Is(target error) bool { return target == ErrQuota }

// ConfigError reports a setting with which a stream on the server could lose or rewrite records. The log refuses such a
// stream.
type ConfigError struct {
	Stream, Field string
	Have, Need    string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("log: stream %s: %s is %s, must be %s", e.Stream, e.Field, e.Have, e.Need)
}

// ServerVersionError reports a NATS server that is too old: appends of several messages are atomic from 2.12 on.
type ServerVersionError struct{ Have, Need string }

func (e *ServerVersionError) Error() string {
	return fmt.Sprintf("nats-server %s is too old: %s or newer is needed", e.Have, e.Need)
}

// checkServer returns a *ServerVersionError for a version that is too old. A version without numbers, as of a build
// from source, passes: the stream's settings are checked later.
func checkServer(version string) error {
	const major, minor = 2, 12
	var have [2]int
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) < len(have) {
		return nil
	}
	for i := range have {
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return nil
		}
		have[i] = n
	}
	if have[0] > major || have[0] == major && have[1] >= minor {
		return nil
	}
	return &ServerVersionError{Have: version, Need: fmt.Sprintf("%d.%d", major, minor)}
}

// errOtherStream is the server's answer to a message for another stream than the one that has its subject.
var errOtherStream = fmt.Errorf("%w: the message was sent to another stream than the one with its subject", ErrUnavailable)

// errInProcess is a cluster's answer to a message that was sent before and is not stored by a quorum yet. It may still
// be.
var errInProcess = fmt.Errorf("%w: an earlier sending of the message is being stored", ErrBusy)

// errSentAgain says that a publication was sent twice and that only the answer to the second one came, a refusal. The
// server may have stored the first one: it compares the expectation of a message before its id, and the first message
// moved the subject.
var errSentAgain = fmt.Errorf("%w: the first sending has no answer, the second was refused", ErrUnknown)

// sentAgain returns the error of a publication whose second sending was refused.
func sentAgain(refusal error) error {
	if conflict, ok := errors.AsType[*ConflictError](refusal); ok {
		return fmt.Errorf("%w: the subject's last record is %v", errSentAgain, conflict.Have)
	}
	return fmt.Errorf("%w: %v", errSentAgain, refusal)
}

func isNotFound(err error) bool { return errors.Is(err, ErrNotFound) }

// Error codes of the server that a log handles.
const (
	codeAccountResources  = 10002 // account limit reached
	codeNoLeader          = 10008 // the cluster has no leader now
	codeNotLeader         = 10009 // the server that answered is not the leader
	codeInsufficient      = 10023 // the server has no room for the stream
	codeStorageResources  = 10047 // the same, from another place in the server
	codeOtherStream       = 10060 // the message was meant for another stream
	codeWrongLastSequence = 10071 // the expectation failed, the text names the sequence
	codeStoreFailed       = 10077 // the store refused: mostly max_bytes
	codeNoLimits          = 10120 // the account is being set up
	codeNoReplicas        = 10074 // more than one replica, but no cluster
	codeInProcess         = 10158 // the same id is being stored
	codeWrongLastInFlight = 10164 // the expectation failed, or a write to the subject is in flight
	codeTooManyRequests   = 10167 // the stream's queue is full
	codeAtomicDisabled    = 10174 // the stream takes no atomic batches
	codeAtomicIncomplete  = 10176 // a message of the atomic batch is missing
	codeAtomicDuplicate   = 10201 // an id of the atomic batch is known
	codeAtomicTooMany     = 10210 // too many atomic batches are open
)

// answerError translates the server's refusal of a publication. Nothing was stored.
func answerError(code int, text string) error {
	switch code {
	case codeWrongLastSequence:
		_, number, _ := strings.Cut(text, ": ")
		if seq, err := strconv.ParseUint(number, 10, 64); err == nil {
			return &ConflictError{Have: events.Offset(seq)}
		}
		return ErrConflict
	case codeWrongLastInFlight:
		return ErrConflict
	case codeAtomicDuplicate:
		return ErrDuplicate
	case codeInProcess:
		return errInProcess
	case codeOtherStream:
		return errOtherStream
	case codeTooManyRequests, codeAtomicTooMany, codeAtomicIncomplete:
		return fmt.Errorf("%w: %s", ErrBusy, text)
	case codeAccountResources, codeInsufficient, codeStorageResources:
		return fmt.Errorf("%w: %s", ErrFull, text)
	case codeStoreFailed:
		if strings.Contains(text, "maximum") {
			return fmt.Errorf("%w: %s", ErrFull, text)
		}
	}
	return fmt.Errorf("%w: %s (%d)", ErrUnavailable, text, code)
}

// requestError translates the error of a publication that got no answer.
func requestError(err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders): // the server reports that no stream took it
		return fmt.Errorf("%w: no stream has the subject", ErrUnavailable)
	case errors.Is(err, nats.ErrReconnectBufExceeded): // the connection keeps nothing for later
		return fmt.Errorf("%w: not connected to the server", ErrUnavailable)
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: the server's max_payload is too small", ErrUnavailable)
	}
	return fmt.Errorf("%w: no acknowledgement: %v", ErrUnknown, err)
}

var errHungUp = fmt.Errorf("%w: the connection to the store's server is closed: open the store again", ErrUnavailable)

// apiError translates the error of a request that stores nothing.
func apiError(err error) error {
	api, refused := errors.AsType[*jetstream.APIError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return ErrNotFound
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, nats.ErrReconnectBufExceeded): // the connection keeps nothing for later
		return fmt.Errorf("%w: the store's server is gone: open the store again", ErrUnavailable)
	case errors.Is(err, nats.ErrConnectionClosed): // perhaps while the request was under way
		return errHungUp
	case refused && (api.ErrorCode == codeInsufficient || api.ErrorCode == codeStorageResources || api.ErrorCode == codeAccountResources):
		return fmt.Errorf("%w: %s", ErrFull, api.Description)
	}
	return fmt.Errorf("%w: %v", ErrUnavailable, err)
}

// away is how long a log waits for a server that is opening its streams. Tests change it.
var away = 12 * time.Second

// ask makes a request to the server. It repeats the request while the server has no streams, or closed them before it
// answered, or needs long because it reads much from a slow disk: see [patienceOf]. Once away is over it asks a last
// time, as the server may be back since the last question.
func ask[T any](ctx context.Context, question func(context.Context) (T, error)) (T, error) {
	began := time.Now()
	for try := 0; ; try++ {
		patience, last := patienceOf(try), time.Since(began) > away
		if last {
			patience = patienceOf(0)
		}
		once, cancel := context.WithTimeout(ctx, patience)
		got, err := question(once)
		silent := err != nil && once.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !silent && !isAway(err) || last || pause(ctx, try+1) != nil {
			if silent && ctx.Err() == nil { // the caller's own time is not over
				err = fmt.Errorf("no answer within %v", time.Since(began).Round(time.Millisecond))
			}
			return got, apiError(err)
		}
	}
}

// patienceOf returns how long to wait for one answer. A lost leader of a cluster never answers, while the next one
// answers at once: so the first requests are repeated each second. Later ones wait longer and longer, for a server that
// reads much from a slow disk.
func patienceOf(try int) time.Duration {
	const short = 6
	if try < short {
		return away / 12
	}
	return away / 4 << min(try-short, 3)
}

// isAway reports whether a running server answered that it has no such stream, or no streams at all. A log's streams
// are never deleted, so they are being opened. It also reports a cluster that is choosing a leader.
func isAway(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode == jetstream.JSErrCodeJetStreamNotEnabled || api.ErrorCode == jetstream.JSErrCodeJetStreamNotEnabledForAccount ||
			api.ErrorCode == jetstream.JSErrCodeStreamNotFound || api.ErrorCode == codeNoLimits ||
			api.ErrorCode == codeNoLeader || api.ErrorCode == codeNotLeader
	}
	return errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) ||
		errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, nats.ErrNoResponders)
}
