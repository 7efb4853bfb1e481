package log_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
)

// dying is a Backend that stores a number of further publications and then answers nothing.
type dying struct {
	shared
	mu     sync.Mutex
	left   int           // publications that are still stored; negative: all
	silent bool          // the last of them gets no answer
	asked  chan struct{} // receives when a publication gets no answer
}

func (d *dying) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.left < 0:
		return d.shared.Publish(ctx, p)
	case d.left > 1 || d.left == 1 && !d.silent:
		d.left--
		return d.shared.Publish(ctx, p)
	case d.left == 1:
		d.left--
		d.shared.Publish(ctx, p) // stored, without an answer
	}
	select {
	case d.asked <- struct{}{}:
	default:
	}
	return log.Receipt{}, log.ErrUnknown
}

// If an owner dies at any point of an append to several subjects, the next owner finds none of its events, or completes
// the append before any read. Later owners change nothing more.
func TestUnitAcrossADeath(t *testing.T) {
	subs := []events.Subject{events.Session("", "a"), events.Session("other", "b"), events.Document("", "doc", "c")}
	for cut := range 6 {
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprintf("after %d publications, silent %v", cut, silent), func(t *testing.T) {
				mem := memlog.New(memlog.Config{})
				var mark events.Offset
				owner := func(b log.Backend) *log.Log {
					return logtest.OpenOn(t, b, log.Config{Host: log.Host{Owner: true, Settled: mark, Mark: func(at events.Offset) { mark = at }, Sync: func(string) error { return nil }}})
				}
				d := &dying{shared: shared{mem}, left: -1, asked: make(chan struct{}, 1)}
				first := owner(d)
				before := mustAppend(t, first, subs[0], note("before", "before"))
				d.mu.Lock()
				d.left, d.silent = cut, silent
				d.mu.Unlock()
				parts := []log.Part{
					{Subject: subs[0], Expect: log.At(before.Last), Events: []events.Event{note("1", "x"), note("2", "x")}},
					{Subject: subs[1], Expect: log.Any, Events: []events.Event{note("1", "x")}},
					{Subject: subs[2], Expect: log.At(0), Events: []events.Event{{ID: "1", Source: "test://log", Type: events.TypeDocumentWritten, Data: []byte("\xff\x00")}}},
				}
				answer := make(chan error, 1)
				over := make(chan struct{})
				go func() {
					defer close(over)
					_, err := first.AppendAll(t.Context(), parts...)
					answer <- err
				}()
				select {
				case <-over:
				case <-d.asked:
				}
				if err := first.Close(); err != nil {
					t.Fatal(err)
				}
				err := <-answer
				if err != nil && !errors.Is(err, log.ErrUnknown) {
					t.Fatalf("got %v, want ErrUnknown", err)
				}
				happened := cut > 0 // the redo record is stored
				second := owner(shared{mem})
				for i, want := range []int{3, 1, 1} {
					if !happened {
						want = []int{1, 0, 0}[i]
					}
					n := 0
					for _, err := range second.Read(t.Context(), events.Range{Subject: subs[i]}) {
						if err != nil {
							t.Fatal(err)
						}
						n++
					}
					if n != want {
						t.Errorf("%v has %d records, want %d", subs[i], n, want)
					}
				}
				acks, err := second.AppendAll(t.Context(), parts...)
				if err != nil || acks[0].Duplicate != happened {
					t.Errorf("repeated append: got %+v, %v, want Duplicate %v", acks, err, happened)
				}
				head, err := second.Head(t.Context())
				if err != nil || head != 6 {
					t.Errorf("head is %v, %v, want 6", head, err)
				}
				if err := second.Close(); err != nil {
					t.Fatal(err)
				}
				third := owner(shared{mem})
				if again, err := third.Head(t.Context()); err != nil || again != head {
					t.Errorf("head is %v, %v with the next owner, want %v", again, err, head)
				}
			})
		}
	}
}

// Only the log writes redo records, because an owner appends the events in them.
func TestNobodyWritesRedoRecords(t *testing.T) {
	mem := memlog.New(memlog.Config{})
	l := logtest.OpenOn(t, shared{mem}, log.Config{Host: log.Host{Owner: true, Sync: func(string) error { return nil }}})
	e := events.Event{ID: "1", Source: "urn:tally:log", Type: events.TypeUnitAppended, Data: []byte(`{"events":[]}`)}
	_, err := l.Append(t.Context(), events.Document("", events.KindUnit, "log"), log.Any, e)
	if _, invalid := errors.AsType[*events.InvalidError](err); !invalid {
		t.Errorf("append to the subject of redo records: got %v, want an *InvalidError", err)
	}
	if head, err := l.Head(t.Context()); err != nil || head != 0 {
		t.Errorf("head is %v, %v, want 0", head, err)
	}
}

// Two writers whose batches have two subjects in common, in opposite order, do not deadlock, and both subjects have the
// batches in the same order.
func TestManyBatchesCross(t *testing.T) {
	l := logtest.OpenOn(t, memlog.New(memlog.Config{}), log.Config{Host: log.Host{Owner: true, Sync: func(string) error { return nil }}})
	subs := [2]events.Subject{events.Session("", "a"), events.Session("", "b")}
	const each = 5_000
	var all sync.WaitGroup
	for w := range subs {
		all.Go(func() {
			for i := range each {
				e := note(fmt.Sprint(w, "-", i), "x")
				one := log.Part{Subject: subs[w], Events: []events.Event{e}}
				other := log.Part{Subject: subs[1-w], Events: []events.Event{e}}
				if _, err := l.AppendAll(t.Context(), one, other); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	var order [2][]string
	for i, sub := range subs {
		for rec, err := range l.Read(t.Context(), events.Range{Subject: sub}) {
			if err != nil {
				t.Fatal(err)
			}
			order[i] = append(order[i], rec.ID)
		}
	}
	if len(order[0]) != 2*each || !slices.Equal(order[0], order[1]) {
		t.Errorf("the subjects have %d and %d records, want %d in the same order", len(order[0]), len(order[1]), 2*each)
	}
}
