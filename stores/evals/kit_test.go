package evals_test

import (
	"errors"

	"github.com/tallylog/tally/events"
)

func isInvalid(err error) bool {
	_, ok := errors.AsType[*events.InvalidError](err)
	return ok
}
