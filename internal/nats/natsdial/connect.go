// Package natsdial connects to the NATS server that a configuration names, and names the folder for the views of that
// server's log on this machine. The texts of errors begin with "embedded", the package that callers know.
package natsdial

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/log"
)

// Connect connects to a server under a client name. While the connection is down, publishing fails at once: the client
// buffers nothing for later. The caller closes the connection.
func Connect(s config.Server, name string) (*nats.Conn, error) {
	opts, err := dialOptions(s)
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(s.URL, append(opts, nats.Name(name), nats.Timeout(5*time.Second), nats.ReconnectBufSize(-1),
		nats.ReconnectWait(250*time.Millisecond), nats.MaxReconnects(-1))...)
	if err != nil {
		return nil, fmt.Errorf("embedded: open %s: %w: %v", Redacted(s.URL), log.ErrUnavailable, err)
	}
	return nc, nil
}

// Redacted removes the passwords from a comma-separated list of URLs.
func Redacted(urls string) string {
	list := strings.Split(urls, ",")
	for i, text := range list {
		if u, err := url.Parse(strings.TrimSpace(text)); err == nil {
			list[i] = u.Redacted()
		}
	}
	return strings.Join(list, ",")
}

// dialOptions returns the credentials and TLS options of a configuration.
func dialOptions(s config.Server) (opts []nats.Option, err error) {
	switch {
	case s.Creds != "":
		opts = append(opts, nats.UserCredentials(s.Creds))
	case s.NKey != "":
		key, err := nats.NkeyOptionFromSeed(s.NKey)
		if err != nil {
			return nil, &config.Error{File: s.NKey, Field: "nkey", Reason: err.Error()}
		}
		opts = append(opts, key)
	case s.JWT != "":
		opts = append(opts, nats.UserJWTAndSeed(s.JWT, s.Seed))
	case s.Token != "":
		opts = append(opts, nats.Token(s.Token))
	case s.User != "" && s.Password == "": // the nats command writes tokens so
		opts = append(opts, nats.Token(s.User))
	case s.User != "":
		opts = append(opts, nats.UserInfo(s.User, s.Password))
	}
	if s.CA != "" {
		opts = append(opts, nats.RootCAs(s.CA))
	}
	if s.Cert != "" {
		opts = append(opts, nats.ClientCert(s.Cert, s.Key))
	}
	if s.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	if s.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(s.InboxPrefix))
	}
	return opts, nil
}
