package tavern_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/stores/tavern"
)

// inboxModel is an inbox as a plain slice.
type inboxModel struct {
	texts  []string        // in the order of arrival, with amendments
	at     []events.Offset // of each
	ids    []string
	cursor int // number of seen messages
}

// A random program of senders and a receiver has the results of a plain slice, for old handles with a cache and for new
// ones.
func TestInboxCursorLaw(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	var runs atomic.Int64
	rapid.Check(t, func(r *rapid.T) {
		name := fmt.Sprintf("law-%d", runs.Add(1))
		kept, m := tavern.InboxOf(st, name), new(inboxModel)
		must(t, kept.Open(t.Context(), ""))
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			in := kept
			if rapid.Bool().Draw(r, "fresh") {
				in = tavern.InboxOf(st, name)
			}
			switch rapid.SampledFrom([]string{"send", "send", "amend", "seen", "commit", "refused"}).Draw(r, "step") {
			case "send":
				m.sent(need(in.Send(t.Context(), inboxNote("a", fmt.Sprint("text ", len(m.texts))))), fmt.Sprint("text ", len(m.texts)))
			case "amend":
				if len(m.texts) == 0 {
					continue
				}
				was := need(in.Message(t.Context(), m.ids[rapid.IntRange(0, len(m.ids)-1).Draw(r, "of")]))
				text := fmt.Sprint("amended ", len(m.texts))
				now := need(in.Amend(t.Context(), was.ID, was.Revision, tavern.Text(text)))
				now.Offset = now.Revision
				m.sent(now, text)
			case "seen":
				m.see(r, func(at events.Offset) error { return in.Seen(t.Context(), at) })
			case "commit":
				m.see(r, func(at events.Offset) error {
					part, err := in.SeenPart(t.Context(), at)
					if _, was := errors.AsType[*tavern.SeenError](err); was {
						return nil
					}
					must(t, err)
					_, err = st.AppendAll(t.Context(), part, inboxTurn(st, "work-"+name, "x"))
					return err
				})
			case "refused":
				if m.cursor < len(m.at) {
					need(in.Refused(t.Context(), m.at[m.cursor], "no"))
				}
			}
			m.check(t, r, st, kept)
			m.check(t, r, st, tavern.InboxOf(st, name))
		}
	})
}

func (m *inboxModel) sent(got tavern.Message, text string) {
	m.texts, m.at = append(m.texts, text), append(m.at, got.Offset)
	if len(m.ids) == 0 || !slices.Contains(m.ids, got.ID) {
		m.ids = append(m.ids, got.ID)
	}
}

func (m *inboxModel) see(r *rapid.T, seen func(events.Offset) error) {
	if len(m.at) == 0 {
		return
	}
	n := rapid.IntRange(0, len(m.at)-1).Draw(r, "seen")
	if err := seen(m.at[n]); err != nil {
		r.Fatalf("seen %d of %d: %v", n, len(m.at), err)
	}
	m.cursor = max(m.cursor, n+1)
}

func (m *inboxModel) check(t *testing.T, r *rapid.T, st *tally.Store, in *tavern.Inbox) {
	var cursor events.Offset
	if m.cursor > 0 {
		cursor = m.at[m.cursor-1]
	}
	if at, n := need(in.Cursor(t.Context())), need(in.Unread(t.Context())); at != cursor || n != len(m.texts)-m.cursor {
		r.Fatalf("the cursor is at %v and %d are unread, want %v and %d", at, n, cursor, len(m.texts)-m.cursor)
	}
	if diff := cmp.Diff(m.texts, inboxBodies(inboxAll(t, st, in.Receiver()))); diff != "" {
		r.Fatal(diff)
	}
}

// A message that its sender repeats, with any handle and after any other messages, is stored once.
func TestInboxOnceLaw(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	var runs atomic.Int64
	rapid.Check(t, func(r *rapid.T) {
		name := fmt.Sprintf("once-%d", runs.Add(1))
		must(t, tavern.InboxOf(st, name).Open(t.Context(), ""))
		want := make(map[string]string) // sender and key -> text
		for range rapid.IntRange(2, 12).Draw(r, "steps") {
			m := inboxNote(rapid.SampledFrom([]string{"a", "b", "a\n", "\u202ea"}).Draw(r, "from"), "")
			m.Key = rapid.SampledFrom([]string{"1", "2", "\n1"}).Draw(r, "key")
			text, there := want[m.From+"|"+m.Key]
			if !there {
				text = fmt.Sprint(len(want))
				want[m.From+"|"+m.Key] = text
			}
			m.Body = tavern.Text(text)
			need(tavern.InboxOf(st, name).Send(t.Context(), m))
		}
		if got := inboxAll(t, st, name); len(got) != len(want) {
			r.Fatalf("got %d messages, want %d", len(got), len(want))
		}
	})
}

