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
	roll     *roll
	most     int // limit of connections that have logged in
	strays   *strays

	pending *pendingLogins // connections that have not logged in
	running sync.WaitGroup
	open    context.Context // canceled by close
	shut    context.CancelFunc

	mu     sync.Mutex // guards the field below
	within map[net.Conn]guest
}

// guest is a user whom the server admits, under a name and a password that only this process knows.
type guest struct {
	Account             // as the client sends it
	name, secret string // as the server knows it
}

// proxySettings are the settings of one proxy.
type proxySettings struct {
	address string
	secure  func() *tls.Config
	roll    *roll
	bounds  bounds
}

func openProxy(o proxySettings, inside func() (net.Conn, error), st *strays) (*proxy, error) {
	l, err := net.Listen("tcp", o.address)
	if err != nil {
		return nil, err
	}
	d := &proxy{listener: l, inside: inside, secure: o.secure, roll: o.roll, most: o.bounds.within, strays: st,
		pending: newPendingLogins(o.bounds.before), within: make(map[net.Conn]guest)}
	if d.info, err = d.greeting(); err != nil {
		l.Close()
		return nil, err
	}
	d.open, d.shut = context.WithCancel(context.Background())
	d.running.Go(d.run)
	return d, nil
}

// greeting returns the INFO line for clients of the proxy.
func (d *proxy) greeting() ([]byte, error) {
	in, err := d.inside()
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
	if at, ok := d.listener.Addr().(*net.TCPAddr); ok {
		members["host"], members["port"] = fmt.Appendf(nil, "%q", at.IP), fmt.Append(nil, at.Port)
	}
	if d.secure != nil {
		members["tls_required"] = json.RawMessage("true")
		if d.secure().ClientAuth == tls.RequireAndVerifyClientCert {
			members["tls_verify"] = json.RawMessage("true")
		}
	}
	text, err := json.Marshal(members)
	return fmt.Appendf(nil, "INFO %s \r\n", text), err
}

// run accepts connections until the proxy is closed. Errors of Accept, such as a lack of file descriptors, are
// temporary, so run tries again.
func (d *proxy) run() {
	pause := time.Duration(0)
	for {
		out, err := d.listener.Accept()
		if err == nil {
			pause = 0
			d.pending.enter(out, d.open.Done()) // before the next Accept, which bounds the waiting connections
			d.running.Go(func() { d.enter(out) })
			continue
		}
		if d.open.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		d.strays.count("no descriptor was free")
		pause = min(max(2*pause, 10*time.Millisecond), maxPause)
		select {
		case <-time.After(pause):
		case <-d.open.Done():
			return
		}
	}
}

// enter waits for a client's login, and then copies data between the client and the server.
func (d *proxy) enter(raw net.Conn) {
	defer raw.Close()
	defer context.AfterFunc(d.open, func() { raw.Close() })()
	out, in, why := d.login(raw)
	crowded := d.pending.leave(raw)
	switch {
	case crowded:
		why = "too many had not logged in"
	case d.open.Err() != nil:
		why = ""
	}
	if why != "" {
		d.strays.count(why)
	}
	if in == nil {
		return
	}
	defer d.leave(raw)
	if !crowded {
		d.carry(out, in)
	}
	in.Close()
}

// login returns both ends of a connection, or the reason why the client is rejected.
func (d *proxy) login(raw net.Conn) (out *client, in net.Conn, why string) {
	_ = raw.SetDeadline(time.Now().Add(loginWithin))
	if _, err := raw.Write(d.info); err != nil {
		return nil, nil, "they left"
	}
	out = &client{Conn: raw}
	if d.secure != nil {
		secured := tls.Server(raw, d.secure())
		if err := secured.Handshake(); err != nil {
			return nil, nil, "their TLS handshake failed"
		}
		out.Conn = secured
	}
	out.read = bufio.NewReaderSize(out.Conn, 4096)
	connect, err := out.connect()
	if err != nil {
		return nil, nil, "they did not log in"
	}
	g, err := d.roll.admit(connect.text("user"), connect.text("pass"))
	if err != nil {
		out.refuse(wrongLogin)
		return nil, nil, "their user or password was wrong"
	}
	if refusal := d.take(raw, g); refusal != "" {
		out.refuse(refusal)
		return nil, nil, "too many had logged in"
	}
	if in, err = d.present(connect, g); err != nil {
		d.leave(raw)
		return nil, nil, "the server did not take them"
	}
	_ = raw.SetDeadline(time.Time{})
	return out, in, ""
}

// present connects to the server as a guest.
func (d *proxy) present(connect hello, g guest) (net.Conn, error) {
	in, err := d.inside()
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
func (d *proxy) carry(out *client, in net.Conn) {
	d.running.Go(func() {
		_, _ = io.Copy(out.Conn, in)
		out.Close()
	})
	sent, _ := out.read.Peek(out.read.Buffered())
	if _, err := in.Write(sent); err == nil {
		_, _ = io.Copy(in, out.Conn)
	}
	in.Close()
}

// take registers a guest's connection. If the guest's account has just ended or the proxy is full, take returns the
// server's error message.
func (d *proxy) take(c net.Conn, g guest) (refusal string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !d.roll.has(g):
		return wrongLogin
	case len(d.within) >= d.most:
		return "maximum connections exceeded"
	}
	d.within[c] = g
	return ""
}

func (d *proxy) leave(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.within, c)
}

// expel closes the connections of all guests, or only of those who are no longer on the list.
func (d *proxy) expel(all bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c, g := range d.within {
		if all || !d.roll.has(g) {
			c.Close()
		}
	}
}

// close closes all connections and returns when they have ended.
func (d *proxy) close() error {
	d.shut()
	err := d.listener.Close()
	d.running.Wait()
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

// as returns a CONNECT line with a guest's name and password. Other members that identify the client are left out.
func (c hello) as(g guest) []byte {
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
