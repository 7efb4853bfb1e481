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

// The server itself does not listen: it has no bound on connections that spares those of
// this process, and strangers would hold descriptors that the log needs. A door accepts
// connections, and the server hears only of those that have logged in.

const (
	loginWithin = 5 * time.Second // for TLS, user and password together
	mostConnect = 64 << 10        // bytes of a CONNECT line
	mostPause   = time.Second     // after an error of Accept

	wrongLogin = "Authorization Violation" // the server's words for a wrong user or password
)

// door is a listener by which clients reach the server.
type door struct {
	listener net.Listener
	inside   func() (net.Conn, error) // connects to the server
	info     []byte                   // the server's first line, without what is about one connection
	secure   func() *tls.Config       // nil: the door has no TLS
	roll     *roll
	most     int // connections that have logged in
	strays   *strays

	lobby   *lobby // of those that have not logged in
	running sync.WaitGroup
	open    context.Context // until close
	shut    context.CancelFunc

	mu     sync.Mutex // guards what follows
	within map[net.Conn]guest
}

// guest is a client that may be in the server, by a name and a password that only this
// process knows.
type guest struct {
	Account             // as the client has it
	name, secret string // as the server does
}

// doorSettings are what doors differ in.
type doorSettings struct {
	address string
	secure  func() *tls.Config
	roll    *roll
	bounds  bounds
}

func openDoor(o doorSettings, inside func() (net.Conn, error), st *strays) (*door, error) {
	l, err := net.Listen("tcp", o.address)
	if err != nil {
		return nil, err
	}
	d := &door{listener: l, inside: inside, secure: o.secure, roll: o.roll, most: o.bounds.within, strays: st,
		lobby: newLobby(o.bounds.before), within: make(map[net.Conn]guest)}
	if d.info, err = d.greeting(); err != nil {
		l.Close()
		return nil, err
	}
	d.open, d.shut = context.WithCancel(context.Background())
	d.running.Go(d.run)
	return d, nil
}

// greeting returns the INFO line for clients of the door.
func (d *door) greeting() ([]byte, error) {
	in, err := d.inside()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	_ = in.SetDeadline(time.Now().Add(loginWithin))
	line, err := bufio.NewReaderSize(in, mostConnect).ReadSlice('\n')
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

// run accepts until the door is closed. An error of Accept is the system's, as when it has
// no descriptor left: it passes.
func (d *door) run() {
	pause := time.Duration(0)
	for {
		out, err := d.listener.Accept()
		if err == nil {
			pause = 0
			d.lobby.enter(out, d.open.Done()) // here, so that no more are accepted than may wait
			d.running.Go(func() { d.enter(out) })
			continue
		}
		if d.open.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		d.strays.count("no descriptor was free")
		pause = min(max(2*pause, 10*time.Millisecond), mostPause)
		select {
		case <-time.After(pause):
		case <-d.open.Done():
			return
		}
	}
}

// enter has a client log in, and then carries what it and the server say.
func (d *door) enter(raw net.Conn) {
	defer raw.Close()
	defer context.AfterFunc(d.open, func() { raw.Close() })()
	out, in, why := d.login(raw)
	crowded := d.lobby.leave(raw)
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

// login returns both ends of a connection of a client that may enter, or why it may not.
func (d *door) login(raw net.Conn) (out *client, in net.Conn, why string) {
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

// present connects to the server in the name of a guest.
func (d *door) present(connect hello, g guest) (net.Conn, error) {
	in, err := d.inside()
	if err != nil {
		return nil, err
	}
	_ = in.SetDeadline(time.Now().Add(loginWithin))
	err = skipLine(in) // INFO, which the client has
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

// skipLine reads a line, and nothing of what follows.
func skipLine(r io.Reader) error {
	for b := make([]byte, 1); b[0] != '\n'; {
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
	}
	return nil
}

// carry copies both ways until either end is closed, or the door.
func (d *door) carry(out *client, in net.Conn) {
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

// take notes a guest. It refuses, in the server's words, a guest whose account has just ended,
// and any guest of a full door.
func (d *door) take(c net.Conn, g guest) (refusal string) {
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

func (d *door) leave(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.within, c)
}

// expel closes the connections of all guests, or of those that may not be there any more.
func (d *door) expel(all bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c, g := range d.within {
		if all || !d.roll.has(g) {
			c.Close()
		}
	}
}

// close returns when nobody is in the door any more.
func (d *door) close() error {
	d.shut()
	err := d.listener.Close()
	d.running.Wait()
	return err
}

// client is the end of a connection that is outside.
type client struct {
	net.Conn
	read *bufio.Reader
}

// refuse says why a client is not let in, in the words of the server.
func (c *client) refuse(why string) { fmt.Fprintf(c.Conn, "-ERR '%s'\r\n", why) }

// connect reads the line by which a client logs in.
func (c *client) connect() (hello, error) {
	var line []byte
	for {
		part, err := c.read.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) || len(line) > mostConnect {
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

// as returns the line with the name and the password of a guest, and nothing else by which
// the server would know a client.
func (c hello) as(g guest) []byte {
	passed := make(map[string]any)
	for _, member := range []string{"verbose", "pedantic", "name", "lang", "version", "protocol", "echo", "headers", "no_responders"} {
		if v, ok := c[member]; ok {
			passed[member] = v
		}
	}
	passed["user"], passed["pass"] = g.name, g.secret
	text, _ := json.Marshal(passed) // JSON and strings
	return fmt.Appendf(nil, "CONNECT %s\r\n", text)
}
