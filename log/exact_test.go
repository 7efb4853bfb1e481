package log_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tallylog/tally/events"
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
	// What the server counts of a message beside its data: the subject, and where a
	// consumer whose name has 32 letters would acknowledge it.
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
			t.Fatalf("%d bytes are left behind message %d", left, i)
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
				t.Errorf("%d messages, want %d", len(list), n)
			}
			if _, err := made.NextMsg(10 * time.Second); err != nil {
				t.Fatalf("wait for the consumer of the read: %v", err)
			}
			if more, err := made.NextMsg(100 * time.Millisecond); err == nil {
				t.Errorf("the read took another consumer: %s", more.Data)
			}
		})
	}
}
