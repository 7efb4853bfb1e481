package embedded

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/disk/durable"
	"github.com/tallylog/tally/internal/quota"
	"github.com/tallylog/tally/log"
)

// answer bounds the wait for what a server may not want to say.
const answer = 2 * time.Second

// ownerServer is how the names of the servers begin that a store's owner runs.
const ownerServer = "tally-owner-"

// dial opens a store on a server that somebody else runs: on its own streams, or
// through the process that owns a store and listens there.
func dial(ctx context.Context, o Options, c config.Config) (*tally.Store, error) {
	writes, err := connect(c.Server, "tally")
	if err != nil {
		return nil, err
	}
	reads, err := connect(c.Server, "tally reads")
	if err != nil {
		writes.Close()
		return nil, err
	}
	hangUp := func() error { writes.Close(); reads.Close(); return nil }
	l, err := openRemote(ctx, writes, reads, o, c)
	if err != nil {
		return nil, errors.Join(err, hangUp())
	}
	st := o.store(c)
	if st.Host.ViewsDir, err = viewsOfLog(ctx, reads, c.Server.URL); err != nil {
		return nil, errors.Join(err, l.Close(), hangUp())
	}
	st.Host.OnClose = hangUp
	uses(&st, l, noLimits, nil) // those of an owner, if there is one, are not known here
	return tally.Open(ctx, l, st)
}

func openRemote(ctx context.Context, writes, reads *nats.Conn, o Options, c config.Config) (*log.Log, error) {
	lc := log.Config{Logger: o.Logger, Observer: o.Observer, MinDurability: c.MinDurability, Replicas: c.Server.Replicas, Host: log.Host{Reads: reads, Shared: true}}
	var again *quota.Again
	owner, err := ownerAt(ctx, writes, cmp.Or(o.Wait, 10*time.Second))
	switch {
	case err != nil:
		return nil, fmt.Errorf("embedded: open %s: %w", writes.ConnectedUrlRedacted(), err)
	case owner != nil:
		lc.Host.Via, lc.Host.Durability, lc.Host.Holes = true, owner.Durability, owner.Holes
	default:
		again = quota.NewAgain(0)
		lc.Host.Admit = again.Admit
		lc.Host.SyncsAlways = func(ctx context.Context, server string) error {
			return syncsAlways(ctx, writes, c.Server.System, server)
		}
	}
	l, err := log.Open(ctx, writes, lc)
	if err == nil && again != nil {
		again.Watch(l)
	}
	return l, err
}

// ownerAt asks who owns the store on a server, nil if nobody does. The server of an
// owner that starts is there a moment before its service.
func ownerAt(ctx context.Context, nc *nats.Conn, patience time.Duration) (*log.OwnerInfo, error) {
	for giveUp := time.Now().Add(patience); ; {
		owner, err := log.OwnerAt(ctx, nc, answer)
		if owner != nil || err != nil || !strings.HasPrefix(nc.ConnectedServerName(), ownerServer) {
			return owner, err
		}
		if time.Now().After(giveUp) {
			return nil, fmt.Errorf("%w: the process that owns the store does not serve it", log.ErrUnavailable)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// connect dials a server. What cannot be sent now is refused, not kept for later.
func connect(s config.Server, name string) (*nats.Conn, error) {
	opts, err := dialOptions(s)
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(s.URL, append(opts, nats.Name(name), nats.Timeout(5*time.Second), nats.ReconnectBufSize(-1),
		nats.ReconnectWait(250*time.Millisecond), nats.MaxReconnects(-1))...)
	if err != nil {
		return nil, fmt.Errorf("embedded: open %s: %w: %v", redacted(s.URL), log.ErrUnavailable, err)
	}
	return nc, nil
}

// redacted returns the URLs of servers without passwords.
func redacted(urls string) string {
	list := strings.Split(urls, ",")
	for i, text := range list {
		if u, err := url.Parse(strings.TrimSpace(text)); err == nil {
			list[i] = u.Redacted()
		}
	}
	return strings.Join(list, ",")
}

// dialOptions returns the options of a connection that a configuration means.
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
	case s.User != "" && s.Password == "": // so says the nats command
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

// syncsAlways returns nil if a server says of itself that it syncs before it
// acknowledges. Only its system account is told: through credentials of that, or
// where the operator lets this account ask, too.
func syncsAlways(ctx context.Context, nc *nats.Conn, system *config.Server, name string) error {
	if system != nil {
		at := *system
		if at.URL == "" {
			at.URL = nc.ConnectedUrl()
		}
		sys, err := connect(at, "tally looks at the configuration")
		if err != nil {
			return fmt.Errorf("its system account cannot be asked whether it syncs always: %v", err)
		}
		defer sys.Close()
		nc = sys
	}
	request, err := json.Marshal(map[string]any{"server_name": name, "exact_match": true})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, "$SYS.REQ.SERVER.PING.VARZ", request)
	if err != nil {
		return errors.New("it does not tell this user whether it syncs always (name a context of its system account as system_context)")
	}
	var said struct {
		Data struct {
			JetStream struct {
				Config *struct {
					SyncAlways bool `json:"sync_always"`
				} `json:"config"`
			} `json:"jetstream"`
		} `json:"data"`
	}
	switch err := json.Unmarshal(m.Data, &said); {
	case err != nil:
		return fmt.Errorf("what it says of its configuration cannot be read: %v", err)
	case said.Data.JetStream.Config == nil || !said.Data.JetStream.Config.SyncAlways:
		return errors.New("it acknowledges before it syncs (sync_interval: always is not set)")
	}
	return nil
}

// ViewsOf returns the directory for the views of somebody else's server, on this machine: they
// are a cache of one log. Which log is behind a URL is known since it was last opened.
func ViewsOf(server string) (string, error) {
	dir, at, err := viewsAt(server)
	if err != nil {
		return "", err
	}
	name, err := os.ReadFile(at)
	if err != nil || !isHex(string(name)) {
		return strings.TrimSuffix(at, pointer), nil // it was not opened yet
	}
	return filepath.Join(dir, string(name)), nil
}

const pointer = ".log" // the end of the name of a file that names a folder beside it

// viewsAt returns the folder of all views, and the file that says which are those of a URL.
func viewsAt(server string) (dir, at string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", fmt.Errorf("embedded: open %s: %w", redacted(server), err)
	}
	dir = filepath.Join(cache, "tally", "views")
	return dir, filepath.Join(dir, nameOf(server)+pointer), nil
}

func nameOf(what string) string {
	sum := sha256.Sum256([]byte(what))
	return hex.EncodeToString(sum[:8])
}

func isHex(name string) bool {
	_, err := hex.DecodeString(name)
	return err == nil && name != ""
}

// viewsOfLog returns the directory for the views of the log that a server has: its first
// stream names it, with when that was made. So it is the same by another order of hosts, or
// with another password.
func viewsOfLog(ctx context.Context, nc *nats.Conn, server string) (string, error) {
	dir, at, err := viewsAt(server)
	if err != nil {
		return "", err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return "", err
	}
	s, err := js.Stream(ctx, log.FirstStream)
	if err != nil {
		return "", fmt.Errorf("embedded: open %s: %w: %v", redacted(server), log.ErrUnavailable, err)
	}
	name := nameOf(log.FirstStream + " " + s.CachedInfo().Created.UTC().Format(time.RFC3339Nano))
	if have, err := os.ReadFile(at); err == nil && string(have) == name {
		return filepath.Join(dir, name), nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("embedded: open %s: %w", redacted(server), err)
	}
	err = durable.Replace(at, []byte(name), 0o600, durable.NoSync)
	return filepath.Join(dir, name), err
}
