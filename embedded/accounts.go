package embedded

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/crypto/bcrypt"

	"github.com/tallylog/tally/internal/tree/keeper"
)

// Only this process is in the account of the log and of JetStream. Each user has an account of their own, and the
// attached processes share one. From such an account only the services below can be reached. The server replaces the
// reply subject of each request by one that leads back to the requester. So no request subject, reply subject or
// foreign inbox leads to the log.
//
// Deny rules in one common account would not be enough. The server asks for no permission when it answers to a
// request's reply subject, or delivers to a consumer's deliver subject.

// ownAccount is the account of this process: the server's global account, which also names the folder of its files.
const ownAccount = "$G"

const (
	userOwner    = "owner"    // this process
	userAttached = "attached" // any other process that can read owner.json
)

// service is a subject of the owner's account to which other accounts may send requests.
type service struct {
	subject  string
	streamed bool // an answer may have several messages
	ownUser  bool // only for processes of this user
	filtered bool // the consumer filter checks the request and passes it to the server
}

// allServices lists all subjects to which other accounts may publish.
var allServices = []service{
	{subject: "$JS.API.INFO"},
	{subject: "$JS.API.STREAM.NAMES"},
	{subject: "$JS.API.STREAM.INFO.*"},
	{subject: "$JS.API.STREAM.MSG.GET.*"},
	{subject: "$JS.API.DIRECT.GET.>", streamed: true},
	{subject: apiCreate + ">", filtered: true},
	{subject: "$JS.API.CONSUMER.DELETE.*.*"},
	{subject: "$JS.API.CONSUMER.INFO.*.*"},
	{subject: "$JS.API.CONSUMER.MSG.NEXT.*.*", streamed: true},
	{subject: "tally.api.v1.append"},
	{subject: "tally.api.v1.watermark"},
	{subject: "tally.api.v1.holes"},
	{subject: eraseSubject, ownUser: true},
	{subject: keeper.OwnerSubject + "*", streamed: true, ownUser: true},
	{subject: "$SRV.*"},
	{subject: "$SRV.*.tally"},
	{subject: "$SRV.*.tally.*"},
}

// notices lists the subjects of the owner's account to which other accounts may subscribe.
var notices = []string{"tally.api.v1.watermark.moved", "tally.api.v1.segments", erasedNotice}

// inboxes are the subjects for answers, in an account of their own for each user.
const inboxes = "_INBOX.>"

// servicesFor returns the services for a user's account. Users other than userAttached may not ask about trees, which
// are files of this machine.
func servicesFor(user string) []service {
	if user == userAttached {
		return allServices
	}
	return slices.DeleteFunc(slices.Clone(allServices), func(v service) bool { return v.ownUser })
}

// rights returns the permissions of a user's account. A user may also use the subjects below keeper.BesideSubject,
// which stay inside the account: they reach the keeper of trees on the user's own machine.
func rights(user string) *server.Permissions {
	p := &server.Permissions{Publish: &server.SubjectPermission{}, Subscribe: &server.SubjectPermission{Allow: append([]string{inboxes}, notices...)}}
	for _, s := range servicesFor(user) {
		p.Publish.Allow = append(p.Publish.Allow, s.subject)
	}
	if user != userAttached {
		p.Publish.Allow = append(p.Publish.Allow, keeper.BesideSubject+">")
		p.Subscribe.Allow = append(p.Subscribe.Allow, keeper.BesideSubject+">")
	}
	return p
}

// accounts holds the accounts and their users. The server calls Check for each connection; only the listeners and this
// process connect.
type accounts struct {
	own    *server.Account
	secret string // of this process: the password of every user inside the server

	mu     sync.RWMutex // guards the fields below
	users  map[string]*server.User
	number map[string]int // of each account, by user
}

func newAccounts(secret string) (*accounts, error) {
	a := &accounts{own: server.NewAccount(ownAccount), secret: secret, users: make(map[string]*server.User), number: make(map[string]int)}
	for _, v := range allServices {
		kind, subject := server.Singleton, v.subject
		if v.streamed {
			kind = server.Streamed
		}
		if v.filtered {
			subject = filterSubject + ">"
		}
		if err := a.own.AddServiceExportWithResponse(subject, kind, nil); err != nil {
			return nil, fmt.Errorf("export %s: %w", subject, err)
		}
	}
	for _, subject := range notices {
		if err := a.own.AddStreamExport(subject, nil); err != nil {
			return nil, fmt.Errorf("export %s: %w", subject, err)
		}
	}
	return a, nil
}

