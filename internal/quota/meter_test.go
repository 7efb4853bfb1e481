package quota

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
)

// admission is a log.Config.Admit.
type admission func(context.Context, []log.Part) (func([]log.Ack, error), error)

func admits(m *Meter) admission { return m.Admit }

// metered is a log on a backend, with a meter.
func metered(t testing.TB, b log.Backend, dir string, admits func(*Meter) admission) (*log.Log, *Meter) {
	t.Helper()
	m := New(dir, 0)
	l := logtest.OpenOn(t, b, log.Config{Host: log.Host{Admit: admits(m)}, AckWait: time.Second})
	m.Watch(l)
	return l, m
}

func doc(id string) events.Subject { return events.Document("", "doc", id) }

func written(owner string, size int) events.Event {
	e := events.Event{Source: "urn:test", Type: events.TypeDocumentWritten, ContentType: "text/plain", Data: []byte(strings.Repeat("x", size))}
	return e.WithExtension(events.ExtDoc, events.DocMeta{Owner: owner}.String())
}

func deleted(t testing.TB, sub events.Subject, reason string) events.Event {
	t.Helper()
	e, err := events.New("urn:test", sub, &events.DocumentDeleted{Reason: reason})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func put(t testing.TB, l *log.Log, sub events.Subject, evs ...events.Event) {
	t.Helper()
	if err := tryPut(t, l, sub, evs...); err != nil {
		t.Fatal(err)
	}
}

func tryPut(t testing.TB, l *log.Log, sub events.Subject, evs ...events.Event) error {
	t.Helper()
	at := events.Offset(0)
	if last, err := l.Last(t.Context(), sub); err == nil {
		at = last.Offset
	}
	_, err := l.Append(t.Context(), sub, log.At(at), evs...)
	return err
}

// used returns the bytes of a scope.
func used(t testing.TB, m *Meter, scope string) int64 {
	t.Helper()
	list, err := m.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range list {
		if u.Scope == scope {
			return u.Bytes
		}
	}
	return 0
}

func limit(t testing.TB, m *Meter, scope string, bytes int64) {
	t.Helper()
	if err := m.SetLimit(t.Context(), scope, bytes); err != nil {
		t.Fatal(err)
	}
}

// A refusal names the scope, its limit, its bytes now, and its bytes after the append. Appends that add no bytes
// succeed.
func TestRefusal(t *testing.T) {
	l, m := metered(t, memlog.New(memlog.Config{}), "", admits)
	put(t, l, doc("a"), written("ann", 60)) // before there are limits
	limit(t, m, "owner:ann", 100)
	put(t, l, doc("b"), written("ann", 40))
	err := tryPut(t, l, doc("c"), written("ann", 1))
	refused, ok := errors.AsType[*log.QuotaError](err)
	if !ok || *refused != (log.QuotaError{Scope: "owner:ann", Meter: "live", Limit: 100, Have: 100, Want: 101}) {
		t.Fatalf("got the error %v", err)
	}
	if _, err := l.Last(t.Context(), doc("c")); !errors.Is(err, log.ErrNotFound) {
		t.Errorf("the head of the refused document: %v", err)
	}
	put(t, l, doc("c"), written("bob", 1000))                // of another owner
	put(t, l, doc("a"), written("ann", 60))                  // as large as before
	put(t, l, doc("b"), written("bob", 40))                  // its owner changes
	put(t, l, doc("b2"), written("ann", 30))                 // into the room that this freed
	put(t, l, doc("a"), written("ann", 10))                  // smaller
	put(t, l, doc("d"), written("ann", 60))                  // as before
	put(t, l, doc("d"), deleted(t, doc("d"), "done"))        // deleted
	put(t, l, doc("d"), deleted(t, doc("d"), "purged"))      // frees nothing more
	put(t, l, doc("e"), written("ann", 10), written("", 61)) // only the last one counts
	if have := used(t, m, "owner:ann"); have != 40 {
		t.Errorf("ann has %d live bytes, want 10 of a and 30 of b2", have)
	}
	if err := tryPut(t, l, doc("f"), written("ann", 61)); err == nil {
		t.Error("61 bytes were admitted with 60 bytes left")
	}
	put(t, l, doc("f"), written("ann", 60))
	limit(t, m, "owner:ann", 50) // below the current use, which stays
	if err := tryPut(t, l, doc("g"), written("ann", 1)); err == nil {
		t.Error("bytes were added above the limit")
	}
	put(t, l, doc("f"), written("ann", 59))
	limit(t, m, "owner:ann", 0)
	put(t, l, doc("g"), written("ann", 1000))
}

// A limit applies to the store, to an owner, to documents without an owner, or to a kind of documents.
func TestScopes(t *testing.T) {
	for scope, fits := range map[string]bool{"store": true, "owner:ann": true, "owner:": true, "owner:a b": true, "kind:doc": true, "": false, "Store": false,
		"kind:": false, "kind:session": false, "kind:blob": false, "kind:unit": false, "kind:a b": false, "owner:\xff": false} {
		if err := CheckScope(scope); (err == nil) != fits {
			t.Errorf("%q: got the error %v", scope, err)
		}
	}
	for scope, kind := range map[string]string{"store": "note", "owner:": "note", "kind:note": "note"} {
		l, m := metered(t, memlog.New(memlog.Config{}), "", admits)
		limit(t, m, scope, 5)
		sub := events.Document("other", kind, "x")
		if err := tryPut(t, l, sub, written("", 6)); err == nil {
			t.Errorf("%s: 6 bytes were admitted with a limit of 5", scope)
		}
		put(t, l, sub, written("", 5))
		put(t, l, events.Document("", events.KindBlob, strings.Repeat("0", 64)), written("", 100))
	}
}

// A transaction is admitted by the sum of its changes. A document can be renamed where there is no room for a second
// one.
func TestSeveralSubjects(t *testing.T) {
	l, m := metered(t, memlog.New(memlog.Config{}), "", admits)
	put(t, l, doc("a"), written("ann", 100))
	limit(t, m, "store", 100)
	move := []log.Part{{Subject: doc("b"), Expect: log.At(0), Events: []events.Event{written("ann", 101)}}, {Subject: doc("a"), Expect: log.At(1), Events: []events.Event{deleted(t, doc("a"), "renamed")}},
		{Subject: doc("c"), Expect: log.At(0)}}
	if _, err := l.AppendAll(t.Context(), move...); !errors.Is(err, log.ErrQuota) {
		t.Errorf("101 bytes with a limit of 100: %v", err)
	}
	move[0].Events[0] = written("ann", 100)
	move[0].Expect = log.At(7)
	if _, err := l.AppendAll(t.Context(), move...); !errors.Is(err, log.ErrConflict) {
		t.Errorf("move a document at the wrong offset @7: %v", err)
	}
	if u, _ := m.Usage(t.Context()); u[0].Bytes != 100 || u[0].Documents != 1 {
		t.Errorf("the usage after a failed move is %+v", u)
	}
	move[0].Expect = log.At(0)
	if _, err := l.AppendAll(t.Context(), move...); err != nil {
		t.Fatal(err)
	}
	if u, _ := m.Usage(t.Context()); u[0].Bytes != 100 || u[0].Documents != 1 {
		t.Errorf("the usage after a move is %+v", u)
	}
}

func withSubject(sub events.Subject, e events.Event) events.Event {
	e.Subject = sub
	return e
}

// slow delays appends, so that writers run concurrently.
type slow struct{ *memlog.Backend }

func (s slow) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	time.Sleep(200 * time.Microsecond)
	return s.Backend.Publish(ctx, p)
}

