package embedded_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tallylog/tally/internal/testkit"
)

// batchContract lists what an append to several subjects assumes about the server's atomic batches, on one server and
// on three nodes that each have the stream.
var batchContract = []struct {
	promise string
	hold    func(b *atomicStream)
}{
	{"A batch is stored as one stretch in its order, if each of its expectations holds", batchStored},
	{"One wrong expectation, on whichever message, and nothing is stored", batchConflict},
	{"A subject's expectation is on its first message of the batch", batchFirstOfSubject},
	{"A message may guard another subject instead of its own, also the commit", batchGuards},
	{"A guard stands before the batch's first message to the subject that it guards", batchGuardFirst},
	{"Of two batches that each guard what the other writes one is stored", batchGuardsCross},
	{"A guard stands in the way of others that look at its subject, for as long as its batch is under way", batchGuardsShared},
	{"What eob carries is not looked at", batchEnd},
	{"The first message may expect the stream's last sequence, no other may", batchStream},
	{"Of two batches that expect the same of crossing subjects one is stored", batchCross},
	{"Batches that expect nothing are all stored, each in one stretch", batchSide},
	{"A message to a subject of an open batch is stored, and the batch's expectation is then wrong", batchOvertaken},
	{"A known id anywhere in a batch, and nothing is stored", batchDuplicate},
	{"A batch that is repeated before its answer is stored once", batchRepeated},
	{"A batch has 1,000 messages at most", batchLength},
	{"A stream takes 50 open batches", batchOpen},
	{"A batch whose beginning the server does not have stores nothing", batchHeadless},
	{"A stored message has its batch's id, its place in it and, if it is the last one, the commit", batchMarks},
	{"A stream without allow_atomic refuses batches", batchRefused},
}

func TestBatchContract(t *testing.T) {
	testkit.NotUnderRace(t) // no code of the log runs here, only the server and its client
	t.Run("one server", func(t *testing.T) {
		p := runPlain(t, t.TempDir())
		side, err := nats.Connect("", nats.InProcessServer(p.Server))
		if err != nil {
			t.Fatal(err)
		}
		defer side.Close()
		holdBatches(t, p.nc, side, 1)
	})
	t.Run("three nodes", func(t *testing.T) {
		testkit.Long(t)
		testkit.OnlyFull(t, "the subtest before asks one server the same")
		c := mustCluster(t)
		holdBatches(t, c.mustConnect(c.nodes[0].url), c.mustConnect(c.nodes[1].url), 3)
	})
}

func holdBatches(t *testing.T, nc, side *nats.Conn, replicas int) {
	b := mustBatches(t, nc, side, "B", replicas, true)
	for i, c := range batchContract {
		t.Run(c.promise, func(t *testing.T) {
			here := *b
			here.t, here.prefix = t, fmt.Sprintf("%s.%d.", b.stream, i)
			c.hold(&here)
		})
	}
}

func TestBatchContractIsDocumented(t *testing.T) {
	var promises []string
	for _, c := range batchContract {
		promises = append(promises, c.promise)
	}
	mustBeDocumented(t, "Atomic batches", 4, promises)
}

func batchStored(b *atomicStream) {
	x, y := b.put("x"), b.put("y")
	a := b.mustStore(message{subject: "x", expect: num(x)}, message{subject: "new", expect: "0"}, message{subject: "x"}, message{subject: "y", expect: num(y)}, message{subject: "any"})
	for i, subject := range []string{"x", "new", "x", "y", "any"} {
		if seq := a.seq - 4 + uint64(i); !slices.Contains(b.stored(subject), seq) {
			b.t.Errorf("message %d is not in subject %s", seq, subject)
		}
	}
}

func batchConflict(b *atomicStream) {
	for wrong := range 3 {
		list := []message{{subject: "x", expect: num(b.put("x"))}, {subject: "y", expect: num(b.put("y"))}, {subject: "z", expect: num(b.put("z"))}}
		want, _ := strconv.ParseUint(list[wrong].expect, 10, 64)
		list[wrong].expect = num(want - 1)
		if a := b.mustRefuse(list, 10071); a.text != "wrong last sequence: "+num(want) {
			b.t.Errorf("wrong expectation in message %d: got %v, want the sequence %d", wrong+1, a, want)
		}
		list[wrong].expect = "0"
		b.mustRefuse(list, 10071)
		list[wrong].expect = num(want)
		b.mustStore(list...)
		other := manyMessages(3)
		other[wrong].header = map[string]string{"Nats-Expected-Stream": "other"}
		b.mustRefuse(other, 10060)
	}
}

