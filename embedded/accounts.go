package embedded

import (
	"fmt"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
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
	{subject: "$SRV.*"},
	{subject: "$SRV.*.tally"},
	{subject: "$SRV.*.tally.*"},
}

// notices are the subjects of the owner's account that others may listen to.
var notices = []string{"tally.api.v1.watermark.moved", "tally.api.v1.segments"}

// inboxes are where others may have answers sent to. They are those of their account.
const inboxes = "_INBOX.>"

// rights are those of everybody but this process, in their own account.
func rights() *server.Permissions {
	p := &server.Permissions{Publish: &server.SubjectPermission{}, Subscribe: &server.SubjectPermission{Allow: append([]string{inboxes}, notices...)}}
	for _, s := range services {
		p.Publish.Allow = append(p.Publish.Allow, s.subject)
	}
	return p
}

// admit sets the server's accounts and users: this process with every right, and each of
// the others alone. Each is let in by its own door.
func (s *Server) admit(opts *server.Options, l *Listen) error {
	inside := map[string]struct{}{jwt.ConnectionTypeInProcess: {}}
	outside := map[string]struct{}{jwt.ConnectionTypeStandard: {}}
	attached := outside
	if l != nil && l.TLS != nil {
		attached = inside // by way of the door
	}
	own := server.NewAccount(ownAccount)
	opts.Accounts = []*server.Account{own}
	opts.Users = []*server.User{{Username: userOwner, Password: s.secret, Account: own, AllowedConnectionTypes: inside}}
	for _, v := range services {
		kind, subject := server.Singleton, v.subject
		if v.streamed {
			kind = server.Streamed
		}
		if v.byDesk {
			subject = deskSubject + ">"
		}
		if err := own.AddServiceExportWithResponse(subject, kind, nil); err != nil {
			return fmt.Errorf("export %s: %w", subject, err)
		}
	}
	for _, subject := range notices {
		if err := own.AddStreamExport(subject, nil); err != nil {
			return fmt.Errorf("export %s: %w", subject, err)
		}
	}
	others := []*server.User{{Username: userAttached, Password: s.token, AllowedConnectionTypes: attached}}
	if l != nil {
		for _, u := range l.Users {
			others = append(others, &server.User{Username: u.Name, Password: u.Password, AllowedConnectionTypes: outside})
		}
	}
	for i, u := range others {
		// The name of an account is part of subjects, and a user's may be anything.
		account, err := foreignAccount(own, i)
		if err != nil {
			return fmt.Errorf("account of user %s: %w", u.Username, err)
		}
		u.Account, u.Permissions = account, rights()
		opts.Accounts, opts.Users = append(opts.Accounts, account), append(opts.Users, u)
	}
	return nil
}

// foreignAccount makes the n-th account of others, which has what the owner's gives.
func foreignAccount(own *server.Account, n int) (*server.Account, error) {
	a := server.NewAccount(fmt.Sprintf("tally-%d", n))
	for _, v := range services {
		to := v.subject
		if v.byDesk {
			to = fmt.Sprintf("%s%d.>", deskSubject, n)
		}
		if err := a.AddServiceImport(own, v.subject, to); err != nil {
			return nil, fmt.Errorf("import %s: %w", v.subject, err)
		}
	}
	for _, subject := range notices {
		if err := a.AddStreamImport(own, subject, ""); err != nil {
			return nil, fmt.Errorf("import %s: %w", subject, err)
		}
	}
	return a, nil
}