const writers, perWriter, eventSize = 64, 8, 10

// together lets 64 writers write until the store is full, which admits half of their events. It returns the number of
// events that were stored.
func together(t *testing.T, build func(*Meter) admission) (stored int64) {
	t.Helper()
	l, m := metered(t, slow{memlog.New(memlog.Config{})}, "", build)
	limit(t, m, "store", writers*perWriter*eventSize/2)
	var in atomic.Int64
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for n := range perWriter {
				err := tryPut(t, l, doc(fmt.Sprintf("%d-%d", w, n)), written("ann", eventSize))
				if _, refused := errors.AsType[*log.QuotaError](err); err != nil && !refused {
					t.Error(err)
				}
				if err == nil {
					in.Add(1)
				}
			}
		})
	}
	all.Wait()
	return in.Load()
}

// Concurrent writers reach a limit exactly and never exceed it.
func TestTogether(t *testing.T) {
	if stored := together(t, admits); stored != writers*perWriter/2 {
		t.Errorf("stored %d events, want %d", stored, writers*perWriter/2)
	}
}

// The workload of TestTogether exceeds the limit with a meter that reserves nothing, so TestTogether detects one.
func TestTogetherFindsWhoReservesNothing(t *testing.T) {
	broken := func(m *Meter) admission {
		return func(ctx context.Context, parts []log.Part) (func([]log.Ack, error), error) {
			settle, err := m.Admit(ctx, parts)
			if err != nil || settle == nil {
				return nil, err
			}
			settle(nil, log.ErrConflict)
			return func(acks []log.Ack, err error) { m.uncounted(parts, outcomeOf(acks, err)) }, nil
		}
	}
	for range 5 {
		if together(t, broken) > writers*perWriter/2 {
			return
		}
	}
	t.Error("a meter without reservations never exceeded the limit")
}

