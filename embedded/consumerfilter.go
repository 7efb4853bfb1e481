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
	apiCreate     = "$JS.API.CONSUMER.CREATE."
	filterSubject = "tally.desk.v1.consumer." // the account's number and the rest of the request's subject follow

	maxConsumers = 2048             // of one account, at the same time
	maxWait      = 30 * time.Second // for the server's answer: on a slow disk it may count for long
	maxRequests  = 64               // requests that wait for the server
)

// consumerFilter checks the consumers that other accounts create. A consumer delivers with the server's own rights to
// any subject in its configuration. So the filter admits only pull consumers that expire when unused, and bounds their
// number.
type consumerFilter struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	sub *nats.Subscription

	life context.Context // of requests to the server
	end  context.CancelFunc
	busy chan struct{} // has an element for each request under way

	mu     sync.Mutex                 // guards the fields below
	made   map[string]map[string]bool // by account: stream and name of each requested consumer, and whether the server created it
	looked map[string]time.Time       // by account: the last time that the server listed its consumers
}

func openConsumerFilter(nc *nats.Conn) (*consumerFilter, error) {
	d := &consumerFilter{nc: nc, made: make(map[string]map[string]bool), looked: make(map[string]time.Time), busy: make(chan struct{}, maxRequests)}
	d.life, d.end = context.WithCancel(context.Background())
	var err error
	if d.js, err = jetstream.New(nc); err != nil {
		return nil, err
	}
	d.sub, err = nc.Subscribe(filterSubject+">", d.take)
	return d, err
}

// close stops taking requests, cancels those that wait for the server, and returns when none is left.
func (f *consumerFilter) close() error {
	err := f.sub.Unsubscribe()
	f.end()
	for range cap(f.busy) {
		f.busy <- struct{}{}
	}
	return err
}

// take refuses a request, or passes it to the server and the answer back.
func (f *consumerFilter) take(m *nats.Msg) {
	// Requests from other accounts have a reply subject of this form. An answer to any other subject would be published
	// by this process, in its own account.
	if !strings.HasPrefix(m.Reply, "_R_.") {
		return
	}
	account, rest, _ := strings.Cut(strings.TrimPrefix(m.Subject, filterSubject), ".")
	request, err := natspull.Check(rest, m.Data)
	if err == nil {
		err = f.admit(account, consumerKey(request))
	}
	var body []byte
	if err == nil {
		body, err = json.Marshal(request)
	}
	if err != nil {
		f.refuse(m.Reply, err)
		return
	}
	select {
	case f.busy <- struct{}{}:
	case <-f.life.Done():
		return
	}
	go func() {
		defer func() { <-f.busy }()
		ctx, cancel := context.WithTimeout(f.life, maxWait)
		defer cancel()
		made, err := f.nc.RequestWithContext(ctx, apiCreate+rest, body)
		if err != nil {
			return // without an answer, the client asks again
		}
		f.settle(account, consumerKey(request), made.Data)
		_ = f.nc.Publish(m.Reply, made.Data)
	}()
}

func consumerKey(r natspull.Request) string { return r.Stream + "." + r.Config.Name }

// admit counts a consumer of an account. If the account has too many, admit returns an error.
func (f *consumerFilter) admit(account, key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	made := f.made[account]
	if made == nil {
		made = make(map[string]bool)
		f.made[account] = made
	}
	if len(made) >= maxConsumers && time.Since(f.looked[account]) > time.Second {
		f.looked[account] = time.Now()
		if err := f.forget(made); err != nil {
			return err
		}
	}
	if len(made) >= maxConsumers {
		return fmt.Errorf("this user has %d consumers already", len(made))
	}
	if !made[key] {
		made[key] = false // until the server answers
	}
	return nil
}

// settle removes a consumer from the count if the server did not create it. Otherwise requests with names of missing
// streams would fill an account, and [consumerFilter.forget] would ask the server about each.
func (f *consumerFilter) settle(account, key string, answer []byte) {
	var said struct {
		Error json.RawMessage `json:"error"`
	}
	made := json.Unmarshal(answer, &said) == nil && said.Error == nil
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case made:
		f.made[account][key] = true
	case !f.made[account][key]: // nor created by another request
		delete(f.made[account], key)
	}
}

// forget removes the consumers that the server no longer has from an account's list.
func (f *consumerFilter) forget(made map[string]bool) error {
	ctx, cancel := context.WithTimeout(f.life, answerWait)
	defer cancel()
	left := make(map[string][]string) // by stream
	for key := range made {
		stream, _, _ := strings.Cut(key, ".")
		if _, asked := left[stream]; asked {
			continue
		}
		names, err := consumersOf(ctx, f.js, stream)
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

// consumersOf lists the names of a stream's consumers, sorted.
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

// removeConsumers removes all durable consumers. tally creates none. Clients of earlier versions could, and such
// consumers would stay forever.
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

// refuse answers a request with an error in the server's format.
func (f *consumerFilter) refuse(to string, reason error) {
	body, err := json.Marshal(map[string]any{
		"type":  "io.nats.jetstream.api.v1.consumer_create_response",
		"error": jetstream.APIError{Code: 403, ErrorCode: codeConsumerCreate, Description: "refused by the owner of the store: " + reason.Error()},
	})
	if err == nil {
		_ = f.nc.Publish(to, body) // the client may be gone
	}
}

// codeConsumerCreate is the server's error code for a consumer that it cannot create.
const codeConsumerCreate = 10012
