package embedded

import (
	"context"
	"io"
	"net"
	"net/url"
	"time"
)

// Answers reports whether the process that serves a URL of owner.json greets whoever
// connects. It is not logged in to.
func Answers(ctx context.Context, serves string) bool {
	u, err := url.Parse(serves)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(answer)) // a connection that cannot is closed already
	greeting := make([]byte, len("INFO "))
	_, err = io.ReadFull(conn, greeting)
	return err == nil && string(greeting) == "INFO "
}
