package projector_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

// In any log of events that refer to each other, three sizes stay proportional to the bytes of the records: the memory
// of a fold, its snapshots, and a record with all references resolved.
func TestBounds(t *testing.T) {
	t.Run("B-01 memory of a fold", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			h := &hostile{t: t}
			for range rapid.IntRange(1, 60).Draw(t, "steps") {
				h.step()
			}
			h.holds()
		})
	})
	for name, bomb := range map[string]func(*hostile){
		"keeps of four events":  fourEvents,
		"keeps that double":     doubling,
		"rewinds of a stack":    stacked,
		"pins":                  pinning,
		"threads":               manyThreads,
		"forks of forks":        descending,
		"lists of one thread":   listing,
		"turns beyond a thread": far,
	} {
		t.Run("B-01 "+name, func(t *testing.T) {
			h := &hostile{t: t}
			bomb(h)
			h.holds()
		})
	}
}

// fourEvents keeps all turns a thousand times, in three events.
func fourEvents(h *hostile) {
	h.create()
	h.add("s0", tenTurns())
	for _, n := range []int{10, 10_000, 10_000_000} {
		h.add("s0", keeping(slices.Repeat([][2]int{{0, n}}, 1000)...))
	}
}

// doubling keeps all turns twice, in forty events.
func doubling(h *hostile) {
	h.create()
	h.add("s0", tenTurns())
	for n := 10; len(h.log) < 42; n *= 2 {
		h.add("s0", keeping([2]int{0, n}, [2]int{0, n}))
		if n > enough {
			return
		}
	}
}

// stacked rewinds so that each rewind uses up the lowest entry of a large stack.
func stacked(h *hostile) {
	h.create()
	for range 2000 {
		h.add("other", tenTurns())
	}
	for i := range 2000 {
		h.add("s0", &events.CheckpointSaved{ID: fmt.Sprint(i), Kind: events.CheckpointRewind, At: events.Offset(2000 - i)})
	}
	for i := range 2000 {
		h.add("s0", &events.SessionRewound{To: events.Offset(2000 - i)})
	}
}

// pinning cuts a thread into as many spans as possible, repeatedly.
func pinning(h *hostile) {
	h.create()
	for range 300 {
		h.add("s0", tenTurns())
	}
	for k := range 20 {
		pins := make(map[int]bool)
		for i := k % 2; i < 3000; i += 2 {
			pins[i] = k%3 == 0
		}
		h.add("s0", &events.ThreadPinned{Thread: "main", Pins: pins})
	}
}

// manyThreads adds small records after a record of many threads.
func manyThreads(h *hostile) {
	h.create()
	p := &events.TurnAppended{}
	for i := range 5000 {
		p.Entries = append(p.Entries, events.Entry{Thread: fmt.Sprint(i), Turn: events.Raw("1")})
	}
	h.add("s0", p)
	for i := range 3000 {
		h.add("s0", &events.TurnAppended{Entries: []events.Entry{{Thread: fmt.Sprint(i), Turn: events.Raw("1")}}})
	}
}

// descending forks each fork again.
func descending(h *hostile) {
	h.create()
	h.add("s0", tenTurns())
	for i := range 150 {
		id := fmt.Sprintf("s%d", i+1)
		h.sessions = []string{id}
		h.add(id, &events.SessionCreated{Kind: "k", CreatedAt: "2026-01-01T00:00:00Z", Fork: &events.Fork{Session: fmt.Sprintf("s%d", i), Offset: events.Offset(len(h.log))}})
	}
}

// listing names a thread of large turns many times.
func listing(h *hostile) {
	h.create()
	for range 10 {
		h.add("s0", tenTurns())
	}
	h.list("s0", 5000)
}

// far refers to turns that no thread can have.
func far(h *hostile) {
	h.create()
	h.add("s0", tenTurns())
	h.add("s0", keeping([2]int{0, 1 << 62}, [2]int{1 << 62, 1<<63 - 1}))
	h.add("s0", &events.ThreadTruncated{Lengths: map[string]int{"main": 1<<63 - 1}, Reason: "cut"})
	h.add("s0", &events.ThreadPinned{Thread: "main", Pins: map[int]bool{1<<63 - 1: true}})
	h.add("s0", &events.RunFinished{Run: events.RunRef{Kind: "k", ID: "r"}, Outcome: "completed", Result: events.Raw(`{"m":[]}`),
		Lists: events.Lists{"/m": {{Thread: "main", To: 1<<63 - 1}, {Thread: "main", To: 1<<63 - 1}, {Thread: "main", To: 1<<63 - 1}}}})
}

