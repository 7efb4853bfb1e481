package serve

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

// redisConn is a connection to a Redis server: as much of its protocol as the comparison needs,
// one command after the other. A client library would be in every tally for this alone.
type redisConn struct {
	conn net.Conn
	r    *bufio.Reader
	out  []byte
}

// dialRedis connects to redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE].
func dialRedis(ctx context.Context, address string) (*redisConn, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "redis" || u.Hostname() == "" {
		return nil, fmt.Errorf("--redis %q: want redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]", address)
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, err
	}
	c := &redisConn{conn: conn, r: bufio.NewReader(conn)}
	if err := c.greet(ctx, u); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// greet says who asks, and for which database.
func (c *redisConn) greet(ctx context.Context, u *url.URL) error {
	if password, ok := u.User.Password(); ok {
		auth := []string{"AUTH", password}
		if u.User.Username() != "" {
			auth = []string{"AUTH", u.User.Username(), password}
		}
		if _, err := c.do(ctx, auth...); err != nil {
			return err
		}
	}
	if db := strings.Trim(u.Path, "/"); db != "" {
		_, err := c.do(ctx, "SELECT", db)
		return err
	}
	return nil
}

// do sends a command and returns the answer: a string, an int64, nil, or a []any of these.
func (c *redisConn) do(ctx context.Context, words ...string) (any, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) }) // then what is under way ends
	defer stop()
	c.out = fmt.Appendf(c.out[:0], "*%d\r\n", len(words))
	for _, w := range words {
		c.out = append(fmt.Appendf(c.out, "$%d\r\n", len(w)), w+"\r\n"...)
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return nil, err
	}
	return c.reply(maxRedisDepth)
}

// Bounds of an answer.
const (
	maxRedisDepth = 8
	maxRedisBytes = 1 << 20 // of a string, and elements of an array
)

// reply reads an answer. One that is an error is returned as that.
func (c *redisConn) reply(depth int) (any, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	kind, text := line[:min(1, len(line))], line[min(1, len(line)):]
	switch kind {
	case "+":
		return text, nil
	case "-":
		return nil, fmt.Errorf("the Redis server says %q", text)
	case ":":
		return strconv.ParseInt(text, 10, 64)
	}
	n, err := strconv.Atoi(text)
	if err != nil || kind != "$" && kind != "*" || n > maxRedisBytes || depth == 0 {
		return nil, fmt.Errorf("not an answer of a Redis server: %q", line)
	}
	if n < 0 {
		return nil, nil
	}
	if kind == "*" {
		return c.list(n, depth-1)
	}
	data := make([]byte, n+2)
	_, err = io.ReadFull(c.r, data)
	return string(data[:n]), err
}

func (c *redisConn) list(n, depth int) (any, error) {
	var list []any
	for range n {
		v, err := c.reply(depth)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}
