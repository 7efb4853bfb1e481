package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/nats/natspull"
)

const (
	apiCreate   = "$JS.API.CONSUMER.CREATE."
	deskSubject = "tally.desk.v1.consumer." // then the account's number, and what came behind apiCreate

	mostConsumers = 2048             // of one account, at a time
	mostWait      = 30 * time.Second // for the server's answer: it may have much to count, on a slow disk
	mostAsked     = 64               // requests that the server has not answered yet
)

// desk looks through the consumers that others ask for. A consumer delivers with the
// server's own rights wherever its configuration says; so those of others deliver
// nowhere: they are asked, forget themselves, and are bounded in number.
type desk struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	sub *nats.Subscription

	life context.Context // of what is asked of the server
	end  context.CancelFunc
	busy chan struct{} // holds a place for each request under way

	mu     sync.Mutex                 // guards what follows
	made   map[string]map[string]bool // by account: stream and name of each consumer that was asked for, and whether the server made it
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
	for range cap(d.busy) {
		d.busy <- struct{}{}
	}
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
	request, err := natspull.Check(rest, m.Data)
	if err == nil {
		err = d.admit(account, key(request))
	}
	var body []byte
	if err == nil {
		body, err = json.Marshal(request)
	}
	if err != nil {
		d.refuse(m.Reply, err)
		return
	}
	select {
	case d.busy <- struct{}{}:
	case <-d.life.Done():
		return
	}
	go func() {
		defer func() { <-d.busy }()
		ctx, cancel := context.WithTimeout(d.life, mostWait)
		defer cancel()
		made, err := d.nc.RequestWithContext(ctx, apiCreate+rest, body)
		if err != nil {
			return // whoever hears nothing asks again
		}
		d.settle(account, key(request), made.Data)
		_ = d.nc.Publish(m.Reply, made.Data)
	}()
}

func key(r natspull.Request) string { return r.Stream + "." + r.Config.Name }

// admit counts a consumer among those of an account.
func (d *desk) admit(account, key string) error {
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
	if !made[key] {
		made[key] = false // until it is answered
	}
	return nil
}

// settle takes a consumer out of the count that the server did not make. Names of streams
// that do not exist would otherwise fill an account, and [desk.forget] ask for each.
func (d *desk) settle(account, key string, answer []byte) {
	var said struct {
		Error json.RawMessage `json:"error"`
	}
	made := json.Unmarshal(answer, &said) == nil && said.Error == nil
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case made:
		d.made[account][key] = true
	case !d.made[account][key]: // nor did it when it was asked otherwise
		delete(d.made[account], key)
	}
}

// forget takes the consumers out of a list that the server no longer has.
func (d *desk) forget(made map[string]bool) error {
	ctx, cancel := context.WithTimeout(d.life, answer)
	defer cancel()
	left := make(map[string][]string) // by stream
	for key := range made {
		stream, _, _ := strings.Cut(key, ".")
		if _, asked := left[stream]; asked {
			continue
		}
		names, err := consumersOf(ctx, d.js, stream)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		left[stream] = names
	}
	maps.DeleteFunc(made, func(key string, _ bool) bool {
		stream, name, _ := strings.Cut(key, ".")
		_, there := slices.BinarySearch(left[stream], name)
		return !there
	})
	return nil
}

// consumersOf lists the consumers of a stream, in the order of their names.
func consumersOf(ctx context.Context, js jetstream.JetStream, stream string) (names []string, err error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	list := s.ConsumerNames(ctx)
	for name := range list.Name() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, list.Err()
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
		consumers, err := consumersOf(ctx, js, name)
		if err != nil {
			return err
		}
		for _, consumer := range consumers {
			if err := js.DeleteConsumer(ctx, name, consumer); err != nil {
				return err
			}
		}
		s.logger.Warn("consumers that are not tally's were removed", "dir", s.dir, "stream", name, "consumers", len(consumers))
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
