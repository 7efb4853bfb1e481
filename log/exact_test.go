package log_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// A request ends without a status if the messages have exactly the bytes that it allows. The reader continues at once,
// with the same consumer.
func TestRequestThatIsExactlyFull(t *testing.T) {
	s := mustServe(t, t.TempDir(), nil)
	nc := mustDial(t, s)
	mustOpen(t, nc, log.Config{}) // makes the stream
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	// The server counts a message's data, its subject, and the subject of its acknowledgement. The consumer's name in the
	// latter has 32 letters.
	const n, last, most = 300, 200, 4 << 20
	subject := events.Session("", "s").NATS()
	beside := func(i int) int {
		return len(subject) + len(fmt.Sprintf("$JS.ACK.TALLY_1.%032d.1.%d.%d.%d.%d", 0, i, i, time.Now().UnixNano(), n-i))
	}
	left := most
	for i := 1; i <= n; i++ {
		size := most/last - 200
		if i == last {
			size = left - beside(i)
		}
		left -= size + beside(i)
		if (left == 0) != (i == last) {
			t.Fatalf("%d bytes of the request are left after message %d", left, i)
		}
		if _, err := js.PublishMsg(&nats.Msg{Subject: subject, Data: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, scans := range map[string]func() (log.Login, error){
		"client's connection": nil,
		"own connection":      scansOf(s, func(c net.Conn) net.Conn { return c }),
	} {
		t.Run(name, func(t *testing.T) {
			made, err := nc.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.CREATED.TALLY_1.*")
			if err != nil {
				t.Fatal(err)
			}
			defer made.Unsubscribe()
			if err := nc.Flush(); err != nil { // the server tells of consumers from here on
				t.Fatal(err)
			}
			if list := mustReadAll(t, mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Scans: scans}})); len(list) != n {
				t.Errorf("read %d messages, want %d", len(list), n)
			}
			if _, err := made.NextMsg(testkit.Patience(time.Minute)); err != nil {
				t.Fatalf("wait for the consumer of the read: %v", err)
			}
			// The server tells of consumers in the order in which it made them.
			if _, err := js.AddConsumer("TALLY_1", &nats.ConsumerConfig{Name: "after", AckPolicy: nats.AckNonePolicy, InactiveThreshold: time.Minute, MemoryStorage: true}); err != nil {
				t.Fatal(err)
			}
			defer js.DeleteConsumer("TALLY_1", "after")
			switch next, err := made.NextMsg(testkit.Patience(time.Minute)); {
			case err != nil:
				t.Fatalf("wait for the consumer that the test made: %v", err)
			case !strings.HasSuffix(next.Subject, ".after"):
				t.Errorf("the read made a second consumer: %s", next.Data)
			}
		})
	}
}
