package redis

import (
	"context"
	"errors"
	"net"
	"net/url"
	"time"

	"github.com/gomodule/redigo/redis"
)

// ErrURL reports that an address is not one of a Redis server. It does not contain the address, which may have a
// password.
var ErrURL = errors.New("want redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// with TLS")

// CheckURL checks that an address is one of a Redis server. The error is ErrURL.
func CheckURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.Hostname() == "" {
		return ErrURL
	}
	return nil
}

// Conn is a connection. It is not safe for concurrent use.
type Conn struct {
	redis.Conn
	net net.Conn
}

// Dial connects to the server at an address.
func Dial(ctx context.Context, address string) (*Conn, error) {
	if err := CheckURL(address); err != nil {
		return nil, err
	}
	c := &Conn{}
	dialer := net.Dialer{Timeout: 10 * time.Second, KeepAlive: time.Minute}
	conn, err := redis.DialURLContext(ctx, address, redis.DialContextFunc(func(ctx context.Context, network, addr string) (net.Conn, error) {
		var err error
		c.net, err = dialer.DialContext(ctx, network, addr)
		return c.net, err
	}))
	if err != nil {
		return nil, err
	}
	c.Conn = conn
	return c, nil
}

// Do sends a command and returns the answer: a string, an int64, nil, or a []any of these. If the answer is an error,
// Do returns it. If ctx is done before the answer arrives, the connection cannot be used any more.
func (c *Conn) Do(ctx context.Context, words ...any) (any, error) {
	return c.until(ctx, func() (any, error) { return c.Conn.Do(words[0].(string), words[1:]...) })
}

// until ends a call on the connection when ctx is done.
func (c *Conn) until(ctx context.Context, call func() (any, error)) (any, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.net.Close() }) // makes a blocked call return
	reply, err := call()
	if !stop() && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return plain(reply), err
}

// plain converts all bytes in an answer to strings.
func plain(reply any) any {
	switch r := reply.(type) {
	case []byte:
		return string(r)
	case []any:
		for i := range r {
			r[i] = plain(r[i])
		}
	}
	return reply
}
