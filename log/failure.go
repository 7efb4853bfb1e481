package log

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/tallylog/tally/events"
)

// Failure is an error with its facts, as the owner's service and an HTTP answer report it. The table in docs/wire.md
// lists the codes, with the other members of each. A client treats an unknown code as an error that it cannot handle.
type Failure struct {
	Code    string        `json:"code"`
	Message string        `json:"message"`
	Field   string        `json:"field,omitempty"`  // invalid, type
	Reason  string        `json:"reason,omitempty"` // invalid, personal, moved
	Want    events.Offset `json:"want,omitempty"`   // conflict
	Have    events.Offset `json:"have,omitempty"`   // conflict
	Found   []Existing    `json:"found,omitempty"`  // partial
	Scope   string        `json:"scope,omitempty"`  // quota
	Meter   string        `json:"meter,omitempty"`  // quota
	Limit   int64         `json:"limit,omitempty"`  // quota
	Used    int64         `json:"used,omitempty"`   // quota: live now
	Needed  int64         `json:"needed,omitempty"` // quota: with the append
	Index   int           `json:"index,omitempty"`  // tooLarge; -1: the append as a whole
	What    string        `json:"what,omitempty"`   // tooLarge
	Size    int           `json:"size,omitempty"`   // tooLarge
	Max     int           `json:"max,omitempty"`    // tooLarge
	Number  uint64        `json:"number,omitempty"` // gap, outOfOrder
	Next    uint64        `json:"next,omitempty"`   // gap, outOfOrder

	Type       string `json:"type,omitempty"`       // type
	Registered string `json:"registered,omitempty"` // type
	Given      string `json:"given,omitempty"`      // type

	// The subject of an append to several that has the conflict, or part of whose events the log has.
	Namespace string `json:"namespace,omitempty"`
	Subject   string `json:"subject,omitempty"`
}

// Codes of failures.
const (
	wireInvalid     = "invalid"
	wireTooLarge    = "tooLarge"
	wireConflict    = "conflict"
	wirePartial     = "partial"
	wireGap         = "gap"
	wireOutOfOrder  = "outOfOrder"
	wireUnknown     = "unknown"
	wireAborted     = "aborted"
	wireFull        = "full"
	wireQuota       = "quota"
	wireUnavailable = "unavailable"
	wirePersonal    = "personal"
	wireDamaged     = "damaged"
	wireType        = "type"
	wireMoved       = "moved"
	wireInternal    = "internal"
)

// failures are the codes. Each has the status of an HTTP answer, and the error that it is if it has no members: the
// first match counts.
var failures = []struct {
	code   string
	status int
	is     error
}{
	{wireInvalid, http.StatusBadRequest, nil},
	{wirePersonal, http.StatusForbidden, nil},
	{wireDamaged, http.StatusInternalServerError, ErrDamaged},
	{wireConflict, http.StatusConflict, ErrConflict},
	{wirePartial, http.StatusConflict, nil},
	{wireType, http.StatusConflict, nil},
	{wireGap, http.StatusConflict, nil},
	{wireOutOfOrder, http.StatusConflict, nil},
	{wireUnknown, http.StatusGatewayTimeout, ErrUnknown},
	{wireAborted, http.StatusConflict, ErrAborted},
	{wireMoved, http.StatusGone, nil},
	{wireTooLarge, http.StatusRequestEntityTooLarge, nil},
	{wireFull, http.StatusServiceUnavailable, ErrFull},
	{wireUnavailable, http.StatusServiceUnavailable, ErrUnavailable},
	{wireQuota, http.StatusInsufficientStorage, nil},
	{wireInternal, http.StatusInternalServerError, nil},
}

// Status returns the status of an HTTP answer with the failure. An unknown code has 500.
func (f *Failure) Status() int {
	for _, known := range failures {
		if known.code == f.Code {
			return known.status
		}
	}
	return http.StatusInternalServerError
}

// FailureOf returns the failure that reports an error. The code of an error that has none is internal.
func FailureOf(err error) *Failure {
	f := &Failure{Code: wireInternal, Message: err.Error()}
	if e, ok := errors.AsType[*events.InvalidError](err); ok {
		f.Code, f.Field, f.Reason = wireInvalid, e.Field, e.Reason
		return f
	}
	if e, ok := errors.AsType[*SizeError](err); ok {
		f.Code, f.Index, f.What, f.Size, f.Max = wireTooLarge, e.Index, e.What, e.Size, e.Max
		return f
	}
	if e, ok := errors.AsType[*ConflictError](err); ok {
		f.Code, f.Want, f.Have = wireConflict, e.Want, e.Have
		f.Namespace, f.Subject = e.Subject.Namespace, e.Subject.String()
		return f
	}
	if e, ok := errors.AsType[*PartialError](err); ok {
		f.Code, f.Found = wirePartial, e.Have
		f.Namespace, f.Subject = e.Subject.Namespace, e.Subject.String()
		return f
	}
	if e, ok := errors.AsType[*QuotaError](err); ok {
		f.Code, f.Scope, f.Meter, f.Limit, f.Used, f.Needed = wireQuota, e.Scope, e.Meter, e.Limit, e.Have, e.Want
		return f
	}
	if e, ok := errors.AsType[*events.DamageError](err); ok {
		f.Code, f.Have = wireDamaged, e.Offset
		return f
	}
	if e, ok := errors.AsType[*events.PersonalError](err); ok {
		f.Code, f.Reason = wirePersonal, e.Where
		return f
	}
	if e, ok := errors.AsType[*events.TypeError](err); ok {
		f.Code, f.Type, f.Field, f.Registered, f.Given = wireType, e.Name, e.Field, e.Have, e.Want
		return f
	}
	if e, ok := errors.AsType[*MovedError](err); ok {
		f.Code, f.Reason = wireMoved, e.To
		return f
	}
	if e, ok := errors.AsType[*orderError](err); ok {
		f.Code, f.Number, f.Next = wireOutOfOrder, e.number, e.next
		if e.gap() {
			f.Code = wireGap
		}
		return f
	}
	for _, known := range failures {
		if known.is != nil && errors.Is(err, known.is) {
			f.Code = known.code
			return f
		}
	}
	return f
}

// errorOf returns the error of package log for an error from the wire.
func (f *Failure) errorOf(sub events.Subject) error {
	if named, err := events.ParseSubject(f.Namespace, f.Subject); err == nil {
		sub = named
	}
	switch f.Code {
	case wireInvalid:
		return &events.InvalidError{Field: f.Field, Reason: f.Reason}
	case wireTooLarge:
		return &SizeError{Index: f.Index, What: f.What, Size: f.Size, Max: f.Max}
	case wireConflict:
		return &ConflictError{Subject: sub, Want: f.Want, Have: f.Have}
	case wirePartial:
		return &PartialError{Subject: sub, Have: f.Found}
	case wirePersonal:
		return &events.PersonalError{Where: f.Reason}
	case wireType:
		return &events.TypeError{Name: f.Type, Field: f.Field, Have: f.Registered, Want: f.Given}
	case wireMoved:
		return &MovedError{To: f.Reason}
	case wireDamaged:
		if f.Have > 0 {
			return fmt.Errorf("%s: %w", sub.Name(), &events.DamageError{Offset: f.Have})
		}
	case wireQuota:
		return &QuotaError{Scope: f.Scope, Meter: f.Meter, Limit: f.Limit, Have: f.Used, Want: f.Needed}
	}
	for _, known := range failures {
		if f.Code == known.code && known.is != nil {
			return fmt.Errorf("%w: %s", known.is, f.Message)
		}
	}
	return errors.New(f.Message)
}