// Concurrent writers write, grow, shrink, delete and give away the same documents, and some get no answer. Afterwards
// the count equals the log's, and the limit was never exceeded.
func TestShared(t *testing.T) {
	seed := testkit.Seed(t)
	patience = 0
	t.Cleanup(func() { patience = 30 * time.Second })
	mem := memlog.New(memlog.Config{})
	l, m := metered(t, &logtest.Faulty{Backend: slow{mem}, Next: logtest.Sometimes(seed, 16, logtest.Dropped, logtest.AckLost)}, "", admits)
	limits := Limits{"store": 600, "owner:ann": 250, "kind:doc": 400}
	for scope, bytes := range limits {
		limit(t, m, scope, bytes)
	}
	var all sync.WaitGroup
	for w := range 16 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			for range 40 {
				sub := events.Document("", []string{"doc", "note"}[random.IntN(2)], fmt.Sprint(random.IntN(8)))
				e := written([]string{"ann", "bob"}[random.IntN(2)], random.IntN(100))
				if random.IntN(4) == 0 {
					e = deleted(t, sub, "done")
				}
				err := tryPut(t, l, sub, e)
				if err != nil && !errors.Is(err, log.ErrQuota) && !errors.Is(err, log.ErrUnknown) && !errors.Is(err, log.ErrConflict) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	have, err := m.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	anew, err := Read(t.Context(), logtest.OpenOn(t, mem, log.Config{}), 0, limits)
	if diff := cmp.Diff(anew, have); err != nil || diff != "" {
		t.Errorf("the log (-) and the meter (+) differ, error %v:\n%s", err, diff)
	}
	for _, u := range anew {
		if u.Limit > 0 && u.Bytes > u.Limit {
			t.Errorf("got %+v", u)
		}
	}
}

// BenchmarkAdmit measures the additional time of an append to a document, with limits and without.
func BenchmarkAdmit(b *testing.B) {
	for name, limits := range map[string]Limits{"none": nil, "set": {"store": MaxLimit, "owner:ann": MaxLimit, "kind:doc": MaxLimit}} {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			_, m := metered(b, memlog.New(memlog.Config{}), dir, admits)
			for scope, bytes := range limits {
				limit(b, m, scope, bytes)
			}
			parts := []log.Part{{Subject: doc("a"), Events: []events.Event{withSubject(doc("a"), written("ann", 1000))}}}
			acks := []log.Ack{{First: 1, Last: 1}}
			for b.Loop() {
				settle, err := m.Admit(b.Context(), parts)
				if err != nil {
					b.Fatal(err)
				}
				settle(acks, nil)
			}
		})
	}
}

