package log_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/tallylog/tally/log"
)

// request is what a handler of the service is given.
type request struct {
	micro.Request
	data, reply string
}

func (r request) Data() []byte  { return []byte(r.data) }
func (r request) Reply() string { return r.reply }

// TestServiceTakesNothingBehindItsEnd hands the service a request that came when it had
// ended: the library does not wait for its handlers.
func TestServiceTakesNothingBehindItsEnd(t *testing.T) {
	nc := mustDial(t, mustServe(t, t.TempDir(), nil))
	l := mustOpen(t, nc, log.Config{Owner: true})
	svc, err := log.Serve(nc, l)
	if err != nil {
		t.Fatal(err)
	}
	if err := svc.Close(); err != nil {
		t.Fatal(err)
	}
	answers, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	svc.Take(request{
		data:  `{"subject":"session/a","events":[{"specversion":"1.0","id":"x","source":"urn:test","type":"com.example.note","datacontenttype":"application/json","data":1}]}`,
		reply: answers.Subject,
	})
	m, err := answers.NextMsg(5 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Error struct{ Code string } }
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.Error.Code != "unavailable" {
		t.Errorf("the answer is %s", m.Data)
	}
	if head, err := l.Head(t.Context()); err != nil || head != 0 {
		t.Errorf("the log ends at %v, %v", head, err)
	}
}
