package embedded

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/internal/config"
	"github.com/tallylog/tally/internal/nats/natsdial"
	"github.com/tallylog/tally/internal/quota"
	"github.com/tallylog/tally/log"
)

// answerWait bounds the wait for an answer that a server may not give.
const answerWait = 2 * time.Second

// ownerServer begins the names of the servers that owners of stores run.
const ownerServer = "tally-owner-"

// dial opens a store on a server that others run: on that server's streams, or through a listening owner.
func dial(ctx context.Context, o Options, c config.Config) (*tally.Store, error) {
	writes, err := natsdial.Connect(c.Server, "tally")
	if err != nil {
		return nil, err
	}
	reads, err := natsdial.Connect(c.Server, "tally reads")
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
	if st.Host.ViewsDir, err = natsdial.ViewsOfLog(ctx, reads, c.Server.URL); err != nil {
		return nil, errors.Join(err, l.Close(), hangUp())
	}
	st.Host.OnClose = hangUp
	o.bring(&st, true)
	uses(&st, l, noLimits, nil) // the limits of an owner are not known here
	s, err := tally.Open(ctx, l, st)
	if err != nil {
		return nil, err
	}
	return register(ctx, s, o)
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

// ownerAt returns the owner of the store on a server, or nil if the server has its own streams. A starting owner's
// server is reachable before its service, so ownerAt waits for the service.
func ownerAt(ctx context.Context, nc *nats.Conn, patience time.Duration) (*log.OwnerInfo, error) {
	for giveUp := time.Now().Add(patience); ; {
		owner, err := log.OwnerAt(ctx, nc, answerWait)
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

// syncsAlways returns nil if a server reports that it syncs before it acknowledges. Servers report this to their system
// account only: syncsAlways uses the account's credentials, or the permission that the operator gave to this account.
func syncsAlways(ctx context.Context, nc *nats.Conn, system *config.Server, name string) error {
	if system != nil {
		at := *system
		if at.URL == "" {
			at.URL = nc.ConnectedUrl()
		}
		sys, err := natsdial.Connect(at, "tally looks at the configuration")
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
	ctx, cancel := context.WithTimeout(ctx, answerWait)
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
