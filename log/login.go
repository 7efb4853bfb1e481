package log

import (
	"fmt"
	"net"
	"time"

	"github.com/tallylog/tally/internal/nats/natswire"
)

// Login is a raw connection to a server, with the credentials to log in.
type Login struct {
	Conn           net.Conn
	User, Password string
}

// dial logs in on the connection. It closes the connection after an error.
func (l Login) dial(name string, wait time.Duration, buffer int, h natswire.Handler) (*natswire.Conn, error) {
	c, err := natswire.Dial(l.Conn, natswire.Hello{Name: name, Version: serviceVersion, User: l.User, Password: l.Password, Wait: wait, Buffer: buffer}, h)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	return c, nil
}
