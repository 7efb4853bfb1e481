package embedded_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// childNode is the variable with the configuration file's name. If it is set, the test binary serves as a node of a
// cluster until its standard input ends.
const childNode = "TALLY_TEST_CHILD_NODE"

func serveNode(conf string) {
	opts, err := server.ProcessConfigFile(conf)
	exitOn(err)
	opts.NoSigs, opts.NoLog = true, true
	s, err := server.NewServer(opts)
	exitOn(err)
	s.Start()
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// cluster is three servers, each a process of its own. Their routes lead through this process.
type cluster struct {
	t     testing.TB
	nodes [3]*member
	wires [3][3]*wire // from, to
}

type member struct {
	name, conf, url string
	cmd             *exec.Cmd
	stdin           io.Closer
}

func mustCluster(t testing.TB) *cluster {
	t.Helper()
	return mustClusterSyncing(t, "always")
}

func mustClusterSyncing(t testing.TB, interval string) *cluster {
	t.Helper()
	c := &cluster{t: t}
	addresses := freeAddresses(t, 6)
	clients, routes := addresses[:3], addresses[3:]
	for i := range c.nodes {
		dir := t.TempDir()
		var others []string
		for j := range c.nodes {
			if i != j {
				c.wires[i][j] = mustWire(t, routes[j])
				others = append(others, `"nats://`+c.wires[i][j].listener.Addr().String()+`"`)
			}
		}
		m := &member{name: fmt.Sprint("n", i), conf: filepath.Join(dir, "nats.conf")}
		m.url = "nats://" + clients[i]
		// A node learns the addresses of the others here only: the addresses that they announce lead nowhere.
		text := fmt.Sprintf("server_name: %s\nlisten: \"%s\"\nmax_payload: 16MB\njetstream { store_dir: \"%s\", sync_interval: %s }\n"+
			"cluster { name: test, listen: \"%s\", advertise: \"127.0.0.1:1\", no_advertise: true, routes: [%s] }\n",
			m.name, clients[i], dir, interval, routes[i], strings.Join(others, ", "))
		if err := os.WriteFile(m.conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.nodes[i] = m
	}
	for i := range c.nodes {
		c.start(i)
	}
	t.Cleanup(func() {
		for i := range c.nodes {
			c.kill(i)
		}
	})
	return c
}

// freeAddresses returns unused addresses that stay free until a node restarts: their ports are below 32768, where the
// system assigns no ports to outgoing connections.
func freeAddresses(t testing.TB, n int) (list []string) {
	t.Helper()
	for tries := 0; len(list) < n; tries++ {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 15_000+rand.IntN(17_000)))
		if err != nil && tries < 1000 {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // after all are chosen, so that they differ
		list = append(list, l.Addr().String())
	}
	return list
}

func (c *cluster) start(i int) {
	m := c.nodes[i]
	m.cmd = exec.Command(os.Args[0])
	m.cmd.Env = append(os.Environ(), childNode+"="+m.conf)
	m.cmd.Stderr = os.Stderr
	var err error
	if m.stdin, err = m.cmd.StdinPipe(); err == nil {
		err = m.cmd.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) kill(i int) {
	m := c.nodes[i]
	m.cmd.Process.Kill()
	m.cmd.Wait()
	m.stdin.Close()
}

// cut disconnects a node from the others silently; mend connects it again.
func (c *cluster) cut(i int)  { c.each(i, (*wire).cut) }
func (c *cluster) mend(i int) { c.each(i, (*wire).mend) }

func (c *cluster) each(i int, f func(*wire)) {
	for j := range c.nodes {
		if i != j {
			f(c.wires[i][j])
			f(c.wires[j][i])
		}
	}
}

func (c *cluster) urls() string {
	return c.nodes[0].url + "," + c.nodes[1].url + "," + c.nodes[2].url
}

// mustOpen opens the store on the cluster, or on the node of the URL. It waits for nodes: a killed node takes a while
// to return.
func (c *cluster) mustOpen(o embedded.Options) *tally.Store {
	c.t.Helper()
	o.URL = cmp.Or(o.URL, c.urls())
	for giveUp := time.Now().Add(time.Minute); ; {
		st, err := embedded.Open(c.t.Context(), o)
		if err == nil {
			c.t.Cleanup(func() { st.Close() })
			return st
		}
		if !errors.Is(err, log.ErrUnavailable) || time.Now().After(giveUp) {
			c.t.Fatalf("open the cluster's store: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// mustLog opens the log on a connection of its own: first to a node, after that to any.
func (c *cluster) mustLog(node int) *log.Log {
	c.t.Helper()
	nc, err := nats.Connect(c.nodes[node].url+","+c.urls(), nats.DontRandomize(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	l, err := log.Open(c.t.Context(), nc, log.Config{AckWait: 2 * time.Second})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { l.Close() })
	return l
}

// mustWatch returns a connection that reports the leader, whichever nodes run.
func (c *cluster) mustWatch() jetstream.JetStream {
	c.t.Helper()
	nc, err := nats.Connect(c.urls(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		c.t.Fatal(err)
	}
	return js
}

// leader returns the node that leads the log's stream, or any node.
func (c *cluster) leader(js jetstream.JetStream) int {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
	defer cancel()
	s, err := js.Stream(ctx, "TALLY_1")
	if err == nil {
		for i, m := range c.nodes {
			if info := s.CachedInfo(); info.Cluster != nil && info.Cluster.Leader == m.name {
				return i
			}
		}
	}
	return rand.IntN(len(c.nodes))
}

// wire forwards the connections to an address. While it is cut it forwards nothing, and neither end notices.
type wire struct {
	listener net.Listener
	to       string

	mu    sync.Mutex // guards what follows
	whole chan struct{}
	conns map[net.Conn]bool
}

func mustWire(t testing.TB, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, to: to, whole: make(chan struct{}), conns: make(map[net.Conn]bool)}
	close(w.whole)
	var running sync.WaitGroup
	running.Go(func() { w.run(&running) })
	t.Cleanup(func() {
		l.Close()
		w.mend()
		running.Wait()
	})
	return w
}

func (w *wire) run(running *sync.WaitGroup) {
	for {
		from, err := w.listener.Accept()
		if err != nil {
			return
		}
		running.Go(func() { w.carry(from) })
	}
}

func (w *wire) carry(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer to.Close()
	w.mu.Lock()
	w.conns[from], w.conns[to] = true, true
	w.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { w.copy(to, from) })
	both.Go(func() { w.copy(from, to) })
	both.Wait()
	w.mu.Lock()
	delete(w.conns, from)
	delete(w.conns, to)
	w.mu.Unlock()
}

func (w *wire) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		w.mu.Lock()
		whole := w.whole
		w.mu.Unlock()
		<-whole
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.whole = make(chan struct{})
}

// mend forwards again, on new connections.
func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.Close()
	}
	select {
	case <-w.whole:
	default:
		close(w.whole)
	}
}

// ackedEvent is an acknowledged event.
type ackedEvent struct {
	id string
	at events.Offset
}

// clusterProducer appends to a session of its own until stop is closed, and repeats an append until it has an answer.
type clusterProducer struct {
	l       appender
	sub     events.Subject
	acked   []ackedEvent
	tries   atomic.Int64
	silence silence
}

func (p *clusterProducer) run(t *testing.T, stop <-chan struct{}) {
	last := events.Offset(0)
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		evs := []events.Event{turn(fmt.Sprint(p.sub.ID, "-", i), "x")}
		if i%7 == 6 {
			evs = append(evs, turn(fmt.Sprint(p.sub.ID, "+", i), "x"))
		}
		expect := log.Any
		if i%3 == 2 {
			expect = log.At(last)
		}
		ack, err := p.insist(t.Context(), expect, evs)
		if err != nil {
			t.Errorf("%s: %v", p.sub.ID, err)
			return
		}
		if int(ack.Last-ack.First) != len(evs)-1 {
			t.Errorf("%s: %d events at %v to %v", p.sub.ID, len(evs), ack.First, ack.Last)
		}
		for n, e := range evs {
			p.acked = append(p.acked, ackedEvent{e.ID, ack.First + events.Offset(n)})
		}
		last = ack.Last
		p.silence.end()
	}
}

// insist appends until there is an answer. Nobody else writes to the subject, so a refusal is an error.
func (p *clusterProducer) insist(ctx context.Context, expect log.Expect, evs []events.Event) (log.Ack, error) {
	for {
		ack, err := p.l.Append(ctx, p.sub, expect, evs...)
		if err == nil || !errors.Is(err, log.ErrUnknown) && !errors.Is(err, log.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			return ack, err
		}
		p.tries.Add(1)
		time.Sleep(50 * time.Millisecond)
	}
}

// While producers append, nodes of a cluster are killed and one is cut off. Every acknowledged event is stored once,
// in the order of its session, and all producers finish.
func TestClusterLosesNothing(t *testing.T) {
	testkit.OnlyFull(t, "TestOwnerKeepsThePromises and TestKillAppend of cmd kill one server")
	testkit.Long(t)
	testkit.NotUnderRace(t) // the servers are other processes, and other tests run the log under the detector
	home(t, nil)
	rounds := 1
	if testkit.Soak() {
		rounds = 12
	}
	c := mustCluster(t)
	st := c.mustOpen(embedded.Options{MinDurability: "replicated"})
	if have := st.Log.Durability(); have != log.Replicated {
		t.Fatalf("got durability %v", have)
	}
	js := c.mustWatch()
	stream := untilAnswered(t, func(ctx context.Context) (jetstream.Stream, error) { return js.Stream(ctx, "TALLY_1") })
	if n := stream.CachedInfo().Config.Replicas; n != 3 {
		t.Fatalf("got %d replicas", n)
	}

	stop := make(chan struct{})
	producers := make([]*clusterProducer, 6)
	var running sync.WaitGroup
	for i := range producers {
		producers[i] = &clusterProducer{l: c.mustLog(i % 3), sub: events.Session("", fmt.Sprint("p", i))}
		running.Go(func() { producers[i].run(t, stop) })
	}
	felt := func() bool {
		return slices.ContainsFunc(producers, func(p *clusterProducer) bool { return p.tries.Load() > 0 })
	}
	for i := 0; i < rounds || i < rounds+4 && !felt(); i++ { // a round without a repeated append shows nothing
		c.disturb(js)
	}
	close(stop)
	running.Wait()
	c.mustHold(producers)
	c.mustMiss(st, (c.leader(js)+1)%3)
}

// mustMiss kills a node that does not lead, and returns when the log knows that this replica does not follow any more.
func (c *cluster) mustMiss(st *tally.Store, node int) {
	c.t.Helper()
	c.kill(node)
	for giveUp := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		list, size, err := st.Log.Replicas(c.t.Context())
		isMissed := slices.ContainsFunc(list, func(r log.Replica) bool { return r.Server == c.nodes[node].name && !r.Current })
		if err == nil && len(list) == 3 && list[0].Leader && size > 0 && isMissed {
			return
		}
		if time.Now().After(giveUp) {
			c.t.Fatalf("%s is killed: got replicas %+v with %d bytes, %v", c.nodes[node].name, list, size, err)
		}
	}
}

// disturb kills a node and then cuts another node off, leaders first.
func (c *cluster) disturb(js jetstream.JetStream) {
	time.Sleep(time.Second)
	i := c.leader(js)
	c.kill(i)
	time.Sleep(2500 * time.Millisecond)
	c.start(i)
	time.Sleep(1500 * time.Millisecond)
	i = c.leader(js)
	c.cut(i)
	time.Sleep(3500 * time.Millisecond)
	c.mend(i)
	time.Sleep(1500 * time.Millisecond)
}

// mustHold does what mustHoldOnce does, and fails if no append had to be repeated: then the test showed nothing.
func (c *cluster) mustHold(producers []*clusterProducer) {
	c.t.Helper()
	total, tries := 0, int64(0)
	for _, p := range producers {
		total, tries = total+len(p.acked), tries+p.tries.Load()
	}
	if total == 0 || tries == 0 {
		c.t.Errorf("%d events were acknowledged, %d appends had to be repeated: no disturbance was felt, the test showed nothing", total, tries)
	}
	c.mustHoldOnce(producers)
	c.t.Logf("%d acknowledged events are there, %d appends were repeated", total, tries)
}

// mustHoldOnce fails unless each producer's session holds exactly its acknowledged events, once and in order, seen
// from each node.
func (c *cluster) mustHoldOnce(producers []*clusterProducer) {
	c.t.Helper()
	for _, m := range c.nodes {
		st := c.mustOpen(embedded.Options{URL: m.url})
		for _, p := range producers {
			found := untilAnswered(c.t, func(ctx context.Context) (found []ackedEvent, err error) {
				for rec, err := range st.Log.Read(ctx, events.Range{Subject: p.sub}) {
					if err != nil {
						return nil, fmt.Errorf("%s, %s: %w", m.name, p.sub.ID, err)
					}
					found = append(found, ackedEvent{rec.ID, rec.Offset})
				}
				return found, nil
			})
			if len(found) != len(p.acked) {
				c.t.Errorf("%s, %s: got %d events, want %d", m.name, p.sub.ID, len(found), len(p.acked))
				continue
			}
			for i, want := range p.acked {
				if found[i] != want {
					c.t.Fatalf("%s, %s: event %d: got %s at %v, want %s at %v", m.name, p.sub.ID, i, found[i].id, found[i].at, want.id, want.at)
				}
			}
		}
	}
}

// mustConnect connects to nodes, and repeats that until one answers.
func (c *cluster) mustConnect(urls string) *nats.Conn {
	c.t.Helper()
	for giveUp := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		nc, err := nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectBufSize(-1))
		if err == nil {
			c.t.Cleanup(nc.Close)
			return nc
		}
		if time.Now().After(giveUp) {
			c.t.Fatalf("connect to the cluster: %v", err)
		}
	}
}
