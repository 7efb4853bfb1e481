package embedded_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// silence measures the longest time between two acknowledgements of one producer.
type silence struct {
	mu      sync.Mutex // guards what follows
	last    time.Time
	longest time.Duration
}

// end records an acknowledgement.
func (s *silence) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !s.last.IsZero() {
		s.longest = max(s.longest, now.Sub(s.last))
	}
	s.last = now
}

// endedAfter reports whether there was an acknowledgement since a time.
func (s *silence) endedAfter(at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.After(at)
}

// rawStream is a stream beside the log. Its clients use nats.go alone.
const rawStream = "RAW"

// raw publishes until stop is closed. After a quarter of a second without an answer it sends the message again with
// the same id.
func (s *silence) raw(t *testing.T, js jetstream.JetStream, subject string, stop <-chan struct{}) {
	for i := 0; ; i++ {
		m := &nats.Msg{Subject: subject, Data: []byte("x"), Header: nats.Header{nats.MsgIdHdr: {fmt.Sprint(subject, "-", i)}}}
		for sent := false; !sent; {
			select {
			case <-stop:
				return
			case <-t.Context().Done():
				return
			default:
			}
			ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
			_, err := js.PublishMsg(ctx, m)
			sent = err == nil
			if !sent && !errors.Is(err, context.DeadlineExceeded) {
				<-ctx.Done() // a refusal arrives at once
			}
			cancel()
		}
		s.end()
	}
}

// mustLead makes a node the leader of a stream, and returns when it leads.
func (c *cluster) mustLead(js jetstream.JetStream, stream string, node int) {
	c.t.Helper()
	want := c.nodes[node].name
	order, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": want}})
	if err != nil {
		c.t.Fatal(err)
	}
	have := ""
	for giveUp := time.Now().Add(time.Minute); have != want; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(giveUp) {
			c.t.Fatalf("%s does not lead %s: got %q", want, stream, have)
		}
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		s, err := js.Stream(ctx, stream)
		if err == nil && s.CachedInfo().Cluster != nil {
			if have = s.CachedInfo().Cluster.Leader; have != "" && have != want {
				_, _ = js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, order) // the next round shows an error
			}
		}
		cancel()
	}
}

// deaf connects to nodes. While it is deaf, it receives nothing: the server stores its messages, and the
// acknowledgements are lost.
type deaf struct {
	mu    sync.Mutex // guards what follows
	is    bool
	conns map[net.Conn]bool
}

// Dial implements nats.CustomDialer.
func (d *deaf) Dial(network, address string) (net.Conn, error) {
	c, err := net.DialTimeout(network, address, 2*time.Second)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns[c] = true
	return deafConn{c, d}, nil
}

type deafConn struct {
	net.Conn
	of *deaf
}

func (c deafConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		c.of.mu.Lock()
		is := c.of.is
		c.of.mu.Unlock()
		if !is || err != nil {
			return n, err
		}
	}
}

// turn makes the connections deaf, or makes the client reconnect and hear again.
func (d *deaf) turn(is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.is = is; is {
		return
	}
	for c := range d.conns {
		c.Close()
	}
	clear(d.conns)
}