func tenTurns() *events.TurnAppended {
	p := &events.TurnAppended{}
	for i := range 10 {
		p.Entries = append(p.Entries, events.Entry{Thread: "main", Turn: events.Raw(fmt.Sprintf(`{"n": %d}`, i))})
	}
	return p
}

func keeping(keeps ...[2]int) *events.ThreadReplaced {
	r := events.Replacement{}
	for _, k := range keeps {
		r.Items = append(r.Items, events.Item{Keep: &k})
	}
	return &events.ThreadReplaced{Threads: map[string]events.Replacement{"main": r}, Others: "keep", Reason: "save"}
}

// Data that are named repeatedly have an effect up to a bound of bytes, in any chunk.
func TestBoundsOfBlobs(t *testing.T) {
	t.Run("B-01 one blob many times", func(t *testing.T) {
		h := &hostile{t: t}
		h.create()
		p := tenTurns()
		for len(p.Entries) < 2000 {
			p.Entries = append(p.Entries, tenTurns().Entries...)
		}
		ref := h.blob(p)
		size := int64(len(h.log[len(h.log)-1].Data))
		projector.SetCheckAgain(t, func(_ string, again, distinct int64) error {
			if distinct != size {
				t.Fatalf("the session names %d different bytes, want %d", distinct, size)
			}
			if again > 15*size {
				return errors.New("again")
			}
			return nil
		})
		for i := range 120 {
			h.add("s0", tenTurns())
			h.name("s0", ref, i)
		}
		sub, store := events.Session("", "s0"), new(snapshot.Mem)
		loader := func() *projector.Loader { return (&projector.Loader{Source: h.log, Snapshots: store}).SetChunks(7, 3) }
		want := mustBeAtHead(t, &projector.Loader{Source: h.log}, sub)
		if n := len(want.Threads.Turns("main")); n != 120*10+16*2000 || len(want.Ledger.Rejected) != 120-16 {
			t.Fatalf("got %d turns and %d rejected records, want 33200 and 104", n, len(want.Ledger.Rejected))
		}
		for at := events.Offset(3); int(at) < len(h.log); at += 31 {
			if _, err := loader().Keep(t.Context(), sub, at, ""); err != nil {
				t.Fatal(err)
			}
		}
		if v, err := loader().Verify(t.Context(), nil); err != nil || len(v.Findings) > 0 {
			t.Fatalf("verify: got findings %v, %v, want none", v.Findings, err)
		}
		var metas []snapshot.Meta
		for m := range store.All(t.Context()) {
			metas = append(metas, m)
		}
		for _, m := range metas { // each chunk is rebuilt from the log
			if m.Fold != projector.ChunkFold {
				continue
			}
			if err := store.Delete(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if got := mustBeAtHead(t, loader(), sub); got.Threads.Hash() != want.Threads.Hash() || len(got.Ledger.Rejected) != len(want.Ledger.Rejected) {
				t.Fatalf("without the chunk at %v: got %d turns, or other ones", m.Offset, len(got.Threads.Turns("main")))
			}
			if _, err := store.Get(t.Context(), m); err != nil {
				t.Fatalf("the chunk at %v was not rebuilt: %v", m.Offset, err)
			}
		}
	})
}

func mustBeAtHead(t *testing.T, l *projector.Loader, sub events.Subject) *projector.Session {
	t.Helper()
	s, err := l.Session(t.Context(), sub, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// blob appends a payload as a blob, and returns the reference to it.
func (h *hostile) blob(p events.Payload) string {
	data, err := rawjson.Marshal(p)
	if err != nil {
		h.t.Fatal(err)
	}
	sum := snapshot.Sum(data)
	h.log = append(h.log, events.Record{Offset: events.Offset(len(h.log) + 1), Event: events.Event{ID: "part-0-of-1", Source: "urn:tally:blob",
		Type: events.TypeDocumentWritten, Subject: events.Document("", events.KindBlob, sum), ContentType: events.ContentTypeRaw, Data: data}})
	return events.BlobRef(sum)
}

// name appends an event whose data are a blob.
func (h *hostile) name(id, ref string, n int) {
	e := events.Event{ID: fmt.Sprint("named-", n), Source: "urn:test", Type: events.TypeTurnAppended, Subject: events.Session("", id)}
	h.log = append(h.log, events.Record{Offset: events.Offset(len(h.log) + 1), Event: e.WithExtension(events.ExtDataRef, ref)})
}

const (
	perByte  = 24       // bytes of memory, or of snapshots, per byte of the records
	atLeast  = 64 << 10 // minimum memory of a fold
	maxWhole = 64 << 10 // of a resolved value
	enough   = 1 << 17  // turns of a thread; more mean that an expansion attack worked
)

// hostile writes to a log without the checks of an append. Its events refer to as many earlier ones as possible.
type hostile struct {
	t        checker
	log      testkit.Records
	sessions []string
}

// checker is the test that uses a hostile.
type checker interface {
	Fatal(...any)
	Fatalf(string, ...any)
	Context() context.Context
}

func (h *hostile) n(label string, from, to int) int {
	return rapid.IntRange(from, to).Draw(h.t.(*rapid.T), label)
}

func (h *hostile) step() {
	if len(h.sessions) == 0 || len(h.sessions) < 4 && h.n("new", 0, 9) == 0 {
		h.create()
		return
	}
	id := rapid.SampledFrom(h.sessions).Draw(h.t.(*rapid.T), "session")
	switch h.n("what", 0, 9) {
	case 0, 1:
		h.turns(id)
	case 2, 3, 4:
		h.replace(id)
	case 5:
		h.pin(id)
	case 6:
		h.list(id, h.n("pieces", 1, 100))
	case 7:
		for range h.n("rewinds", 1, 30) {
			h.add(id, &events.SessionRewound{To: events.Offset(h.n("to", 1, len(h.log)+1))})
		}
	case 8:
		for range h.n("checkpoints", 1, 30) {
			h.add(id, &events.CheckpointSaved{ID: fmt.Sprint(len(h.log)), Kind: events.CheckpointRewind, At: events.Offset(h.n("at", 1, len(h.log)+1))})
		}
	case 9:
		h.add(id, &events.ThreadTruncated{Lengths: map[string]int{"main": h.n("length", 0, h.length(id))}, Reason: "cut"})
	}
}

func (h *hostile) create() {
	id := fmt.Sprintf("s%d", len(h.sessions))
	p := &events.SessionCreated{Kind: events.KindConversation, CreatedAt: "2026-01-01T00:00:00Z"}
	if len(h.sessions) > 0 {
		p.Fork = &events.Fork{Session: rapid.SampledFrom(h.sessions).Draw(h.t.(*rapid.T), "parent"), Offset: events.Offset(h.n("at", 1, len(h.log)))}
	}
	h.sessions = append(h.sessions, id)
	h.add(id, p)
}

func (h *hostile) turns(id string) {
	p := &events.TurnAppended{}
	for i := range h.n("entries", 1, 12) {
		thread := "main"
		if h.n("thread", 0, 5) == 0 {
			thread = fmt.Sprintf("t%d-%d", len(h.log), i)
		}
		p.Entries = append(p.Entries, events.Entry{Thread: thread, Turn: events.Raw(fmt.Sprintf("%q", fmt.Sprintf("%0*d", h.n("size", 1, 100), i)))})
	}
	h.add(id, p)
}

// replace keeps stretches of a thread. They may be equal, overlap, and have any order.
func (h *hostile) replace(id string) {
	n := h.length(id)
	r := events.Replacement{Items: []events.Item{}}
	whole := h.n("whole", 0, 2) > 0
	for range h.n("keeps", 1, 40) {
		from, to := 0, n
		if !whole {
			from = h.n("from", 0, n)
			to = h.n("to", from, n)
		}
		r.Items = append(r.Items, events.Item{Keep: &[2]int{from, to}})
	}
	h.add(id, &events.ThreadReplaced{Threads: map[string]events.Replacement{"main": r}, Others: "keep", Reason: "save"})
}

func (h *hostile) pin(id string) {
	n := h.length(id)
	if n == 0 {
		return
	}
	pins := make(map[int]bool)
	for range h.n("pins", 1, 20) {
		pins[h.n("pin", 0, n-1)] = h.n("on", 0, 1) == 1
	}
	h.add(id, &events.ThreadPinned{Thread: "main", Pins: pins})
}

// list names the whole thread many times in one record.
func (h *hostile) list(id string, times int) {
	pieces := slices.Repeat([]events.Piece{{Thread: "main", To: h.length(id)}}, times)
	run := events.RunRef{Kind: "k", ID: fmt.Sprint(len(h.log))}
	h.add(id, &events.RunFinished{Run: run, Outcome: "completed", Result: events.Raw(`{"m":[]}`), Lists: events.Lists{"/m": pieces}})
}

// add appends an event without checks.
func (h *hostile) add(id string, p events.Payload) {
	data, err := rawjson.Marshal(p)
	if err != nil {
		h.t.Fatal(err)
	}
	at := events.Offset(len(h.log) + 1)
	h.log = append(h.log, events.Record{Offset: at, Event: events.Event{ID: fmt.Sprintf("event-%d", at), Source: "urn:test", Type: p.EventType(),
		Subject: events.Session("", id), ContentType: events.ContentTypeJSON, Data: data}})
}

func (h *hostile) loader() *projector.Loader {
	return &projector.Loader{Source: h.log, MaxValue: maxWhole}
}

// length returns the number of turns of the main thread. If an expansion attack worked, it ends the test.
func (h *hostile) length(id string) int {
	o, err := h.loader().Peek(h.t.Context(), events.Session("", id))
	if err != nil {
		h.t.Fatal(err)
	}
	if n := o.Len("main"); n <= enough {
		return n
	}
	h.t.Fatalf("records of %[2]d bytes made %[1]d turns", o.Len("main"), h.bytes(id, make(map[string]bool)))
	return 0
}

// bytes returns the size of a session's records and of its ancestors' records.
func (h *hostile) bytes(id string, seen map[string]bool) (n int) {
	if seen[id] {
		return 0
	}
	seen[id] = true
	for _, rec := range h.log.Of(events.Session("", id)) {
		n += len(rec.Subject.NATS()) + len(rec.ID) + len(rec.Source) + len(rec.Type) + len(rec.Data)
		if c, err := events.DecodeAs[events.SessionCreated](rec.Event); err == nil && c.Fork != nil {
			n += h.bytes(c.Fork.Session, seen)
		}
	}
	return n
}

func (h *hostile) holds() {
	ctx := h.t.Context()
	for _, id := range h.sessions {
		sub, limit := events.Session("", id), perByte*h.bytes(id, make(map[string]bool))+atLeast
		for what, n := range map[string]int{
			"the outline":   retained(func() (any, error) { return h.loader().Outline(ctx, sub, 0) }),
			"the session":   retained(func() (any, error) { return h.loader().Session(ctx, sub, 0) }),
			"the snapshots": storedSize(ctx, h.log, sub),
		} {
			if n > limit {
				h.t.Fatalf("%s of %s takes %d bytes, want at most %d in proportion to its records", what, id, n, limit)
			}
		}
	}
	for _, rec := range h.log {
		if whole, err := h.loader().Whole(ctx, rec); err == nil && len(whole.Data) > maxWhole+len(rec.Data) {
			h.t.Fatalf("record %v has %d bytes, and %d with its references resolved", rec.Offset, len(rec.Data), len(whole.Data))
		}
	}
}

// retained returns the memory in use for the result of load.
func retained(load func() (any, error)) int {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	v, err := load()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(v)
	if err != nil {
		return 1 << 40
	}
	return int(after.HeapAlloc) - int(before.HeapAlloc)
}

// storedSize returns the bytes of a snapshot of a session with all its parts.
func storedSize(ctx context.Context, log testkit.Records, sub events.Subject) (n int) {
	var store snapshot.Mem
	l := (&projector.Loader{Source: log, Snapshots: &store}).SetChunks(16, 4)
	if _, err := l.Keep(ctx, sub, 0, ""); err != nil {
		return 1 << 40
	}
	for m := range store.All(ctx) {
		if s, err := store.Get(ctx, m); err == nil {
			n += len(s.Data)
		}
	}
	return n
}