// serve takes over the server's global account, as the server copies the accounts in its options.
func (a *accounts) serve(s *server.Server) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.own = s.GlobalAccount()
	a.users[userOwner] = &server.User{Username: userOwner, Account: a.own}
}

// Check implements server.Authentication. It admits clients by their name inside the server and the secret, which no
// client can learn.
func (a *accounts) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	a.mu.RLock()
	u := a.users[o.Username]
	a.mu.RUnlock()
	if u == nil || subtle.ConstantTimeCompare([]byte(o.Password), []byte(a.secret)) != 1 {
		return false
	}
	c.RegisterUser(u)
	return true
}

// innerUser returns a user's name and password inside the server. It creates the user's account if it is missing.
func (a *accounts) innerUser(s *server.Server, of Account) (innerUser, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, made := a.number[of.Name]
	if !made {
		n = len(a.number)
	}
	// The account's name becomes part of subjects, and a user's name may have any characters.
	g := innerUser{Account: of, name: fmt.Sprintf("tally-%d", n), secret: a.secret}
	if made {
		return g, nil
	}
	account, err := s.RegisterAccount(g.name)
	if err == nil {
		err = importAll(account, a.own, n, servicesFor(of.Name))
	}
	if err != nil {
		return innerUser{}, fmt.Errorf("account of user %s: %w", of.Name, err)
	}
	a.number[of.Name] = n
	a.users[g.name] = &server.User{Username: g.name, Account: account, Permissions: rights(of.Name)}
	return g, nil
}

// importAll lets account number n use services of the owner's account.
func importAll(to, own *server.Account, n int, services []service) error {
	for _, v := range services {
		at := v.subject
		if v.filtered {
			at = fmt.Sprintf("%s%d.>", filterSubject, n)
		}
		if err := to.AddServiceImport(own, v.subject, at); err != nil {
			return fmt.Errorf("import %s: %w", v.subject, err)
		}
	}
	for _, subject := range notices {
		if err := to.AddStreamImport(own, subject, ""); err != nil {
			return fmt.Errorf("import %s: %w", subject, err)
		}
	}
	return nil
}

// userList is the list of users that a listener admits.
type userList struct {
	mu     sync.Mutex // guards the fields below
	byName map[string]innerUser
	proven map[string][sha256.Size]byte // by user: digest of a password that matched the hash

	hashing sync.Mutex // bcrypt takes 0.1 s: logins may keep only one processor busy
}

var errWrongLogin = errors.New("unknown user or wrong password")

// set replaces the list of users.
func (l *userList) set(list []innerUser) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byName, l.proven = make(map[string]innerUser, len(list)), make(map[string][sha256.Size]byte)
	for _, g := range list {
		l.byName[g.Name] = g
	}
}

// has reports whether a user is still on the list, with the same password.
func (l *userList) has(g innerUser) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byName[g.Name] == g
}

// admit returns the user whose name and password a client sent.
func (l *userList) admit(name, password string) (innerUser, error) {
	l.mu.Lock()
	g, ok := l.byName[name]
	proven, hashed := l.proven[name]
	l.mu.Unlock()
	sent := sha256.Sum256([]byte(password))
	same := func(want [sha256.Size]byte) bool { return subtle.ConstantTimeCompare(sent[:], want[:]) == 1 }
	switch {
	case !ok:
		return innerUser{}, errWrongLogin
	case !isBcrypt(g.Password) && same(sha256.Sum256([]byte(g.Password))), hashed && same(proven):
		return g, nil
	case !isBcrypt(g.Password):
		return innerUser{}, errWrongLogin
	}
	l.hashing.Lock()
	err := bcrypt.CompareHashAndPassword([]byte(g.Password), []byte(password))
	l.hashing.Unlock()
	if err != nil {
		return innerUser{}, errWrongLogin
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byName[name] != g {
		return innerUser{}, errWrongLogin // the list changed meanwhile
	}
	l.proven[name] = sent
	return g, nil
}

func isBcrypt(password string) bool { return strings.HasPrefix(password, "$2") }