func batchFirstOfSubject(b *atomicStream) {
	x := b.put("x")
	b.mustRefuse([]message{{subject: "x"}, {subject: "y"}, {subject: "x", expect: num(x)}}, 10164)
	b.mustRefuse([]message{{subject: "x", expect: num(x)}, {subject: "x", expect: num(x)}}, 10164)
	b.mustRefuse([]message{{subject: "x", expect: num(x)}, {subject: "x", expect: num(b.lastSequence() + 1)}}, 10164)
	b.mustStore(message{subject: "x", expect: num(x)}, message{subject: "y"}, message{subject: "x"})
}

func batchGuards(b *atomicStream) {
	g, x := b.put("g"), b.put("x")
	for place := range 3 {
		list := []message{{subject: "a"}, {subject: "b"}, {subject: "c"}}
		list[place].guard, list[place].expect = "g", num(g-1)
		if a := b.mustRefuse(list, 10071); a.text != "wrong last sequence: "+num(g) {
			b.t.Errorf("guard on message %d: got %v, want the sequence %d", place+1, a, g)
		}
		list[place].expect = num(g)
		b.mustStore(list...)
		list[place].guard, list[place].expect = "nothing", "0"
		b.mustStore(list...)
		list[place].expect = num(g)
		b.mustRefuse(list, 10071)
	}
	// The guard replaces the message's own expectation: the server does not check that of x.
	b.put("x")
	b.mustStore(message{subject: "x", guard: "g", expect: num(g)}, message{subject: "y"})
	b.mustRefuse([]message{{subject: "x", guard: "g", expect: num(x)}, {subject: "y"}}, 10071)
	b.mustRefuse([]message{{subject: "x", guard: "g"}, {subject: "y"}}, 10193)
	// Several guards on one subject must agree.
	b.mustStore(message{subject: "x", guard: "g", expect: num(g)}, message{subject: "y", guard: "g", expect: num(g)})
	b.mustRefuse([]message{{subject: "x", guard: "g", expect: num(g)}, {subject: "y", guard: "g", expect: "0"}}, 10071)
}

func batchGuardFirst(b *atomicStream) {
	g := b.put("g")
	b.mustRefuse([]message{{subject: "g"}, {subject: "x", guard: "g", expect: num(g)}}, 10164)
	b.mustRefuse([]message{{subject: "g", expect: num(g)}, {subject: "x", guard: "g", expect: num(g)}}, 10164)
	b.mustRefuse([]message{{subject: "x", guard: "g", expect: num(g - 1)}, {subject: "g"}}, 10071)
	a := b.mustStore(message{subject: "x", guard: "g", expect: num(g)}, message{subject: "g"})
	b.mustStore(message{subject: "x", guard: "g", expect: num(a.seq)}, message{subject: "g", expect: num(a.seq)})
}

func batchGuardsCross(b *atomicStream) {
	said := answerCodes{}
	for range testkit.Times(20) {
		x, y := b.put("x"), b.put("y")
		both := b.pair([]message{{subject: "x", guard: "y", expect: num(y)}, {subject: "l"}}, []message{{subject: "y", guard: "x", expect: num(x)}, {subject: "m"}})
		said.add(both[:]...)
		b.mustWinOnce(both)
	}
	b.t.Logf("answers: %v", said)
}

func batchGuardsShared(b *atomicStream) {
	said := answerCodes{}
	for range testkit.Times(10) {
		g := b.put("g")
		guard := func(subject string) []message {
			return []message{{subject: subject, guard: "g", expect: num(g)}, {subject: "l"}}
		}
		both := b.pair(guard("x"), guard("y"))
		said.add(both[:]...)
		for i, a := range both {
			if a.err != nil || a.code != 0 && (a.code != 10164 || b.replicas == 1 || both[1-i].code != 0) {
				b.t.Errorf("got %v and %v", both[0], both[1])
			}
		}
	}
	b.t.Logf("answers: %v", said)
}

func batchEnd(b *atomicStream) {
	x := b.put("x")
	before := b.lastSequence()
	a := b.begin(message{subject: "y"}).end(message{subject: "x", expect: num(x - 1), id: "eob", header: map[string]string{"Nats-Expected-Stream": "other"}})
	if a.code != 0 || a.count != 1 || a.seq != before+1 || len(b.stored("x")) != 1 {
		b.t.Errorf("eob with a wrong expectation: got %v, want one stored message", a)
	}
	if a := b.begin(message{subject: "y"}).end(message{subject: "y", guard: "x", expect: "0"}); a.code != 0 || a.count != 1 {
		b.t.Errorf("eob with a wrong guard: got %v, want one stored message", a)
	}
	b.mustStore(message{subject: "x", expect: num(x), id: "eob"}, message{subject: "y"}) // the server has not stored its id either
}

