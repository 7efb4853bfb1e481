package log_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
)

// request is a request to the service.
type request struct {
	micro.Request
	data, reply string
}

func (r request) Data() []byte  { return []byte(r.data) }
func (r request) Reply() string { return r.reply }

// A closed service refuses a request: the library may still pass one to its handlers, because it does not wait for them.
func TestServiceTakesNothingBehindItsEnd(t *testing.T) {
	nc := mustDial(t, mustServe(t, t.TempDir(), nil))
	l := mustOpen(t, nc, log.Config{Host: log.Host{Owner: true}})
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
		t.Errorf("got answer %s, want code unavailable", m.Data)
	}
	if head, err := l.Head(t.Context()); err != nil || head != 0 {
		t.Errorf("head is %v, %v, want 0", head, err)
	}
}

// F-5: a forged watermark makes an attached process ask the owner. Until the owner confirms it, no reader sees a record
// that a power cut could take.
func TestForgedWatermarkIsNotBelieved(t *testing.T) {
	s := mustServe(t, t.TempDir(), nil)
	d := &disk{}
	owner := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Owner: true, Sync: d.sync}})
	svc, err := log.Serve(mustDial(t, s), owner)
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	attached := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Via: true, Durability: log.Durable}})
	release := d.holdBack()
	defer release()
	sub := events.Session("", "s")
	pending := owner.AppendAsync(t.Context(), sub, log.Any, someTurn("e1"))
	for head := events.Offset(0); head < 1; {
		if head, err = owner.Head(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seen := make(chan events.Offset, 1)
	go func() {
		for rec, err := range attached.Follow(ctx, events.Range{}) {
			if err == nil {
				seen <- rec.Offset
				return
			}
		}
	}()
	forger := mustDial(t, s)
	for range 20 {
		if err := forger.Publish("tally.api.v1.watermark.moved", []byte(`{"durable":4000000000}`)); err != nil {
			t.Fatal(err)
		}
		select {
		case at := <-seen:
			t.Fatalf("Follow yielded %v, which is not durable", at)
		case <-time.After(5 * time.Millisecond):
		}
	}
	if n := read(t, attached, events.Range{}); n != 0 {
		t.Error("a read returned a record that is not durable")
	}
	release()
	if _, err := pending.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-seen:
	case <-time.After(10 * time.Second):
		t.Error("Follow did not yield the durable record")
	}
}
