package log

import (
	"errors"
	"fmt"
	"time"

	"github.com/tallylog/tally/internal/natswire"
)

// dial begins a connection that was made to the server, which is closed after an error.
func (l Login) dial(name, inbox string, wait time.Duration, buffer int) (*natswire.Reader, error) {
	in, err := natswire.Dial(l.Conn, natswire.Hello{Name: name, Version: serviceVersion, User: l.User, Password: l.Password, Inbox: inbox, Wait: wait, Buffer: buffer})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %v", ErrUnavailable, err), l.Conn.Close())
	}
	return in, nil
}
