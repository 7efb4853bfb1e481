package log_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// disk is a Sync that a test can delay or let fail.
type disk struct {
	mu     sync.Mutex
	synced int   // number of finished syncs
	err    error // of the next ones
	hold   chan struct{}
}

func (d *disk) sync(string) error {
	d.mu.Lock()
	hold := d.hold
	d.mu.Unlock()
	if hold != nil {
		<-hold
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.synced++
	return d.err
}

// holdBack makes syncs wait until the test calls the returned function.
func (d *disk) holdBack() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	hold := make(chan struct{})
	d.hold = hold
	return sync.OnceFunc(func() {
		d.mu.Lock()
		d.hold = nil
		d.mu.Unlock()
		close(hold)
	})
}

func (d *disk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *disk) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.synced
}

func committing(t *testing.T, d *disk) *log.Log {
	t.Helper()
	l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{Host: log.Host{Sync: d.sync}, AckWait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func someTurn(id string) events.Event {
	return events.Event{ID: id, Source: "urn:t", Type: events.TypeTurnAppended, Data: []byte(`{"entries":[{"thread":"main","turn":1}]}`)}
}

func read(t *testing.T, l *log.Log, r events.Range) int {
	t.Helper()
	n := 0
	for _, err := range l.Read(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// An append is acknowledged after the sync that covers it. Before that, only reads with Range.Buffered return the
// record.
func TestNoAckBeforeItsSync(t *testing.T) {
	d := &disk{}
	l := committing(t, d)
	if d.count() != 1 {
		t.Fatalf("Open made %d syncs, want 1", d.count())
	}
	release := d.holdBack()
	defer release()
	sub := events.Session("", "s")
	first := l.AppendAsync(t.Context(), sub, log.Any, someTurn("e1"))
	deadline := time.Now().Add(testkit.Patience(time.Minute))
	for {
		head, err := l.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if head == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the event is not stored")
		}
		time.Sleep(time.Millisecond)
	}
	select {
	case <-first.Done():
		t.Fatal("the append was acknowledged before the sync")
	case <-time.After(50 * time.Millisecond):
	}
	if n := read(t, l, events.Range{}); n != 0 {
		t.Error("a read returned a record before its sync")
	}
	if n := read(t, l, events.Range{Buffered: true}); n != 1 {
		t.Error("a read with Buffered did not return the record")
	}
	// The same event again, found in the log, waits like the first.
	again := l.AppendAsync(t.Context(), sub, log.Any, someTurn("e1"))
	select {
	case <-again.Done():
		t.Fatal("a duplicate was acknowledged before the sync")
	case <-time.After(50 * time.Millisecond):
	}
	release()
	ack, err := first.Wait(t.Context())
	if err != nil || ack.Durability != log.Durable {
		t.Fatalf("got %+v, %v, want a durable ack", ack, err)
	}
	if ack, err := again.Wait(t.Context()); err != nil || !ack.Duplicate {
		t.Fatalf("repeated append: got %+v, %v, want a duplicate", ack, err)
	}
	if n := read(t, l, events.Range{}); n != 1 {
		t.Error("a read did not return the durable record")
	}
}

// One sync covers all waiting appends: a slow disk makes far fewer syncs than appends.
func TestOneSyncForMany(t *testing.T) {
	d := &disk{}
	l := committing(t, d)
	before := d.count()
	release := d.holdBack()
	var all sync.WaitGroup
	const n = 200
	for i := range n {
		all.Go(func() {
			if _, err := l.Append(t.Context(), events.Session("", fmt.Sprint(i)), log.Any, someTurn("e")); err != nil {
				t.Error(err)
			}
		})
	}
	for head := events.Offset(0); head < n; {
		var err error
		if head, err = l.Head(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	release()
	all.Wait()
	if syncs := d.count() - before; syncs > 5 {
		t.Errorf("%d syncs for %d waiting appends, want at most 5", syncs, n)
	}
}

// Follow yields records when they are durable, and not before.
func TestFollowEndsAtTheWatermark(t *testing.T) {
	d := &disk{}
	l := committing(t, d)
	release := d.holdBack()
	defer release()
	pending := l.AppendAsync(t.Context(), events.Session("", "s"), log.Any, someTurn("e1"))
	seen := make(chan events.Offset)
	go func() {
		defer close(seen)
		for rec, err := range l.Follow(t.Context(), events.Range{Limit: 1}) {
			if err == nil {
				seen <- rec.Offset
			}
		}
	}()
	select {
	case at := <-seen:
		t.Fatalf("Follow yielded %v before it was durable", at)
	case <-time.After(50 * time.Millisecond):
	}
	release()
	if at := <-seen; at != 1 {
		t.Fatalf("Follow yielded %v, want 1", at)
	}
	if _, err := pending.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-seen
}

// After a failed sync, the outcome of its appends is unknown and the log acknowledges nothing more, even if a later sync
// would succeed.
func TestFailedSyncIsFinal(t *testing.T) {
	d := &disk{}
	l := committing(t, d)
	sub := events.Session("", "s")
	if _, err := l.Append(t.Context(), sub, log.Any, someTurn("e1")); err != nil {
		t.Fatal(err)
	}
	d.fail(errors.New("EIO"))
	if _, err := l.Append(t.Context(), sub, log.Any, someTurn("e2")); !errors.Is(err, log.ErrUnknown) {
		t.Fatalf("got %v, want ErrUnknown", err)
	}
	d.fail(nil)
	if _, err := l.Append(t.Context(), sub, log.Any, someTurn("e3")); !errors.Is(err, log.ErrUnavailable) {
		t.Fatalf("got %v, want ErrUnavailable", err)
	}
	if head, err := l.Head(t.Context()); err != nil || head != 2 {
		t.Errorf("head is %v, %v, want 2: an append was stored after the failure", head, err)
	}
	if n := read(t, l, events.Range{}); n != 1 {
		t.Errorf("a read returned %d records, want the durable one", n)
	}
}

// After a failed sync, no reader gets a record that is not known to be on disk.
func TestFailedSyncShowsNothing(t *testing.T) {
	sub := events.Session("", "s")
	for name, get := range map[string]func(l *log.Log) error{
		"net R1 by its offset":              func(l *log.Log) error { _, err := l.Record(t.Context(), 1); return err },
		"net R1 the last of its subject":    func(l *log.Log) error { _, err := l.Last(t.Context(), sub); return err },
		"net R1 and its append is repeated": func(l *log.Log) error { _, err := l.Append(t.Context(), sub, log.Any, someTurn("e1")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			d := &disk{}
			l := committing(t, d)
			d.fail(errors.New("EIO"))
			if _, err := l.AppendBuffered(t.Context(), sub, log.Any, someTurn("e1")); err != nil {
				t.Fatal(err)
			}
			if err := get(l); !errors.Is(err, log.ErrUnknown) && !errors.Is(err, log.ErrUnavailable) {
				t.Errorf("got %v, want that nobody knows whether the record is on disk", err)
			}
		})
	}
}

// A unit that is found in the log is acknowledged when the last of its events is on disk, wherever they are.
func TestRepeatedUnitWaitsForItsSync(t *testing.T) {
	for durable := range 3 {
		synctest.Test(t, func(t *testing.T) {
			d := &disk{}
			l := committing(t, d)
			var parts []log.Part
			for i := range 3 {
				parts = append(parts, log.Part{Subject: events.Session("", fmt.Sprint(i)), Events: []events.Event{someTurn(fmt.Sprint("e", i))}})
			}
			if _, err := l.Append(t.Context(), parts[durable].Subject, log.Any, parts[durable].Events...); err != nil {
				t.Fatal(err)
			}
			release := d.holdBack()
			for _, p := range parts {
				if _, err := l.AppendBuffered(t.Context(), p.Subject, log.Any, p.Events...); err != nil {
					t.Fatal(err)
				}
			}
			over := make(chan error, 1)
			go func() {
				_, err := l.AppendAll(t.Context(), parts...)
				over <- err
			}()
			synctest.Wait()
			select {
			case err := <-over:
				t.Errorf("with part %d on disk, the unit is acknowledged before the sync of the others: %v", durable, err)
				release()
			default:
				release()
				if err := <-over; err != nil {
					t.Error(err)
				}
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// If the acknowledgement of an append to several subjects does not come, the error names them.
func TestUnknownBatchIsNamed(t *testing.T) {
	d := &disk{}
	l := committing(t, d)
	d.fail(errors.New("EIO"))
	part := func(id string) log.Part {
		return log.Part{Subject: events.Session("", id), Events: []events.Event{someTurn(id)}}
	}
	_, err := l.AppendAll(t.Context(), part("a"), part("b"))
	if !errors.Is(err, log.ErrUnknown) || !strings.HasPrefix(err.Error(), "append to session a and 1 more: ") {
		t.Errorf("got %v, want ErrUnknown with the subjects", err)
	}
}

// A buffered append does not wait for a sync. Reads with Range.Buffered return it at once, others when the log has synced
// by itself, after about a second.
func TestBufferedIsDurableSoon(t *testing.T) {
	d := &disk{}
	l := committing(t, d)
	before := d.count()
	release := d.holdBack()
	ack, err := l.AppendBuffered(t.Context(), events.Session("", "s"), log.Any, someTurn("e1"))
	if err != nil || ack.Durability != log.Buffered || d.count() != before {
		t.Fatalf("got %+v, %v after %d syncs, want a buffered ack without a sync", ack, err, d.count()-before)
	}
	if n := read(t, l, events.Range{Buffered: true}); n != 1 {
		t.Error("a read with Buffered did not return the record")
	}
	release()
	for range l.Follow(t.Context(), events.Range{Limit: 1}) {
	}
	if safe, err := l.Durable(t.Context()); err != nil || safe != 1 {
		t.Errorf("watermark is %v, %v, want 1", safe, err)
	}
}

// The suite of promises holds on a log that syncs by itself.
func TestCommitterKeepsThePromises(t *testing.T) {
	logtest.Run(t, func(t *testing.T) *log.Log {
		return logtest.OpenOn(t, memlog.New(memlog.Config{}), log.Config{Host: log.Host{Sync: func(string) error { return nil }}})
	})
}

// The watermark is marked after the sync and before any notice: after a crash the mark includes every acknowledged
// record.
func TestMarkIsBeforeTheAcknowledgement(t *testing.T) {
	d := &disk{}
	var mu sync.Mutex // guards the variables below
	var marked []events.Offset
	syncs, waiting := 0, make(map[events.Offset]*log.Pending)
	mark := func(at events.Offset) {
		mu.Lock()
		defer mu.Unlock()
		before := events.Offset(0)
		if len(marked) > 0 {
			before = marked[len(marked)-1]
		}
		marked = append(marked, at)
		if n := d.count(); n <= syncs {
			t.Errorf("%v was marked without a sync", at)
		} else {
			syncs = n
		}
		for offset, p := range waiting {
			if offset <= before {
				continue
			}
			select {
			case <-p.Done():
				t.Errorf("%v was acknowledged before %v was marked", offset, at)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	l, err := log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{Host: log.Host{Sync: d.sync, Mark: mark}, AckWait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range 10 {
		// The first append makes the sync itself, and the others wait for the next one.
		release := d.holdBack()
		var all []*log.Pending
		for n := range 4 {
			at := events.Offset(4*i + n + 1)
			mu.Lock()
			all = append(all, l.AppendAsync(t.Context(), events.Session("", fmt.Sprint(n)), log.Any, someTurn(fmt.Sprint(at))))
			waiting[at] = all[n]
			mu.Unlock()
			mustHead(t, l, at)
		}
		release()
		for _, p := range all {
			ack, err := p.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			delete(waiting, ack.Last)
			if at := marked[len(marked)-1]; at < ack.Last {
				t.Errorf("%v was acknowledged, but the mark is %v", ack.Last, at)
			}
			mu.Unlock()
		}
	}
	if durable, err := l.Durable(t.Context()); err != nil || marked[0] != 0 || marked[len(marked)-1] != durable || durable != 40 {
		t.Errorf("marks are %v, watermark is %v, %v, want 40 for both", marked, durable, err)
	}
}

// mustHead waits until the log has a record at an offset.
func mustHead(t *testing.T, l *log.Log, want events.Offset) {
	t.Helper()
	deadline := time.Now().Add(testkit.Patience(time.Minute))
	for {
		head, err := l.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if head >= want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v is not stored", want)
		}
		time.Sleep(time.Millisecond)
	}
}

// A reader makes a stored record durable, even if the append that stored it does not know that it did, and no other
// append comes.
func TestWhatIsReadIsSynced(t *testing.T) {
	for name, see := range map[string]func(context.Context, *log.Log) (events.Record, error){
		"last": func(ctx context.Context, l *log.Log) (events.Record, error) {
			return l.Last(ctx, events.Session("", "s"))
		},
		"record": func(ctx context.Context, l *log.Log) (events.Record, error) { return l.Record(ctx, 1) },
		"follow": func(ctx context.Context, l *log.Log) (events.Record, error) {
			for rec, err := range l.Follow(ctx, events.Range{}) {
				return rec, err
			}
			return events.Record{}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var d disk
			l := logtest.OpenOn(t, &logtest.Faulty{Backend: memlog.New(memlog.Config{}), Next: func() logtest.Fault { return logtest.AckLost }}, log.Config{Host: log.Host{Sync: d.sync}})
			before := d.count()
			if _, err := l.Append(t.Context(), events.Session("", "s"), log.Any, someTurn("a")); !errors.Is(err, log.ErrUnknown) {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience(time.Minute))
			defer cancel()
			if rec, err := see(ctx, l); err != nil || rec.ID != "a" {
				t.Fatalf("got %v, %v, want record a", rec, err)
			}
			if d.count() == before {
				t.Error("a reader got the record before a sync")
			}
		})
	}
}