// mustConnect connects to the nodes.
func (d *deaf) mustConnect(c *cluster) *nats.Conn {
	c.t.Helper()
	nc, err := nats.Connect(c.urls(), nats.SetCustomDialer(d), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	return nc
}

// While producers append and clients publish by nats.go alone to a stream beside the log, the node that leads both is
// killed. Some messages that it stored last are not acknowledged. No acknowledged event is lost, and no event is
// stored twice. The longest silence of each kind is logged.
func TestClusterSilence(t *testing.T) {
	testkit.Long(t)
	testkit.OnlyFull(t, "TestClusterLosesNothing has a cluster; TestAtomicIsSentAgain sends again what was not answered")
	testkit.NotUnderRace(t) // the servers are other processes, and other tests run the log under the detector
	t.Run("B-33 beside raw nats.go", func(t *testing.T) {
		home(t, nil)
		rounds := 1
		if testkit.Soak() {
			rounds = 6
		}
		c := mustCluster(t)
		c.mustOpen(embedded.Options{MinDurability: "replicated"})
		s := &silences{cluster: c, watch: c.mustWatch(), deaf: &deaf{conns: make(map[net.Conn]bool)},
			producers: make([]*clusterProducer, 4), beside: make([]*silence, 4)}
		untilAnswered(t, func(ctx context.Context) (jetstream.Stream, error) {
			return s.watch.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: rawStream, Subjects: []string{"raw.*"}, Replicas: 3})
		})
		l, err := log.Open(t.Context(), s.deaf.mustConnect(c), log.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		js, err := jetstream.New(s.deaf.mustConnect(c))
		if err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var running sync.WaitGroup
		for i := range s.producers {
			s.producers[i], s.beside[i] = &clusterProducer{l: l, sub: events.Session("", fmt.Sprint("p", i))}, &silence{}
			running.Go(func() { s.producers[i].run(t, stop) })
			running.Go(func() { s.beside[i].raw(t, js, fmt.Sprint("raw.", i), stop) })
		}
		for range rounds {
			s.killLeader()
		}
		close(stop)
		running.Wait()
		c.mustHoldOnce(s.producers)
	})
}

// silences has those of the log's producers and of the clients beside them.
type silences struct {
	*cluster
	watch     jetstream.JetStream // a connection that is never deaf
	deaf      *deaf
	producers []*clusterProducer
	beside    []*silence
}

// all lists the silences, those of the producers first.
func (s *silences) all() (list []*silence) {
	for _, p := range s.producers {
		list = append(list, &p.silence)
	}
	return append(list, s.beside...)
}

// killLeader kills the node that leads the log and the stream beside it, waits until each producer has an
// acknowledgement again, and starts the node.
func (s *silences) killLeader() {
	s.t.Helper()
	leads := s.leader(s.watch)
	for _, stream := range []string{"TALLY_1", rawStream} {
		s.mustLead(s.watch, stream, leads)
	}
	s.await(time.Now())
	for _, one := range s.all() {
		one.mu.Lock()
		one.longest = 0
		one.mu.Unlock()
	}
	s.deaf.turn(true)
	s.untilStored()
	s.kill(leads)
	s.deaf.turn(false)
	s.await(time.Now())
	s.t.Logf("the longest silence: %v, of nats.go alone %v", longest(s.all()[:len(s.producers)]), longest(s.beside))
	s.start(leads)
}

// untilStored waits until the log holds all messages that are under way and no more arrive.
func (s *silences) untilStored() {
	s.t.Helper()
	count := func() uint64 {
		return untilAnswered(s.t, func(ctx context.Context) (uint64, error) {
			stream, err := s.watch.Stream(ctx, "TALLY_1")
			if err != nil {
				return 0, err
			}
			return stream.CachedInfo().State.Msgs, nil
		})
	}
	giveUp := time.Now().Add(time.Minute)
	for last, same := count(), 0; same < 3; time.Sleep(20 * time.Millisecond) {
		now := count()
		if same++; now != last {
			last, same = now, 0
		}
		if time.Now().After(giveUp) {
			s.t.Fatalf("the log still grows: got %d messages", now)
		}
	}
}

// await waits for an acknowledgement of each producer since a time.
func (s *silences) await(since time.Time) {
	s.t.Helper()
	isQuiet := func(one *silence) bool { return !one.endedAfter(since) }
	for giveUp := time.Now().Add(2 * time.Minute); slices.ContainsFunc(s.all(), isQuiet); time.Sleep(20 * time.Millisecond) {
		if s.t.Failed() {
			s.t.FailNow() // a producer has ended
		}
		if time.Now().After(giveUp) {
			s.t.Fatalf("no acknowledgement of each producer since %v", since)
		}
	}
}

func longest(list []*silence) (most time.Duration) {
	for _, s := range list {
		s.mu.Lock()
		most = max(most, s.longest)
		s.mu.Unlock()
	}
	return most.Round(10 * time.Millisecond)
}