// model is the content of a store, as a map.
type model map[events.Subject]struct {
	owner string
	bytes int64
}

func (m model) usage() []projector.Usage {
	live := make(sums)
	for sub, d := range m {
		for _, scope := range []string{"store", "owner:" + d.owner, "kind:" + sub.Kind} {
			live[scope] = sum{live[scope].documents + 1, live[scope].bytes + d.bytes}
		}
	}
	return live.usage(Limits{"store": MaxLimit})
}

// After each random history of writes and outcomes, the count equals that of the model, and that of a new count.
func TestModel(t *testing.T) {
	seed := testkit.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	patience = 0
	t.Cleanup(func() { patience = 30 * time.Second })
	mem := memlog.New(memlog.Config{})
	b := &logtest.Faulty{Backend: mem, Next: logtest.Sometimes(seed, 8, logtest.Dropped, logtest.AckLost)}
	l, m := metered(t, b, "", admits)
	plain := logtest.OpenOn(t, mem, log.Config{})
	want := make(model)
	limit(t, m, "store", MaxLimit)
	for step := range 400 {
		sub := events.Document("", []string{"doc", "note"}[random.IntN(2)], fmt.Sprint(random.IntN(6)))
		owner, size := []string{"", "ann", "bob"}[random.IntN(3)], random.IntN(50)
		e := written(owner, size)
		switch random.IntN(8) {
		case 0, 1:
			e = deleted(t, sub, []string{"done", "purged"}[random.IntN(2)])
		case 2:
			content := []byte(strings.Repeat("y", size) + fmt.Sprint(step))
			e.Data, size = nil, len(content)
			e = e.WithExtension(events.ExtDataRef, blob(t, plain, content))
		case 3:
			e.Type = "com.example.other"
		}
		before := headOf(t, plain)
		err := tryPut(t, l, sub, e)
		there := headOf(t, plain) > before
		if err != nil && !errors.Is(err, log.ErrUnknown) || err == nil && !there {
			t.Fatal(err)
		}
		switch {
		case !there || e.Type == "com.example.other":
		case e.Type == events.TypeDocumentDeleted:
			delete(want, sub)
		default:
			want[sub] = struct {
				owner string
				bytes int64
			}{owner, int64(size)}
		}
		have, err := m.Usage(t.Context())
		if diff := cmp.Diff(want.usage(), have); err != nil || diff != "" {
			t.Fatalf("step %d, %s of %s (-want +got): %v\n%s", step, e.Type, sub, err, diff)
		}
	}
	anew, err := Read(t.Context(), plain, 0, Limits{"store": MaxLimit})
	if diff := cmp.Diff(want.usage(), anew); err != nil || diff != "" {
		t.Errorf("a new count differs, error %v:\n%s", err, diff)
	}
}

