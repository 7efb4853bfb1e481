package embedded

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// The server itself does not listen. Its limit on connections would also count those of this process, and unknown
// clients could use up file descriptors that the log needs. A proxy accepts connections instead, and connects to the
// server only after the client has logged in.

const (
	loginWithin    = 5 * time.Second // bounds the TLS handshake and the login together
	maxConnectLine = 64 << 10        // bytes of a CONNECT line
	maxPause       = time.Second     // after an error of Accept

	wrongLogin = "Authorization Violation" // the server's message for a wrong user or password
)

// proxy is a listener through which clients reach the server.
type proxy struct {
	listener net.Listener
	inside   func() (net.Conn, error) // connects to the server
	info     []byte                   // the server's first line, without the members about one connection
	secure   func() *tls.Config       // nil: no TLS
	users    *userList
	most     int // limit of connections that have logged in
	rejected *rejections

	pending *pendingLogins // connections that have not logged in
	running sync.WaitGroup
	open    context.Context // canceled by close
	shut    context.CancelFunc

	mu     sync.Mutex // guards the field below
	within map[net.Conn]innerUser
}

// innerUser is a user that the server admits, under a name and a password that only this process knows.
type innerUser struct {
	Account             // as the client sends it
	name, secret string // as the server knows it
}

// proxySettings are the settings of one proxy.
type proxySettings struct {
	address string
	secure  func() *tls.Config
	users   *userList
	bounds  bounds
}

func openProxy(o proxySettings, inside func() (net.Conn, error), rejected *rejections) (*proxy, error) {
	l, err := net.Listen("tcp", o.address)
	if err != nil {
		return nil, err
	}
	d := &proxy{listener: l, inside: inside, secure: o.secure, users: o.users, most: o.bounds.within, rejected: rejected,
		pending: newPendingLogins(o.bounds.before), within: make(map[net.Conn]innerUser)}
	if d.info, err = d.greeting(); err != nil {
		l.Close()
		return nil, err
	}
	d.open, d.shut = context.WithCancel(context.Background())
	d.running.Go(d.run)
	return d, nil
}

// greeting returns the INFO line for clients of the proxy.
func (p *proxy) greeting() ([]byte, error) {
	in, err := p.inside()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	_ = in.SetDeadline(time.Now().Add(loginWithin))
	line, err := bufio.NewReaderSize(in, maxConnectLine).ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("the server's first line: %w", err)
	}
	members := make(map[string]json.RawMessage)
	if err := json.Unmarshal(bytes.TrimPrefix(line, []byte("INFO ")), &members); err != nil {
		return nil, fmt.Errorf("the server's first line: %w", err)
	}
	for _, own := range []string{"client_id", "client_ip", "tls_available", "tls_required", "tls_verify"} {
		delete(members, own)
	}
	if at, ok := p.listener.Addr().(*net.TCPAddr); ok {
		members["host"], members["port"] = fmt.Appendf(nil, "%q", at.IP), fmt.Append(nil, at.Port)
	}
	if p.secure != nil {
		members["tls_required"] = json.RawMessage("true")
		if p.secure().ClientAuth == tls.RequireAndVerifyClientCert {
			members["tls_verify"] = json.RawMessage("true")
		}
	}
	text, err := json.Marshal(members)
	return fmt.Appendf(nil, "INFO %s \r\n", text), err
}

// run accepts connections until the proxy is closed. Errors of Accept, such as a lack of file descriptors, are
// temporary, so run tries again.
func (p *proxy) run() {
	pause := time.Duration(0)
	for {
		out, err := p.listener.Accept()
		if err == nil {
			pause = 0
			p.pending.enter(out, p.open.Done()) // before the next Accept, which bounds the waiting connections
			p.running.Go(func() { p.enter(out) })
			continue
		}
		if p.open.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		p.rejected.count("no free file descriptor")
		pause = min(max(2*pause, 10*time.Millisecond), maxPause)
		select {
		case <-time.After(pause):
		case <-p.open.Done():
			return
		}
	}
}

// enter waits for a client's login, and then copies data between the client and the server.
func (p *proxy) enter(raw net.Conn) {
	defer raw.Close()
	defer context.AfterFunc(p.open, func() { raw.Close() })()
	out, in, why := p.login(raw)
	crowded := p.pending.leave(raw)
	switch {
	case crowded:
		why = "too many pending logins"
	case p.open.Err() != nil:
		why = ""
	}
	if why != "" {
		p.rejected.count(why)
	}
	if in == nil {
		return
	}
	defer p.leave(raw)
	if !crowded {
		p.carry(out, in)
	}
	in.Close()
}

