package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/internal/natsfile"
	"github.com/tallylog/tally/internal/pull"
)

const (
	apiCreate   = "$JS.API.CONSUMER.CREATE."
	deskSubject = "tally.desk.v1.consumer." // then the account's number, and what came behind apiCreate

	mostConsumers = 2048             // of one account, at a time
	mostWait      = 30 * time.Second // for the server's answer: it may have much to count, on a slow disk
	mostAsked     = 64               // requests that the server has not answered yet
	mostIdle      = 5 * time.Minute  // after which a consumer that nobody asks is gone
)

// desk looks through the consumers that others ask for. A consumer delivers with the
// server's own rights wherever its configuration says; so those of others deliver
// nowhere: they are asked, forget themselves, and are bounded in number.
type desk struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	sub *nats.Subscription

	life   context.Context // of what is asked of the server
	end    context.CancelFunc
	busy   chan struct{} // holds a place for each request under way
	asking sync.WaitGroup
	gate   sync.Mutex // held while a request is taken in
	closed bool       // guarded by gate

	mu     sync.Mutex                 // guards what follows
	made   map[string]map[string]bool // by account: stream and name of each consumer that was asked for
	looked map[string]time.Time       // by account: when the server was asked which are left
}

func openDesk(nc *nats.Conn) (*desk, error) {
	d := &desk{nc: nc, made: make(map[string]map[string]bool), looked: make(map[string]time.Time), busy: make(chan struct{}, mostAsked)}
	d.life, d.end = context.WithCancel(context.Background())
	var err error
	if d.js, err = jetstream.New(nc); err != nil {
		return nil, err
	}
	d.sub, err = nc.Subscribe(deskSubject+">", d.take)
	return d, err
}

// close takes no more requests, and gives up those that the server has not answered.
func (d *desk) close() error {
	err := d.sub.Unsubscribe()
	d.end()
	d.gate.Lock()
	d.closed = true
	d.gate.Unlock()
	d.asking.Wait()
	return err
}

// take passes a request on to the server, and its answer back, or refuses it.
func (d *desk) take(m *nats.Msg) {
	// The server gives a request from another account a reply subject of this form. With
	// any other, the answer would be published in this account, by this process.
	if !strings.HasPrefix(m.Reply, "_R_.") {
		return
	}
	account, rest, _ := strings.Cut(strings.TrimPrefix(m.Subject, deskSubject), ".")
	request, err := pull.Check(rest, m.Data)
	if err == nil {
		err = d.admit(account, request)
	}
	var body []byte
	if err == nil {
		body, err = json.Marshal(request)
	}
	if err != nil {
		d.refuse(m.Reply, err)
		return
	}
	d.gate.Lock()
	defer d.gate.Unlock()
	if d.closed {
		return
	}
	d.busy <- struct{}{}
	d.asking.Go(func() {
		defer func() { <-d.busy }()
		ctx, cancel := context.WithTimeout(d.life, mostWait)
		defer cancel()
		made, err := d.nc.RequestWithContext(ctx, apiCreate+rest, body)
		if err != nil {
			return // whoever hears nothing asks again
		}
		_ = d.nc.Publish(m.Reply, made.Data)
	})
}

// admit counts a consumer among those of an account.
func (d *desk) admit(account string, r pull.Request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	made := d.made[account]
	if made == nil {
		made = make(map[string]bool)
		d.made[account] = made
	}
	if len(made) >= mostConsumers && time.Since(d.looked[account]) > time.Second {
		d.looked[account] = time.Now()
		if err := d.forget(made); err != nil {
			return err
		}
	}
	if len(made) >= mostConsumers {
		return fmt.Errorf("this user has %d consumers already", len(made))
	}
	made[r.Stream+"."+r.Config.Name] = true
	return nil
}

// forget takes the consumers out of a list that the server no longer has.
func (d *desk) forget(made map[string]bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), answer)
	defer cancel()
	left := make(map[string]bool)
	asked := make(map[string]bool)
	for key := range made {
		name, _, _ := strings.Cut(key, ".")
		if asked[name] {
			continue
		}
		asked[name] = true
		stream, err := d.js.Stream(ctx, name)
		if err != nil {
			continue // there is none, or there will be no consumer either
		}
		list := stream.ConsumerNames(ctx)
		for consumer := range list.Name() {
			left[name+"."+consumer] = true
		}
		if err := list.Err(); err != nil {
			return err
		}
	}
	for key := range made {
		if !left[key] {
			delete(made, key)
		}
	}
	return nil
}

// removeConsumers removes the durable consumers that a store has. None is tally's: whoever
// made them could once do so, and they would stay for ever.
func (s *Server) removeConsumers(ctx context.Context, streams []string) error {
	for _, name := range streams {
		entries, err := os.ReadDir(filepath.Join(natsfile.Streams(s.dir), name, "obs"))
		if len(entries) == 0 {
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		js, err := jetstream.New(s.conns[1])
		if err != nil {
			return err
		}
		stream, err := js.Stream(ctx, name)
		if err != nil {
			return err
		}
		list, removed := stream.ConsumerNames(ctx), 0
		for consumer := range list.Name() {
			if err := stream.DeleteConsumer(ctx, consumer); err != nil {
				return err
			}
			removed++
		}
		if err := list.Err(); err != nil {
			return err
		}
		s.logger.Warn("consumers that are not tally's were removed", "dir", s.dir, "stream", name, "consumers", removed)
	}
	return nil
}

// refuse answers as the server would.
func (d *desk) refuse(to string, reason error) {
	body, err := json.Marshal(map[string]any{
		"type":  "io.nats.jetstream.api.v1.consumer_create_response",
		"error": jetstream.APIError{Code: 403, ErrorCode: codeConsumerCreate, Description: "refused by the owner of the store: " + reason.Error()},
	})
	if err == nil {
		_ = d.nc.Publish(to, body) // whoever asked may be gone
	}
}

// codeConsumerCreate is the server's code for a consumer that cannot be made as it was
// asked for.
const codeConsumerCreate = 10012