// inboxFill sends many messages of a size to an inbox, and returns the offset of the last one.
func inboxFill(t *testing.T, url, receiver string, n, size int) (last events.Offset) {
	st := need(embedded.Open(t.Context(), embedded.Options{Backend: "nats", URL: url}))
	defer func() { must(t, st.Close()) }()
	must(t, tavern.InboxOf(st, receiver).Open(t.Context(), ""))
	sub, body := events.Session(st.Namespace(), "inbox/"+receiver), tavern.Text(strings.Repeat("x", size))
	for i := 0; i < n; i += events.MaxAppend {
		var evs []events.Event
		for k := i; k < i+events.MaxAppend; k++ {
			meta := fmt.Sprintf(`{"id":"m%d","from":"a","to":%q,"type":"note","thread":"t"}`, k, receiver)
			p := &events.TurnAppended{Entries: []events.Entry{{Thread: "inbox", Turn: events.Raw(body), Meta: events.Raw(meta)}}}
			evs = append(evs, need(events.New("urn:test", sub, p)))
		}
		ack, _, err := st.AppendSeries(t.Context(), sub, log.Any, evs...)
		must(t, err)
		last = ack.Last
	}
	return last
}

// inboxHeap returns the bytes in use after a collection.
func inboxHeap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Following and counting an inbox of very many messages takes the memory of a few, and a receiver that keeps up reads
// only a few. The server is another process, so its memory is not counted.
func TestInboxOfManyMessages(t *testing.T) {
	testkit.Long(t)
	testkit.OnlyFull(t, "only thousands of messages show that the memory does not grow with them")
	testkit.NotUnderRace(t)
	n, size := 8_000, 4<<10
	if testkit.Soak() {
		n, size = 1_000_000, 1<<10
	}
	peak := peakMemory(t)
	url := storetest.StartServer(t).URL
	last := inboxFill(t, url, "many", n, size)
	st := need(embedded.Open(t.Context(), embedded.Options{Backend: "nats", URL: url}))
	defer func() { must(t, st.Close()) }()
	in, before, heap, seen := tavern.InboxOf(st, "many"), inboxHeap(), int64(0), 0
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for m, err := range in.Follow(ctx, 0) {
		must(t, err)
		if m.ID != fmt.Sprint("m", seen) {
			t.Fatalf("message %d is %q", seen, m.ID)
		}
		if seen++; seen%(n/50) == 0 {
			heap = max(heap, inboxHeap())
		}
		if seen == n {
			stop()
		}
	}
	begun := time.Now()
	if got := need(in.Unread(t.Context())); got != n {
		t.Errorf("got %d unread messages, want %d", got, n)
	}
	counted := time.Since(begun)
	heap = max(heap, inboxHeap())
	must(t, in.Seen(t.Context(), last))
	read := st.Log.RecordsRead()
	fresh := tavern.InboxOf(st, "many")
	inboxSend(t, st, "many", inboxNote("a", "one more"))
	if at, unread := need(fresh.Cursor(t.Context())), need(fresh.Unread(t.Context())); at != last || unread != 1 {
		t.Errorf("the cursor is at %v with %d unread messages", at, unread)
	}
	if read = st.Log.RecordsRead() - read; read > 100 {
		t.Errorf("a send, a read of the cursor and a count read %d records for a receiver that keeps up", read)
	}
	t.Logf("%d messages: heap before %d KiB, most %d KiB; counted in %v; %d records read by one who keeps up", n, before>>10, heap>>10, counted, read)
	if grown := heap - before; grown > 24<<20 {
		t.Errorf("the heap grew by %d KiB for %d KiB of messages", grown>>10, n*size>>10)
	}
	if grown := peak(); grown > 200<<20 {
		t.Errorf("the process took %d MiB", grown>>20)
	} else {
		t.Logf("the process took %d MiB", grown>>20)
	}
}

// A follower of an inbox gets each message once and in order, even if the server dies and comes back, and the sender
// reconnects as well.
func TestInboxFollowOverReconnect(t *testing.T) {
	testkit.Long(t)
	server := storetest.StartServer(t)
	st := need(embedded.Open(t.Context(), embedded.Options{Backend: "nats", URL: server.URL}))
	defer func() { must(t, st.Close()) }()
	in := tavern.InboxOf(st, "far")
	must(t, in.Open(t.Context(), ""))
	const n = 30
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() {
		killed := false
		for i := 0; i < n; {
			m := inboxNote("a", fmt.Sprint(i))
			m.Key = fmt.Sprint(i)
			if _, err := tavern.InboxOf(st, "far").Send(t.Context(), m); err == nil {
				i++
			} else if t.Context().Err() != nil {
				return
			}
			if i == n/2 && !killed {
				killed = true
				server.Kill()
				server.Start()
			}
		}
	})
	for i, m := range inboxTake(t, in, 0, n) {
		if want := fmt.Sprintf("%q", fmt.Sprint(i)); string(m.Body) != want {
			t.Errorf("message %d is %s", i, m.Body)
		}
	}
}