// login returns both ends of a connection, or the reason why the client is rejected.
func (p *proxy) login(raw net.Conn) (out *client, in net.Conn, why string) {
	_ = raw.SetDeadline(time.Now().Add(loginWithin))
	if _, err := raw.Write(p.info); err != nil {
		return nil, nil, "client left"
	}
	out = &client{Conn: raw}
	if p.secure != nil {
		secured := tls.Server(raw, p.secure())
		if err := secured.Handshake(); err != nil {
			return nil, nil, "TLS handshake failed"
		}
		out.Conn = secured
	}
	out.read = bufio.NewReaderSize(out.Conn, 4096)
	connect, err := out.connect()
	if err != nil {
		return nil, nil, "no login"
	}
	g, err := p.users.admit(connect.text("user"), connect.text("pass"))
	if err != nil {
		out.refuse(wrongLogin)
		return nil, nil, "unknown user or wrong password"
	}
	if refusal := p.take(raw, g); refusal != "" {
		out.refuse(refusal)
		return nil, nil, "too many connections"
	}
	if in, err = p.present(connect, g); err != nil {
		p.leave(raw)
		return nil, nil, "server refused the connection"
	}
	_ = raw.SetDeadline(time.Time{})
	return out, in, ""
}

// present connects to the server as a user.
func (p *proxy) present(connect hello, g innerUser) (net.Conn, error) {
	in, err := p.inside()
	if err != nil {
		return nil, err
	}
	_ = in.SetDeadline(time.Now().Add(loginWithin))
	err = skipLine(in) // the INFO line: the client has received it
	if err == nil {
		_, err = in.Write(connect.as(g))
	}
	if err != nil {
		in.Close()
		return nil, err
	}
	_ = in.SetDeadline(time.Time{})
	return in, nil
}

// skipLine reads one line, byte by byte, and nothing behind it.
func skipLine(r io.Reader) error {
	for b := make([]byte, 1); b[0] != '\n'; {
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
	}
	return nil
}

// carry copies both ways until either end or the proxy is closed.
func (p *proxy) carry(out *client, in net.Conn) {
	p.running.Go(func() {
		_, _ = io.Copy(out.Conn, in)
		out.Close()
	})
	sent, _ := out.read.Peek(out.read.Buffered())
	if _, err := in.Write(sent); err == nil {
		_, _ = io.Copy(in, out.Conn)
	}
	in.Close()
}

// take registers a user's connection. If the user is no longer on the list or the proxy is full, take returns the
// server's error message.
func (p *proxy) take(c net.Conn, g innerUser) (refusal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.users.has(g):
		return wrongLogin
	case len(p.within) >= p.most:
		return "maximum connections exceeded"
	}
	p.within[c] = g
	return ""
}

func (p *proxy) leave(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.within, c)
}

// expel closes the connections of all users, or only of those that are no longer on the list.
func (p *proxy) expel(all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, g := range p.within {
		if all || !p.users.has(g) {
			c.Close()
		}
	}
}

// close closes all connections and returns when they have ended.
func (p *proxy) close() error {
	p.shut()
	err := p.listener.Close()
	p.running.Wait()
	return err
}

// client is the client's end of a connection.
type client struct {
	net.Conn
	read *bufio.Reader
}

// refuse sends an error in the server's format.
func (c *client) refuse(why string) { fmt.Fprintf(c.Conn, "-ERR '%s'\r\n", why) }

// connect reads the client's CONNECT line.
func (c *client) connect() (hello, error) {
	var line []byte
	for {
		part, err := c.read.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) || len(line) > maxConnectLine {
			return nil, err
		}
	}
	verb, text, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
	if !bytes.EqualFold(verb, []byte("CONNECT")) {
		return nil, errors.New("want CONNECT")
	}
	var members hello
	err := json.Unmarshal(text, &members)
	return members, err
}

// hello has the members of a CONNECT line.
type hello map[string]json.RawMessage

func (c hello) text(member string) (s string) {
	_ = json.Unmarshal(c[member], &s)
	return s
}

// as returns a CONNECT line with an inner user's name and password. Other members that identify the client are left out.
func (c hello) as(g innerUser) []byte {
	passed := make(map[string]any)
	for _, member := range []string{"verbose", "pedantic", "name", "lang", "version", "protocol", "echo", "headers", "no_responders"} {
		if v, ok := c[member]; ok {
			passed[member] = v
		}
	}
	passed["user"], passed["pass"] = g.name, g.secret
	text, _ := json.Marshal(passed) // JSON and strings always encode
	return fmt.Appendf(nil, "CONNECT %s\r\n", text)
}
