package log_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
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
	m, err := answers.NextMsg(testkit.Patience(time.Minute))
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

// A numbered request that failed can be sent again, however many requests failed behind it.
func TestNumberedRequestsBehindAFailure(t *testing.T) {
	t.Run("net W1 a request that failed leaves no trace", func(t *testing.T) {
		const requests = 70 // more than a series remembers
		full, failure := make(chan struct{}), log.ErrFull
		m := &moody{shared: shared{memlog.New(memlog.Config{})}, answer: func(log.Publication) error {
			<-full
			return failure
		}}
		nc := mustDial(t, mustServe(t, t.TempDir(), nil))
		svc, err := log.Serve(nc, logtest.OpenOn(t, m, log.Config{}))
		if err != nil {
			t.Fatal(err)
		}
		defer svc.Close()
		answers, err := nc.SubscribeSync(nc.NewInbox())
		if err != nil {
			t.Fatal(err)
		}
		send := func(number int) {
			svc.Take(request{
				data: fmt.Sprintf(`{"subject":"session/a","producer":"p","number":%d,"events":[{"specversion":"1.0","id":"%d","source":"urn:test","type":"com.example.note","datacontenttype":"application/json","data":1}]}`,
					number, number),
				reply: answers.Subject,
			})
		}
		failed := func() bool {
			m, err := answers.NextMsg(testkit.Patience(time.Minute))
			if err != nil {
				t.Fatalf("no answer within 10s: %v", err)
			}
			return strings.Contains(string(m.Data), `"error"`)
		}
		for i := range requests {
			send(i + 1)
		}
		close(full)
		for i := range requests {
			if !failed() {
				t.Fatalf("%d of %d requests failed", i, requests)
			}
		}
		failure = nil
		for i := range requests {
			if send(i + 1); failed() {
				t.Fatalf("request %d again: refused", i+1)
			}
		}
	})
}

// A service that is closed answers the appends under way when they are over.
func TestServiceAnswersAtItsEnd(t *testing.T) {
	t.Run("net U2 an owner that ends acknowledges the appends under way", func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), testkit.Patience(time.Minute))
		defer stop()
		s := mustServe(t, t.TempDir(), nil)
		d := &disk{}
		owner := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Owner: true, Sync: d.sync}})
		svc, err := log.Serve(mustDial(t, s), owner)
		if err != nil {
			t.Fatal(err)
		}
		attached := mustOpen(t, mustDial(t, s), log.Config{Host: log.Host{Via: true, Durability: log.Durable}})
		release := d.holdBack()
		defer release()
		one := attached.AppendAsync(ctx, events.Session("", "s"), log.Any, someTurn("e1"))
		several := make(chan error, 1)
		go func() {
			_, err := attached.AppendAll(ctx, unit("u", 1, events.Session("", "a"), events.Session("", "b"))...)
			several <- err
		}()
		for head := events.Offset(0); head < 6; { // with the redo record
			if head, err = owner.Head(ctx); err != nil {
				t.Fatal(err)
			}
		}
		var failed error
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			failed = svc.Close()
		}()
		select {
		case <-ended:
			t.Error("the service ended before its appends")
		case <-time.After(100 * time.Millisecond):
		}
		release()
		if _, err := one.Wait(ctx); err != nil {
			t.Errorf("an append: %v", err)
		}
		if err := <-several; err != nil {
			t.Errorf("a unit: %v", err)
		}
		if <-ended; failed != nil {
			t.Error(failed)
		}
	})
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
	t.Run("net R1 a reader waits for a record that was appended without a sync", func(t *testing.T) {
		if _, err := attached.AppendBuffered(ctx, sub, log.Any, someTurn("e2")); err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if rec, err := attached.Last(soon, sub); err == nil {
			t.Errorf("Last returned %v, which is not durable", rec.Offset)
		}
	})
	t.Run("net R1 the first record of a subject is named when it is durable", func(t *testing.T) {
		for name, l := range map[string]*log.Log{"the owner": owner, "an attached process": attached} {
			soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			if at, err := l.First(soon, sub); err == nil {
				t.Errorf("%s: First returned %v, which is not durable", name, at)
			}
		}
	})
	release()
	if _, err := pending.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-seen:
	case <-time.After(testkit.Patience(time.Minute)):
		t.Error("Follow did not yield the durable record")
	}
}
