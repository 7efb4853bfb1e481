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

// The log and JetStream are in an account that only this process is in. Each user that
// connects is in an account of their own, and so are the processes that attach. Such
// an account reaches nothing but the services below, and the server gives each request
// a reply subject that means nothing but "back to who asked". So neither the subject
// of a request, nor its reply subject, nor an inbox of somebody else's leads to the log.
//
// A list of what is forbidden in one common account is not enough: the server asks
// nobody for leave when it answers to the reply subject of a request, or delivers to a
// consumer's deliver subject.

// ownAccount is the account of this process: the server's global one, by whose name it
// keeps its files.
const ownAccount = "$G"

const (
	userOwner    = "owner"    // this process
	userAttached = "attached" // every other one that can read owner.json
)

// service is a subject of the owner's account at which others may ask.
type service struct {
	subject  string
	streamed bool // more than one message answers
	ownUser  bool // processes of this user alone may ask
	byDesk   bool // the desk looks through what is asked, and asks the server
}

// services is all that others may publish.
var services = []service{
	{subject: "$JS.API.INFO"},
	{subject: "$JS.API.STREAM.NAMES"},
	{subject: "$JS.API.STREAM.INFO.*"},
	{subject: "$JS.API.STREAM.MSG.GET.*"},
	{subject: "$JS.API.DIRECT.GET.>", streamed: true},
	{subject: apiCreate + ">", byDesk: true},
	{subject: "$JS.API.CONSUMER.DELETE.*.*"},
	{subject: "$JS.API.CONSUMER.INFO.*.*"},
	{subject: "$JS.API.CONSUMER.MSG.NEXT.*.*", streamed: true},
	{subject: "tally.api.v1.append"},
	{subject: "tally.api.v1.watermark"},
	{subject: "tally.api.v1.holes"},
	{subject: keeper.OwnerSubject + "*", streamed: true, ownUser: true},
	{subject: "$SRV.*"},
	{subject: "$SRV.*.tally"},
	{subject: "$SRV.*.tally.*"},
}

// notices are the subjects of the owner's account that others may listen to.
var notices = []string{"tally.api.v1.watermark.moved", "tally.api.v1.segments"}

// inboxes are where others may have answers sent to. They are those of their account.
const inboxes = "_INBOX.>"

// servicesFor are the services at which an account of others may ask. The trees of the store are
// files of this machine: users have no part in them.
func servicesFor(user string) []service {
	if user == userAttached {
		return services
	}
	return slices.DeleteFunc(slices.Clone(services), func(v service) bool { return v.ownUser })
}

// rights are those of an account of others. Beside the services, a user has a subject that leads
// out of no account: there the keeper of a tree on the user's machine is asked.
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

// accounts are those of others, and who is in which. The server asks them about everybody
// who connects, which only the doors and this process do.
type accounts struct {
	own    *server.Account
	secret string // of this process: every name in the server has it

	mu     sync.RWMutex // guards what follows
	users  map[string]*server.User
	number map[string]int // of the accounts that were made, by the user
}

func newAccounts(secret string) (*accounts, error) {
	a := &accounts{own: server.NewAccount(ownAccount), secret: secret, users: make(map[string]*server.User), number: make(map[string]int)}
	for _, v := range services {
		kind, subject := server.Singleton, v.subject
		if v.streamed {
			kind = server.Streamed
		}
		if v.byDesk {
			subject = deskSubject + ">"
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

// serve has the server's accounts be those that clients are let into: it makes its own of
// those in its options.
func (a *accounts) serve(s *server.Server) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.own = s.GlobalAccount()
	a.users[userOwner] = &server.User{Username: userOwner, Account: a.own}
}

// Check lets a client in by the name that the server has for it. A client has no way to
// learn the secret.
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

// guest returns a client as the server knows it, and makes its account if it has none.
func (a *accounts) guest(s *server.Server, of Account) (guest, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, made := a.number[of.Name]
	if !made {
		n = len(a.number)
	}
	// The name of an account is part of subjects, and a user's may be anything.
	g := guest{Account: of, name: fmt.Sprintf("tally-%d", n), secret: a.secret}
	if made {
		return g, nil
	}
	account, err := s.RegisterAccount(g.name)
	if err == nil {
		err = importAll(account, a.own, n, servicesFor(of.Name))
	}
	if err != nil {
		return guest{}, fmt.Errorf("account of user %s: %w", of.Name, err)
	}
	a.number[of.Name] = n
	a.users[g.name] = &server.User{Username: g.name, Account: account, Permissions: rights(of.Name)}
	return g, nil
}

// importAll has the n-th account of others reach services of the owner's.
func importAll(to, own *server.Account, n int, services []service) error {
	for _, v := range services {
		at := v.subject
		if v.byDesk {
			at = fmt.Sprintf("%s%d.>", deskSubject, n)
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

// roll says who may come in by a door.
type roll struct {
	mu     sync.Mutex // guards what follows
	guests map[string]guest
	proven map[string][sha256.Size]byte // by user: a password that fits the hash

	hashing sync.Mutex // bcrypt takes a tenth of a second: strangers get no more than one processor
}

var errNotLetIn = errors.New("no such user, or another password")

// set replaces the list.
func (r *roll) set(list []guest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.guests, r.proven = make(map[string]guest, len(list)), make(map[string][sha256.Size]byte)
	for _, g := range list {
		r.guests[g.Name] = g
	}
}

// has reports whether a guest may still be there, with the password that it had.
func (r *roll) has(g guest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.guests[g.Name] == g
}

// admit returns the guest whose name and password a client sent.
func (r *roll) admit(name, password string) (guest, error) {
	r.mu.Lock()
	g, ok := r.guests[name]
	proven, hashed := r.proven[name]
	r.mu.Unlock()
	sent := sha256.Sum256([]byte(password))
	same := func(want [sha256.Size]byte) bool { return subtle.ConstantTimeCompare(sent[:], want[:]) == 1 }
	switch {
	case !ok:
		return guest{}, errNotLetIn
	case !isBcrypt(g.Password) && same(sha256.Sum256([]byte(g.Password))), hashed && same(proven):
		return g, nil
	case !isBcrypt(g.Password):
		return guest{}, errNotLetIn
	}
	r.hashing.Lock()
	err := bcrypt.CompareHashAndPassword([]byte(g.Password), []byte(password))
	r.hashing.Unlock()
	if err != nil {
		return guest{}, errNotLetIn
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.guests[name] != g {
		return guest{}, errNotLetIn // as of now
	}
	r.proven[name] = sent
	return g, nil
}

func isBcrypt(password string) bool { return strings.HasPrefix(password, "$2") }
