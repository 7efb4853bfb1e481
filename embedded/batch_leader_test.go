package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/internal/testkit"
)

// sentBatch is a batch that was sent whole. Its answer may be missing.
type sentBatch struct {
	*atomicStream
	name string
	said batchAnswer
	lost bool // no answer arrived
}

func (s *sentBatch) messages() (list []message) {
	for i := range 3 {
		list = append(list, message{subject: s.name, id: fmt.Sprint(s.prefix, s.name, ".", i)})
	}
	return list
}

// fate reports whether the batch is stored: all of it once and contiguous, or nothing.
func (s *sentBatch) fate() (there bool) {
	s.t.Helper()
	list := s.stored(s.name)
	if n := len(list); n != 0 && n != 3 || n == 3 && list[2]-list[0] != 2 {
		s.t.Errorf("%s.%s: got sequences %v, want all or nothing", s.stream, s.name, list)
	}
	return len(list) > 0
}

// mustSettle sends the same messages again as another batch, and fails unless they are stored then.
func (s *sentBatch) mustSettle(there bool) {
	s.t.Helper()
	a := s.insist(s.all, s.messages()...)
	if there && a.code != 10201 || !there && a.code != 0 && a.code != 10201 || !s.fate() {
		s.t.Errorf("%s.%s, stored before: %v: got %v", s.stream, s.name, there, a)
	}
}

// insist sends a batch until an answer tells whether it is stored.
func (b *atomicStream) insist(send func(...message) batchAnswer, list ...message) batchAnswer {
	b.t.Helper()
	for giveUp := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		a := send(list...)
		if a.err == nil && a.code != 10158 && a.code != 10176 {
			return a
		}
		if time.Now().After(giveUp) {
			b.t.Fatalf("no answer: %v", a)
		}
	}
}

// flood sends batches one after another as long as the server accepts them, without waiting for answers, and calls
// after for each. It returns a function that collects the answers.
func (b *atomicStream) flood(round string, n int, after func()) func() []*sentBatch {
	inbox := b.nc.NewInbox()
	replies, err := b.nc.SubscribeSync(inbox + ".*")
	if err != nil {
		b.t.Fatal(err)
	}
	var list []*sentBatch
	for i := range n {
		if err != nil {
			after()
			continue
		}
		s := &sentBatch{atomicStream: b, name: fmt.Sprint(round, "-", i), lost: true}
		list = append(list, s)
		c, m := &openBatch{b, s.name, 0}, s.messages()
		msgs := []*nats.Msg{c.encode(m[0], c.next()), c.encode(m[1], c.next()), c.last(m[2], "1")}
		msgs[2].Reply = fmt.Sprint(inbox, ".", i)
		for _, msg := range msgs {
			err = errors.Join(err, b.nc.PublishMsg(msg))
		}
		err = errors.Join(err, b.nc.FlushTimeout(time.Second))
		after()
	}
	return func() []*sentBatch {
		defer replies.Unsubscribe()
		for {
			m, err := replies.NextMsg(500 * time.Millisecond)
			if err != nil {
				return list
			}
			var i int
			fmt.Sscanf(m.Subject[len(inbox)+1:], "%d", &i)
			if m.Header.Get("Status") == "" { // otherwise there was no responder
				list[i].said, list[i].lost = b.parse(m.Data), false
			}
		}
	}
}

// leaderOf returns the node that leads a stream, or -1 if there is no leader.
func (c *cluster) leaderOf(b *atomicStream) int {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
	defer cancel()
	if s, err := b.js.Stream(ctx, b.stream); err == nil && s.CachedInfo().Cluster != nil {
		for i, m := range c.nodes {
			if s.CachedInfo().Cluster.Leader == m.name {
				return i
			}
		}
	}
	return -1
}

// await waits until a stream has a leader, and all nodes are up to date.
func (c *cluster) await(b *atomicStream) {
	c.t.Helper()
	for giveUp := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		s, err := b.js.Stream(c.t.Context(), b.stream)
		ready := err == nil && s.CachedInfo().Cluster != nil && s.CachedInfo().Cluster.Leader != "" && len(s.CachedInfo().Cluster.Replicas) == 2
		for i := 0; ready && i < 2; i++ {
			ready = s.CachedInfo().Cluster.Replicas[i].Current
		}
		if ready {
			return
		}
		if time.Now().After(giveUp) {
			c.t.Fatalf("%s is not ready: %v", b.stream, err)
		}
	}
}

// fates counts the outcomes of batches.
type fates struct{ answered, lostThere, lostGone, refused int }

func (f *fates) lost() int { return f.lostThere + f.lostGone }

func (f *fates) settle(list []*sentBatch) {
	for _, s := range list {
		there := s.fate()
		switch {
		case s.lost && there:
			f.lostThere++
		case s.lost:
			f.lostGone++
		case s.said.code == 0:
			f.answered++
			if !there {
				s.t.Errorf("%s.%s was acknowledged at %d and is not stored", s.stream, s.name, s.said.seq)
			}
		default:
			f.refused++
			if there {
				s.t.Errorf("%s.%s was refused (%v) and is stored", s.stream, s.name, s.said)
			}
		}
		s.mustSettle(there)
	}
}