func headOf(t testing.TB, l *log.Log) events.Offset {
	t.Helper()
	at, err := l.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// blob stores content and returns the reference to it.
func blob(t testing.TB, l *log.Log, content []byte) string {
	t.Helper()
	sum := sha256.Sum256(content)
	id := hex.EncodeToString(sum[:])
	_, err := l.Append(t.Context(), events.Document("", events.KindBlob, id), log.Any,
		events.Event{Source: "urn:test", Type: events.TypeDocumentWritten, ContentType: "application/octet-stream", Data: content})
	if err != nil {
		t.Fatal(err)
	}
	return events.BlobRef(id)
}

// Content by reference counts for each document that refers to it. A reference to missing content is refused, because
// the bytes would count later, when an append brings the content.
func TestByReference(t *testing.T) {
	l, m := metered(t, memlog.New(memlog.Config{}), "", admits)
	early := written("ann", 0).WithExtension(events.ExtDataRef, events.BlobRef(hex.EncodeToString(make([]byte, 32))))
	content := []byte("content that comes later")
	sum := sha256.Sum256(content)
	later := written("ann", 0).WithExtension(events.ExtDataRef, events.BlobRef(hex.EncodeToString(sum[:])))
	put(t, l, doc("early"), written("ann", 7))
	put(t, l, doc("early"), later) // there are no limits yet
	limit(t, m, "owner:ann", 1000)
	if err := tryPut(t, l, doc("x"), early); err == nil || !strings.Contains(err.Error(), "dataref") {
		t.Errorf("a reference to missing content: %v", err)
	}
	if have := used(t, m, "store"); have != 7 {
		t.Errorf("got %d bytes, want the 7 that can be read", have)
	}
	ref := blob(t, l, content)
	if have := used(t, m, "store"); have != int64(len(content)) {
		t.Errorf("got %d bytes, want the %d that can be read by now", have, len(content))
	}
	for _, id := range []string{"a", "b"} {
		put(t, l, doc(id), written("ann", 0).WithExtension(events.ExtDataRef, ref))
	}
	if have := used(t, m, "store"); have != 3*int64(len(content)) {
		t.Errorf("got %d bytes in three documents", have)
	}
	whole := events.Document("", events.KindBlob, hex.EncodeToString(sum[:]))
	put(t, l, whole, deleted(t, whole, events.ReasonPurged))
	if have := used(t, m, "store"); have != 7 {
		t.Errorf("got %d bytes, want the 7 that can be read after the purge", have)
	}
}

// Without an answer, the larger of the possible states counts, until the event is sent again or a later write settles
// the outcome.
func TestUnknown(t *testing.T) {
	l, m := metered(t, memlog.New(memlog.Config{}), "", admits)
	put(t, l, doc("old"), written("", 60))
	limit(t, m, "store", 100)
	admit := func(sub events.Subject, e events.Event, o outcome) error {
		settle, err := m.Admit(t.Context(), []log.Part{{Subject: sub, Events: []events.Event{withSubject(sub, e)}}})
		if err == nil {
			settle([]log.Ack{{Duplicate: o == repeated}}, map[outcome]error{notStored: log.ErrConflict, unknown: log.ErrUnknown}[o])
		}
		return err
	}
	must := func(fits bool, err error) {
		t.Helper()
		if (err == nil) != fits {
			t.Errorf("got the error %v, want admission: %v", err, fits)
		}
	}
	must(true, admit(doc("a"), written("", 40), unknown))
	must(false, admit(doc("b"), written("", 1), notStored))
	must(true, admit(doc("a"), written("", 40), unknown)) // sent again: it reserves nothing twice
	must(true, admit(doc("a"), written("", 40), notStored))
	must(false, admit(doc("b"), written("", 1), notStored)) // this one was refused; the first one may be stored
	must(false, admit(doc("a"), written("", 60), notStored))
	must(false, admit(doc("b"), written("", 1), notStored)) // this one was too large; the first one may be stored
	put(t, l, doc("a"), written("", 30))                    // after it
	must(true, admit(doc("b"), written("", 10), notStored))
	must(true, admit(doc("old"), deleted(t, doc("old"), "done"), unknown))
	must(false, admit(doc("b"), written("", 11), notStored)) // old may be stored
	must(true, admit(doc("old"), deleted(t, doc("old"), "done"), repeated))
	must(false, admit(doc("b"), written("", 11), notStored)) // it is: the meter has read the log
	put(t, l, doc("old"), deleted(t, doc("old"), "done"))
	must(true, admit(doc("b"), written("", 70), notStored))
}

// gate blocks appends until it is opened.
type gate struct {
	*memlog.Backend
	waits chan struct{}
	open  chan struct{}
}

func (g gate) Publish(ctx context.Context, p log.Publication) (log.Receipt, error) {
	g.waits <- struct{}{}
	<-g.open
	return g.Backend.Publish(ctx, p)
}

// Appends in progress count when the first limit is set.
func TestLimitMeanwhile(t *testing.T) {
	g := gate{memlog.New(memlog.Config{}), make(chan struct{}), make(chan struct{})}
	l, m := metered(t, g, "", admits)
	done := make(chan error)
	go func() { done <- tryPut(t, l, doc("a"), written("ann", 50)) }()
	<-g.waits
	limit(t, m, "store", 60)
	if have := used(t, m, "store"); have != 0 {
		t.Errorf("got %d bytes before the first append", have)
	}
	close(g.open)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if have := used(t, m, "store"); have != 50 {
		t.Errorf("got %d bytes, want 50", have)
	}
}

// Content that arrives while the first limit is set counts, too, for a document that is there already.
func TestContentMeanwhile(t *testing.T) {
	mem := memlog.New(memlog.Config{})
	content := []byte("content")
	sum := sha256.Sum256(content)
	put(t, logtest.OpenOn(t, mem, log.Config{}), doc("a"), written("", 0).WithExtension(events.ExtDataRef, events.BlobRef(hex.EncodeToString(sum[:]))))
	g := gate{mem, make(chan struct{}), make(chan struct{})}
	l, m := metered(t, g, "", admits)
	done := make(chan string)
	go func() { done <- blob(t, l, content) }()
	<-g.waits
	limit(t, m, "store", 60)
	if have := used(t, m, "store"); have != 0 {
		t.Errorf("got %d bytes before the content is stored", have)
	}
	close(g.open)
	<-done
	if have := used(t, m, "store"); have != int64(len(content)) {
		t.Errorf("got %d bytes, want %d", have, len(content))
	}
}

// Limits are in a file, and a process that can write it sets them. If the file cannot be read, documents are refused
// and nothing else is.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	l, m := metered(t, memlog.New(memlog.Config{}), dir, admits)
	limit(t, m, "store", 100)
	limit(t, m, "kind:doc", 50)
	limit(t, m, "store", 0)
	have, err := Load(dir)
	if diff := cmp.Diff(Limits{"kind:doc": 50}, have); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if err := Set(dir, "kind:doc", 10); err != nil { // like another process
		t.Fatal(err)
	}
	if err := tryPut(t, l, doc("a"), written("", 11)); err == nil {
		t.Error("11 bytes were admitted with a limit of 10")
	}
	for text, newer := range map[string]bool{`{"version":2}`: true, `{"version":0}`: false, `{`: false, `{"version":1,"limits":{"x":1}}`: false, `{"version":1,"limits":{"store":0}}`: false} {
		if err := os.WriteFile(filepath.Join(dir, FileName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * fresh)
		if err := tryPut(t, l, doc("a"), written("", 1)); err == nil || errors.Is(err, log.ErrNewer) != newer {
			t.Errorf("%s: got the error %v", text, err)
		}
		put(t, l, events.Session("", "s"), events.Event{Source: "urn:test", Type: "com.example.x"})
	}
	if err := os.Remove(filepath.Join(dir, FileName)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * fresh)
	put(t, l, doc("a"), written("", 100))
}

// The percentage is rounded down. From 80 % of a limit on, a usage warns.
func TestWarns(t *testing.T) {
	for _, x := range []struct {
		bytes, limit int64
		percent      int
		warns        bool
	}{{79, 100, 79, false}, {80, 100, 80, true}, {799, 1000, 79, false}, {29, 100, 29, false}, {0, 0, 0, false}, {100, 0, 0, false}, {300, 100, 300, true}, {MaxLimit - 1, MaxLimit, 99, true}} {
		u := projector.Usage{Bytes: x.bytes, Limit: x.limit}
		if u.Percent() != x.percent || u.Warns() != x.warns {
			t.Errorf("%d of %d bytes: got %d %%, warns %v", x.bytes, x.limit, u.Percent(), u.Warns())
		}
	}
}

// Concurrent calls of Set do not lose each other's limits.
func TestLimitsAtOnce(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			if err := Set(dir, fmt.Sprint("owner:", n), int64(n+1)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if have, err := Load(dir); err != nil || len(have) != 8 {
		t.Errorf("got %v, error %v", have, err)
	}
}