const expectStream = "Nats-Expected-Last-Sequence"

func batchStream(b *atomicStream) {
	x := b.put("x")
	last := b.lastSequence()
	b.mustRefuse([]message{{subject: "y", header: map[string]string{expectStream: num(last - 1)}}, {subject: "z"}}, 10071)
	b.mustRefuse([]message{{subject: "y"}, {subject: "z", header: map[string]string{expectStream: num(last)}}}, 10071)
	b.mustRefuse([]message{{subject: "y"}, {subject: "z", header: map[string]string{expectStream: num(last + 1)}}}, 10164)
	b.mustRefuse([]message{{subject: "y", guard: "x", expect: num(x - 1), header: map[string]string{expectStream: num(last)}}, {subject: "z"}}, 10071)
	b.mustStore(message{subject: "y", guard: "x", expect: num(x), header: map[string]string{expectStream: num(last)}}, message{subject: "z"})
}

func batchCross(b *atomicStream) {
	said := answerCodes{}
	for range testkit.Times(20) {
		x, y := b.put("x"), b.put("y")
		both := b.pair([]message{{subject: "x", expect: num(x)}, {subject: "y", expect: num(y)}}, []message{{subject: "y", expect: num(y)}, {subject: "x", expect: num(x)}})
		said.add(both[:]...)
		b.mustWinOnce(both)
	}
	b.t.Logf("answers: %v", said)
}

func batchSide(b *atomicStream) {
	for range testkit.Times(10) {
		for _, a := range b.pair([]message{{subject: "x"}, {subject: "y"}, {subject: "one"}}, []message{{subject: "y"}, {subject: "x"}, {subject: "two"}}) {
			if a.code != 0 || a.err != nil || a.count != 3 {
				b.t.Errorf("got %v, want 3 stored messages", a)
			}
		}
	}
	x, y := b.stored("x"), b.stored("y")
	for _, list := range []struct{ first, second, third []uint64 }{{x, y, b.stored("one")}, {y, x, b.stored("two")}} {
		for _, seq := range list.third {
			if !slices.Contains(list.second, seq-1) || !slices.Contains(list.first, seq-2) {
				b.t.Errorf("the batch that ends at %d is not contiguous", seq)
			}
		}
	}
}

func batchOvertaken(b *atomicStream) {
	for range testkit.Times(10) {
		x := b.put("x")
		open := b.begin(message{subject: "y"}, message{subject: "x", expect: num(x)})
		now := b.put("x")
		if a := open.commit(message{subject: "z"}); a.code != 10071 || a.text != "wrong last sequence: "+num(now) {
			b.t.Errorf("got %v, want %d", a, now)
		}
	}
	if y := b.stored("y"); len(y) != 0 {
		b.t.Errorf("a refused batch: got %v stored, want nothing", y)
	}
	// Here the other message is perhaps not stored when the commit arrives.
	said := answerCodes{}
	for range testkit.Times(10) {
		x := b.put("x")
		open := b.begin(message{subject: "y"}, message{subject: "x", expect: num(x)})
		if err := b.nc.PublishMsg(b.encode(message{subject: "x"}, nil)); err != nil {
			b.t.Fatal(err)
		}
		a := open.commit(message{subject: "z"})
		said.add(a)
		if a.code != 10071 && (a.code != 10164 || b.replicas == 1) {
			b.t.Errorf("got %v", a)
		}
	}
	b.t.Logf("answers: %v", said)
	// Here a message has an expectation while the server stores a batch.
	clear(said)
	for range testkit.Times(10) {
		x := b.put("x")
		reply, err := b.nc.SubscribeSync(b.nc.NewInbox())
		if err != nil {
			b.t.Fatal(err)
		}
		last := b.begin(message{subject: "y"}).last(message{subject: "x"}, "1")
		last.Reply = reply.Subject
		if err := b.nc.PublishMsg(last); err != nil {
			b.t.Fatal(err)
		}
		a := b.ask(b.encode(message{subject: "x", expect: num(x)}, nil))
		said.add(a)
		if a.code != 10071 && (a.code != 10164 || b.replicas == 1) {
			b.t.Errorf("got %v", a)
		}
		if m, err := reply.NextMsg(testkit.Patience(time.Minute)); err != nil || b.parse(m.Data).code != 0 {
			b.t.Errorf("the batch: %v", err)
		}
		reply.Unsubscribe()
	}
	b.t.Logf("answers: %v", said)
}