// While batches are under way, the leader steps down, is killed, or all nodes are killed. Each batch is stored whole
// or not at all. Acknowledged batches are stored, and sending the same messages again decides the others. The next
// leader refuses a batch of which it received only the commit.
func TestClusterBatchesSettle(t *testing.T) {
	testkit.OnlyFull(t, "TestClusterLosesNothing kills a leader")
	testkit.NotUnderRace(t) // no code of the log runs here, only the server and its client
	c := mustCluster(t)
	nc := c.mustConnect(c.urls())
	var list []*atomicStream
	for i := range 9 {
		list = append(list, mustBatches(t, nc, c.mustConnect(c.urls()), fmt.Sprint("B", i), 3, true))
	}
	rounds, handovers := 1, 1
	if testkit.Soak() {
		rounds, handovers = 10, 60
	}
	var hands, one, all fates
	for round := range handovers {
		c.handOver(list[0], fmt.Sprint("hand", round), &hands)
	}
	showed := func() bool {
		return hands.lost()+one.lost()+all.lost() > 0 && hands.answered+one.answered+all.answered > 0
	}
	for round := 0; round < rounds || round < rounds+8 && !showed(); round++ {
		c.loseOne(list, fmt.Sprint("one", round), &one)
		if rounds > 1 {
			c.loseAll(list, fmt.Sprint("all", round), &all)
		}
	}
	t.Logf("the leader stepped down: %+v; was killed: %+v; all nodes were killed: %+v", hands, one, all)
	if !showed() {
		t.Error("all batches or no batch lost its answer: the test showed nothing")
	}
}

// loseOne kills the node that leads most of the streams.
func (c *cluster) loseOne(list []*atomicStream, round string, f *fates) {
	led := make(map[int][]*atomicStream)
	victim := 0
	for _, b := range list {
		c.await(b)
		i := c.leaderOf(b)
		led[i] = append(led[i], b)
		if len(led[i]) > len(led[victim]) {
			victim = i
		}
	}
	nc := c.mustConnect(c.nodes[(victim+1)%3].url)
	defer nc.Close()
	var open []*openBatch
	for _, b := range led[victim] {
		open = append(open, b.through(nc).begin(message{subject: "open-" + round}, message{subject: "open-" + round}))
	}
	nc.Flush()
	time.Sleep(20 * time.Millisecond) // the leader received the messages
	sent := c.floodAnd(led[victim], nc, round, func() { c.kill(victim) })
	for _, o := range open {
		c.commitTo(o, round)
	}
	f.settle(sent)
	c.start(victim)
}

func (b *atomicStream) through(nc *nats.Conn) *atomicStream {
	other := *b
	other.nc = nc
	return &other
}

// commitTo sends the commit of an open batch to the next leader, which has no other message of it.
func (c *cluster) commitTo(o *openBatch, round string) {
	c.t.Helper()
	last := o.last(message{subject: "open-" + round}, "1")
	for giveUp := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		a := o.ask(last)
		if a.err == nil {
			if n := len(o.stored("open-" + round)); a.code != 10176 || n != 0 {
				c.t.Errorf("a commit to the next leader: got %v, %d stored", a, n)
			}
			return
		}
		if time.Now().After(giveUp) {
			c.t.Fatal(a)
		}
	}
}

// floodAnd calls happens while batches are sent to each stream.
func (c *cluster) floodAnd(list []*atomicStream, nc *nats.Conn, round string, happens func()) (sent []*sentBatch) {
	const each = 20
	begun := make(chan struct{}, each*len(list))
	var mu sync.Mutex
	var running sync.WaitGroup
	for _, b := range list {
		running.Go(func() {
			answers := b.through(nc).flood(round, each, func() { begun <- struct{}{} })()
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, answers...)
		})
	}
	for range 1 + testkit.Random(c.t).IntN(each*len(list)*3/4) {
		<-begun
	}
	happens()
	running.Wait()
	return sent
}

func (c *cluster) loseAll(list []*atomicStream, round string, f *fates) {
	for _, b := range list {
		c.await(b)
	}
	nc := list[0].nc
	sent := c.floodAnd(list, nc, round, func() {
		for _, m := range c.nodes {
			m.cmd.Process.Kill()
		}
	})
	for i := range c.nodes {
		c.kill(i)
		c.start(i)
	}
	for _, b := range list {
		c.await(b)
	}
	f.settle(sent)
}

// handOver makes the leader of a stream step down.
func (c *cluster) handOver(b *atomicStream, round string, f *fates) {
	c.await(b)
	before := c.leaderOf(b)
	open := b.begin(message{subject: "open-" + round}, message{subject: "open-" + round})
	b.nc.Flush()
	b.lastSequence() // follows the messages: the leader received them
	sent := c.floodAnd([]*atomicStream{b}, b.nc, round, func() {
		untilAnswered(c.t, func(ctx context.Context) (batchAnswer, error) {
			m, err := b.side.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+b.stream, nil)
			if err != nil {
				return batchAnswer{}, err
			}
			a := b.parse(m.Data)
			if a.err == nil && a.code != 0 {
				a.err = errors.New(a.text)
			}
			return a, a.err
		})
	})
	c.await(b)
	if c.leaderOf(b) != before { // otherwise the leader still has the open batch
		c.commitTo(open, round)
	}
	f.settle(sent)
}
