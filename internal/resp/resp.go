// Package resp speaks to a Redis server, for comparisons with one: one command after the other
// on a connection, and the answers of version 2 of its protocol.
package resp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ErrAddress says that an address is not one of a Redis server. It does not repeat the address,
// which may have a password.
var ErrAddress = errors.New("want redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]")

// Conn is a connection. One call at a time may use it.
type Conn struct {
	conn net.Conn
	r    *bufio.Reader
	out  []byte
}

// Parse reads an address. The error is ErrAddress.
func Parse(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "redis" || u.Hostname() == "" {
		return nil, ErrAddress
	}
	return u, nil
}

// Dial connects to the server of an address.
func Dial(ctx context.Context, address string) (*Conn, error) {
	u, err := Parse(address)
	if err != nil {
		return nil, err
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, err
	}
	c := newConn(conn)
	if err := c.greet(ctx, u); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

func newConn(conn net.Conn) *Conn { return &Conn{conn: conn, r: bufio.NewReaderSize(conn, maxLine)} }

// Close closes the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// greet says who asks, and for which database.
func (c *Conn) greet(ctx context.Context, u *url.URL) error {
	if password, ok := u.User.Password(); ok {
		auth := []string{"AUTH", password}
		if u.User.Username() != "" {
			auth = []string{"AUTH", u.User.Username(), password}
		}
		if _, err := c.Do(ctx, auth...); err != nil {
			return err
		}
	}
	if db := strings.Trim(u.Path, "/"); db != "" {
		_, err := c.Do(ctx, "SELECT", db)
		return err
	}
	return nil
}

// Do sends a command and returns the answer: a string, an int64, nil, or a []any of these. An
// answer that is an error is returned as that. When ctx is done before there is an answer, the
// connection is of no use any more.
func (c *Conn) Do(ctx context.Context, words ...string) (any, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) }) // then what waits ends
	defer stop()
	c.out = fmt.Appendf(c.out[:0], "*%d\r\n", len(words))
	for _, w := range words {
		c.out = append(append(fmt.Appendf(c.out, "$%d\r\n", len(w)), w...), "\r\n"...)
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return nil, err
	}
	return c.reply(maxDepth)
}

// Bounds of an answer.
const (
	maxDepth = 8       // of lists in lists
	maxSize  = 1 << 20 // bytes of a string, and elements of a list
	maxLine  = 64 << 10
)

// reply reads an answer.
func (c *Conn) reply(depth int) (any, error) {
	raw, err := c.r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	line, ok := strings.CutSuffix(string(raw), "\r\n")
	if !ok || line == "" {
		return nil, fmt.Errorf("not an answer of a Redis server: %q", line)
	}
	switch text := line[1:]; line[0] {
	case '+':
		return text, nil
	case '-':
		return nil, fmt.Errorf("the Redis server says %q", text)
	case ':':
		return strconv.ParseInt(text, 10, 64)
	case '$', '*':
		n, err := strconv.Atoi(text)
		switch {
		case err != nil || n < -1 || n > maxSize || depth == 0:
		case n < 0:
			return nil, nil
		case line[0] == '*':
			return c.list(n, depth-1)
		default:
			return c.text(n)
		}
	}
	return nil, fmt.Errorf("not an answer of a Redis server: %q", line)
}

func (c *Conn) text(n int) (any, error) {
	data := make([]byte, n+len("\r\n"))
	if _, err := io.ReadFull(c.r, data); err != nil {
		return nil, err
	}
	return string(data[:n]), nil
}

func (c *Conn) list(n, depth int) (any, error) {
	list := []any{}
	for range n {
		v, err := c.reply(depth)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}