func batchDuplicate(b *atomicStream) {
	x := b.put("x")
	id := func(name string) string { return b.prefix + name }
	list := []message{{subject: "x", expect: num(x), id: id("1")}, {subject: "y", id: id("2")}, {subject: "z", id: id("3")}}
	b.mustRefuse([]message{{subject: "y", id: id("2")}, {subject: "z"}, {subject: "z", id: id("2")}}, 10201)
	b.mustStore(list...)
	if a := b.mustRefuse(list, 10201); a.seq != 0 || a.duplicate {
		b.t.Errorf("got the place in the answer %v, want none", a) // the expectation is wrong now, too: the server checks ids first
	}
	b.mustRefuse([]message{{subject: "x"}, {subject: "y", id: id("2")}, {subject: "z"}}, 10201)
	b.mustRefuse([]message{{subject: "x", expect: num(x)}, {subject: "y", id: id("2")}, {subject: "z"}}, 10071) // message by message
	if a := b.ask(b.encode(list[1], nil)); !a.duplicate {
		b.t.Errorf("a message of the batch sent alone: got %v, want a duplicate", a)
	}
}

func batchRepeated(b *atomicStream) {
	said := answerCodes{}
	for i := range testkit.Times(10) {
		id := func(n int) string { return fmt.Sprint(b.prefix, i, ".", n) }
		list := []message{{subject: "x", id: id(1)}, {subject: "y", id: id(2)}, {subject: "z", id: id(3)}}
		both := b.pair(list, list)
		said.add(both[:]...)
		if both[0].code != 0 {
			both[0], both[1] = both[1], both[0]
		}
		if both[0].code != 0 || both[0].err != nil || both[1].code != 10201 && (both[1].code != 10158 || b.replicas == 1) {
			b.t.Errorf("got %v and %v", both[0], both[1])
		}
	}
	b.t.Logf("answers: %v", said)
	if n := len(b.stored("y")); n != testkit.Times(10) {
		b.t.Errorf("got %d stored batches", n)
	}
}

func manyMessages(n int) []message {
	list := make([]message, n)
	for i := range list {
		list[i].subject = fmt.Sprint(i)
	}
	return list
}

func batchLength(b *atomicStream) {
	b.mustStore(manyMessages(1000)...)
	b.mustRefuse(manyMessages(1001), 10199)
	b.mustRefuse(manyMessages(1002), 10199)
	if a := b.begin(manyMessages(1000)...).end(message{subject: "x"}); a.code != 0 || a.count != 1000 {
		b.t.Errorf("1,000 and eob: got %v, want 1,000 messages", a)
	}
}

func batchOpen(b *atomicStream) {
	var open []*openBatch
	for range 50 {
		open = append(open, b.begin(message{subject: "x"}))
	}
	b.mustRefuse([]message{{subject: "y"}}, 10210)
	b.mustRefuse([]message{{subject: "y"}, {subject: "z"}}, 10176) // because the server refused its first message
	for _, c := range open {
		if a := c.commit(message{subject: "y"}); a.code != 0 || a.count != 2 {
			b.t.Errorf("got %v", a)
		}
	}
	b.mustStore(message{subject: "y"})
}

func batchHeadless(b *atomicStream) {
	c := b.begin()
	c.sent = 1
	if a := c.commit(message{subject: "x"}); a.code != 10176 {
		b.t.Errorf("without the first message: got %v, want code 10176", a)
	}
	c = b.begin(message{subject: "x"})
	c.sent++
	if a := c.commit(message{subject: "x"}); a.code != 10176 {
		b.t.Errorf("without the second message: got %v, want code 10176", a)
	}
	if x := b.stored("x"); len(x) != 0 {
		b.t.Errorf("got %v stored, want nothing", x)
	}
}

func batchMarks(b *atomicStream) {
	a := b.mustStore(manyMessages(3)...)
	end := b.begin(manyMessages(2)...).end(message{subject: "x"})
	s := untilAnswered(b.t, func(ctx context.Context) (jetstream.Stream, error) { return b.js.Stream(ctx, b.stream) })
	for seq, want := range map[uint64][2]string{a.seq - 2: {"1", ""}, a.seq - 1: {"2", ""}, a.seq: {"3", "1"}, end.seq - 1: {"1", ""}, end.seq: {"2", "1"}} {
		m, err := s.GetMsg(b.t.Context(), seq)
		if err != nil || m.Header.Get("Nats-Batch-Id") == "" || m.Header.Get("Nats-Batch-Sequence") != want[0] || m.Header.Get("Nats-Batch-Commit") != want[1] {
			b.t.Errorf("message %d: got %v, %v", seq, m, err)
		}
	}
}

func batchRefused(b *atomicStream) {
	none := mustBatches(b.t, b.nc, b.side, "none", b.replicas, false)
	none.mustRefuse([]message{{subject: "x"}, {subject: "y"}}, 10174)
	none.mustRefuse([]message{{subject: "x"}}, 10174)
	none.put("x")
}
