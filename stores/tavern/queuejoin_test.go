package tavern_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/stores/tavern"
)

// Items that are queued while other appends are in progress go in together: each once, with its own body. A refused one
// is refused alone.
func TestEnqueueTogether(t *testing.T) {
	const others = 20
	t.Run("all", func(t *testing.T) {
		if records := enqueueTogether(t, others); records != tavern.MaxSeparate+1 {
			t.Errorf("got %d records", records)
		}
	})
	t.Run("but one", func(t *testing.T) {
		if records := enqueueTogether(t, others, refused); records != tavern.MaxSeparate+others {
			t.Errorf("got %d records", records)
		}
	})
}

const refused = `"refused"`

// enqueueTogether queues items while the first append is held back, and returns the resulting number of records.
func enqueueTogether(t *testing.T, others int, more ...string) (records int) {
	first, begun, held := new(sync.Once), make(chan bool), make(chan bool)
	admit := func(_ context.Context, parts []log.Part) (func([]log.Ack, error), error) {
		first.Do(func() { close(begun); <-held })
		if strings.Contains(string(parts[0].Events[0].Data), refused) {
			return nil, log.ErrFull
		}
		return nil, nil
	}
	l := need(log.OpenOn(t.Context(), memlog.New(memlog.Config{}), log.Config{Host: log.Host{Admit: admit}}))
	st := need(tally.Open(t.Context(), l, tally.Config{}))
	defer func() { must(t, st.Close()) }()
	q, ctx := tavern.QueueOf(st, "q"), queueSoon(t)
	var running sync.WaitGroup
	var mu sync.Mutex
	put := make(map[string]string) // id -> body
	enqueue := func(body string) {
		running.Go(func() {
			it, err := q.Enqueue(ctx, tavern.Item{Body: []byte(body)})
			if body == refused {
				if !errors.Is(err, log.ErrFull) {
					t.Errorf("the refused item: %v", err)
				}
				return
			}
			if rec := need(l.Record(ctx, it.Offset)); err != nil || !strings.Contains(string(rec.Data), it.ID) {
				t.Errorf("item with the body %s: error %v, record %s", body, err, rec.Data)
			}
			mu.Lock()
			defer mu.Unlock()
			put[it.ID] = body
		})
	}
	for n := range tavern.MaxSeparate {
		enqueue(fmt.Sprintf(`"apart %d"`, n))
	}
	heard(t, begun, "the first append to begin")
	await(t, "as many appends under way as may be", func() bool { return tavern.Joining(q) == [2]int{tavern.MaxSeparate, 0} })
	for n := range others {
		enqueue(fmt.Sprintf(`"together %d"`, n))
	}
	for _, body := range more {
		enqueue(body)
	}
	await(t, "all other callers to wait", func() bool { return tavern.Joining(q) == [2]int{tavern.MaxSeparate, others + len(more)} })
	close(held)
	running.Wait()
	for range tavern.MaxSeparate + others {
		c := need(q.TryClaim(ctx, "w"))
		if put[c.Item.ID] != string(c.Item.Body) {
			t.Errorf("the body of item %s is %q, want %q", c.Item.ID, c.Item.Body, put[c.Item.ID])
		}
		delete(put, c.Item.ID)
	}
	queueNone(t, q)
	for tavern.Joining(q) != [2]int{} { // a queue without appends in progress has no entry
		runtime.Gosched()
	}
	for _, err := range l.Read(ctx, events.Range{Subject: q.Subject()}) {
		must(t, err)
		records++
	}
	return records
}
