package log

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/events"
)

// Codes of the server that mean something to a log.
const (
	codeAccountResources  = 10002 // account limit reached
	codeInsufficient      = 10023 // the server has no room for the stream
	codeStorageResources  = 10047 // the same, elsewhere
	codeWrongLastSequence = 10071 // the expectation failed, the text names the sequence
	codeStoreFailed       = 10077 // the store refused: mostly max_bytes
	codeWrongLastInFlight = 10164 // the expectation failed, or a write to the subject is in flight
	codeTooManyRequests   = 10167 // the stream's queue is full
	codeBatchDisabled     = 10174 // the stream takes no atomic batches
	codeBatchIncomplete   = 10176 // a message of the batch is missing
	codeBatchDuplicate    = 10201 // an id of the batch is known
	codeBatchTooMany      = 10210 // too many batches are open
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
	case codeBatchDuplicate:
		return ErrDuplicate
	case codeTooManyRequests, codeBatchTooMany, codeBatchIncomplete:
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

// requestError translates a publication that got no answer.
func requestError(err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders): // the server says that nobody took it
		return fmt.Errorf("%w: no stream takes the subject", ErrUnavailable)
	case errors.Is(err, nats.ErrReconnectBufExceeded): // of a connection that keeps nothing for later
		return fmt.Errorf("%w: not connected", ErrUnavailable)
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: the server's max_payload is too small", ErrUnavailable)
	}
	return fmt.Errorf("%w: no ack: %v", ErrUnknown, err)
}

// apiError translates the failure of a question to the server. It stored nothing.
func apiError(err error) error {
	api, refused := errors.AsType[*jetstream.APIError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return ErrNotFound
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case refused && (api.ErrorCode == codeInsufficient || api.ErrorCode == codeStorageResources || api.ErrorCode == codeAccountResources):
		return fmt.Errorf("%w: %s", ErrFull, api.Description)
	}
	return fmt.Errorf("%w: %v", ErrUnavailable, err)
}
