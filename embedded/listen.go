package embedded

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tallylog/tally/events"
)

// Listen says where the server of an owner listens for clients that do not read its
// directory, and who they are. They append through the owner like everybody else.
type Listen struct {
	Address string // host:port
	TLS     *tls.Config
	Users   []Account

	// Ready, if not nil, is called with the URL for clients when the store is served.
	Ready func(url string)
}

// Account is a client that may connect. Its password is what it sends, or the bcrypt
// hash of that.
type Account struct{ Name, Password string }

// refusePersonal returns an *events.PersonalError for an owner that listens and whose store
// has something personal: every user may read all of it. Nothing of it comes later, as the
// log refuses it.
func (s *Server) refusePersonal(ctx context.Context) error {
	if !s.events.Shared() {
		return nil
	}
	n := 0
	for _, err := range s.events.Subjects(ctx, events.PersonalNamespace, "") {
		if err != nil {
			return err
		}
		n++
	}
	if n > 0 {
		return &events.PersonalError{Where: "a store that others can reach", Subjects: n}
	}
	return nil
}

// ListenError says why an owner does not listen at an address: beyond this machine
// nobody may read what goes over the wire, or connect without a password.
type ListenError struct{ Address, Reason string }

func (e *ListenError) Error() string {
	return fmt.Sprintf("embedded: listen at %s: %s", e.Address, e.Reason)
}

// Check returns a *ListenError if no owner would listen like this.
func (l *Listen) Check() error {
	_, _, err := l.check()
	return err
}

// check returns the host and port, or a *ListenError.
func (l *Listen) check() (host string, port int, err error) {
	fail := func(reason string) (string, int, error) { return "", 0, &ListenError{l.Address, reason} }
	host, name, err := net.SplitHostPort(l.Address)
	if err != nil {
		return fail("want HOST:PORT")
	}
	if port, err = net.LookupPort("tcp", name); err != nil {
		return fail("want HOST:PORT")
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	if host == "" {
		host = "0.0.0.0"
	}
	for _, u := range l.Users {
		if u.Name == userOwner || u.Name == userAttached {
			return fail("the name " + u.Name + " is the owner's own")
		}
	}
	switch {
	case isLoopback(host):
		return host, port, nil
	case l.TLS == nil:
		return fail("other machines reach it, and it has no TLS: everybody on the way could read and change what is sent")
	case len(l.Users) == 0:
		return fail("other machines reach it, and there are no users: everybody could read the store and append to it")
	}
	return host, port, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// LoadTLS reads a server's certificate and key, and with the name of a file of
// authorities asks every client for a certificate of one of them.
func LoadTLS(cert, key, authorities string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if authorities == "" {
		return c, nil
	}
	text, err := os.ReadFile(authorities)
	if err != nil {
		return nil, err
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate in it", authorities)
	}
	return c, nil
}

// ReadUsers reads a file of users: a line name:password for each, where the password
// may be its bcrypt hash; empty lines and those that begin with # do not count. Nobody
// but its owner may be able to read it.
func ReadUsers(path string) ([]Account, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%s: others can read it (mode %04o): chmod 600", path, mode)
	}
	var users []Account
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, password, _ := strings.Cut(line, ":")
		if name == "" || password == "" {
			return nil, fmt.Errorf("%s:%d: want name:password", path, n) // and not the line, which may be a password
		}
		if slices.ContainsFunc(users, func(u Account) bool { return u.Name == name }) {
			return nil, fmt.Errorf("%s:%d: %s is there twice", path, n, name)
		}
		users = append(users, Account{name, password})
	}
	return users, lines.Err()
}

// door lets the processes of this machine's user in where the server itself wants TLS
// of everybody, and perhaps a certificate: on the loopback interface, as ever.
type door struct {
	listener net.Listener
	server   *server.Server
	running  sync.WaitGroup
	open     context.Context // until close
	shut     context.CancelFunc
}

func openDoor(s *server.Server) (*door, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &door{listener: l, server: s}
	d.open, d.shut = context.WithCancel(context.Background())
	d.running.Go(d.run)
	return d, nil
}

func (d *door) run() {
	for {
		out, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.running.Go(func() { d.carry(out) })
	}
}

// carry copies both ways until either end is closed, or the door.
func (d *door) carry(out net.Conn) {
	defer out.Close()
	defer context.AfterFunc(d.open, func() { out.Close() })()
	in, err := d.server.InProcessConn()
	if err != nil {
		return
	}
	d.running.Go(func() {
		io.Copy(out, in)
		out.Close()
	})
	io.Copy(in, out)
	in.Close()
}

// close returns when nobody is in the door any more.
func (d *door) close() error {
	err := d.listener.Close()
	d.shut()
	d.running.Wait()
	return err
}
