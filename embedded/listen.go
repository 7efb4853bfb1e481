package embedded

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tallylog/tally/events"
)

// Listen configures the address and the users for remote clients, which cannot read the store's directory. They append
// through the owner, as local processes do.
type Listen struct {
	Address string // host:port
	TLS     *tls.Config
	Users   []Account

	// Ready, if not nil, is called with the URL for clients when the store is served.
	Ready func(url string)

	renew func(next Listen) error // set by the listening owner
}

// Account is a user who may connect. Password is the password itself or its bcrypt hash.
type Account struct{ Name, Password string }

// refusePersonal returns an *events.PersonalError if the owner listens and the store has personal subjects: every user
// could read them. Later appends of personal events are refused by the log.
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

// ListenError reports that an owner refuses to listen at an address. Other machines may connect only with TLS and a
// password.
type ListenError struct{ Address, Reason string }

func (e *ListenError) Error() string {
	return fmt.Sprintf("embedded: listen at %s: %s", e.Address, e.Reason)
}

// Check returns a *ListenError if the settings are not allowed.
func (l *Listen) Check() error {
	fail := func(reason string) error { return &ListenError{l.Address, reason} }
	host, name, err := net.SplitHostPort(l.Address)
	if err != nil {
		return fail("want HOST:PORT")
	}
	if _, err := net.LookupPort("tcp", name); err != nil {
		return fail("want HOST:PORT")
	}
	for _, u := range l.Users {
		if u.Name == userOwner || u.Name == userAttached {
			return fail("the name " + u.Name + " is the owner's own")
		}
	}
	switch {
	case isLoopback(host):
		return nil
	case l.TLS == nil:
		return fail("other machines can reach it, and it has no TLS: the traffic could be read and changed on the way")
	case len(l.Users) == 0:
		return fail("other machines can reach it, and there are no users: anybody could read the store and append to it")
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// LoadTLS reads a server's certificate and key. If authorities names a file of certificate authorities, every client
// needs a certificate of one of them; "" asks for no client certificates.
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

// ReadUsers reads a file of users, with a line name:password for each. The password may be a bcrypt hash. Empty lines
// and lines that begin with # are skipped. If other users can read the file, ReadUsers returns an error.
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
			return nil, fmt.Errorf("%s:%d: want name:password", path, n) // the line is left out: it may be a password
		}
		if slices.ContainsFunc(users, func(u Account) bool { return u.Name == name }) {
			return nil, fmt.Errorf("%s:%d: duplicate user %s", path, n, name)
		}
		users = append(users, Account{name, password})
	}
	return users, lines.Err()
}

// outside is the proxy for clients that cannot read the directory.
type outside struct {
	*proxy
	tls atomic.Pointer[tls.Config] // nil: no TLS
}

func (o *outside) url() string {
	scheme := "nats://"
	if o.secure != nil {
		scheme = "tls://"
	}
	return scheme + o.listener.Addr().String()
}

// openProxies opens the proxy for processes of this user, and with l the proxy for remote users. Credentials for one
// proxy are not valid at the other.
func (s *Server) openProxies(l *Listen) error {
	proxies := 1
	if l != nil {
		proxies = 2
	}
	share := boundsOf(descriptorLimit(), proxies)
	s.rejected = newRejections(s.dir, s.logger)
	s.atEnd(s.rejected.close)
	attached, err := s.accounts.innerUser(s.nats, Account{userAttached, s.token})
	if err != nil {
		return err
	}
	mine := &userList{}
	mine.set([]innerUser{attached})
	if s.local, err = openProxy(proxySettings{address: "127.0.0.1:0", users: mine, bounds: share}, s.nats.InProcessConn, s.rejected); err != nil {
		return err
	}
	s.atEnd(s.local.close)
	if l == nil {
		return nil
	}
	if s.outside, err = s.openOutside(l, share); err == nil {
		s.atEnd(s.outside.close)
	}
	return err
}

func (s *Server) openOutside(l *Listen, share bounds) (*outside, error) {
	o, settings := &outside{}, proxySettings{address: l.Address, users: &userList{}, bounds: share}
	users, err := s.innerUsers(l.Users)
	if err != nil {
		return nil, err
	}
	settings.users.set(users)
	if l.TLS != nil {
		o.tls.Store(l.TLS)
		settings.secure = o.tls.Load
	}
	if o.proxy, err = openProxy(settings, s.nats.InProcessConn, s.rejected); err != nil {
		return nil, err
	}
	l.renew = func(next Listen) error { return s.renew(o, next) }
	return o, nil
}

// Renew replaces the users and the certificate of a listening owner by those of next. Renew disconnects users who are
// gone or have another password. If next requires other certificate authorities, Renew disconnects all users. After an
// error nothing has changed.
func (l *Listen) Renew(next Listen) error {
	if err := next.Check(); err != nil {
		return err
	}
	switch {
	case l.renew == nil:
		return &ListenError{l.Address, "the store does not listen there yet"}
	case next.Address != l.Address || (next.TLS == nil) != (l.TLS == nil):
		return &ListenError{next.Address, "a restart is needed to change the address, or to begin or end TLS"}
	}
	return l.renew(next)
}

func (s *Server) renew(o *outside, next Listen) error {
	users, err := s.innerUsers(next.Users)
	if err != nil {
		return err
	}
	strict := false
	if next.TLS != nil {
		before := o.tls.Swap(next.TLS)
		strict = !sameAuthorities(before.ClientCAs, next.TLS.ClientCAs)
	}
	o.users.set(users)
	o.expel(strict)
	return nil
}

func sameAuthorities(a, b *x509.CertPool) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equal(b)
}

// innerUsers returns the users with their names and passwords inside the server.
func (s *Server) innerUsers(users []Account) (list []innerUser, err error) {
	for _, u := range users {
		g, err := s.accounts.innerUser(s.nats, u)
		if err != nil {
			return nil, err
		}
		list = append(list, g)
	}
	return list, nil
}
