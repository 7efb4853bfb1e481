package storedir

import (
	"context"
	"io"
	"net"
	"net/url"
	"time"
)

// answerTimeout bounds the wait for a server's greeting.
const answerTimeout = 2 * time.Second

// Answers reports whether a NATS server greets a new connection to a URL from [OwnerFile]. Answers does not log in.
func Answers(ctx context.Context, serves string) bool {
	u, err := url.Parse(serves)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(answerTimeout)) // an error means that the connection is closed, and ReadFull returns it
	greeting := make([]byte, len("INFO "))
	_, err = io.ReadFull(conn, greeting)
	return err == nil && string(greeting) == "INFO "
}
