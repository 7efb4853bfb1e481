package projector_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

// longLog is the log of one session that generates its records on demand: turns of about 400 bytes, and a cost after
// every fourth turn.
type longLog struct {
	records int
	read    *atomic.Int64 // number of records read
	back    events.Offset // target of the rewind that is the last record; 0: the last record is no rewind
	every   int           // each record whose number is a multiple of it rewinds the session by 15 records; 0: none does
}

var long = events.Session("", "long")

func (l longLog) at(n int) events.Record {
	var p events.Payload = &events.TurnAppended{Entries: []events.Entry{{Thread: events.MainThread, Turn: longTurn(n)}}}
	if n%5 == 0 {
		p = &events.CostAccrued{Model: "m", USD: "0.01", Purpose: "run", Source: "reported"}
	}
	if l.back != 0 && n == l.records {
		p = &events.SessionRewound{To: l.back}
	}
	if l.every > 0 && n%l.every == 0 {
		p = &events.SessionRewound{To: events.Offset(n - 15)}
	}
	e, err := events.New("urn:test", long, p)
	if err != nil {
		panic(err)
	}
	e.ID, e.Time = fmt.Sprintf("event-%d", n), time.Unix(int64(n), 0).UTC()
	return events.Record{Event: e, Offset: events.Offset(n), Recorded: e.Time}
}

func longTurn(n int) events.Raw {
	return events.Raw(fmt.Sprintf(`{"n":%d,"text":"%s"}`, n, strings.Repeat("x", 380)))
}

func (l longLog) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for n := int(r.After) + 1; n <= l.records && (r.Upto == 0 || n <= int(r.Upto)); n++ {
			if ctx.Err() != nil {
				yield(events.Record{}, ctx.Err())
				return
			}
			l.read.Add(1)
			if !yield(l.at(n), nil) || r.Limit > 0 && n-int(r.After) == r.Limit {
				return
			}
		}
	}
}

func (l longLog) Record(_ context.Context, at events.Offset) (events.Record, error) {
	if at == 0 || int(at) > l.records {
		return events.Record{}, fmt.Errorf("no record %v", at)
	}
	return l.at(int(at)), nil
}

// metered counts the bytes read from and written to a store.
type metered struct {
	snapshot.Store
	read, written atomic.Int64
	onPut         func()
}

func (m *metered) Get(ctx context.Context, meta snapshot.Meta) (snapshot.Snapshot, error) {
	s, err := m.Store.Get(ctx, meta)
	m.read.Add(int64(len(s.Data)))
	return s, err
}

func (m *metered) Put(ctx context.Context, s snapshot.Snapshot) error {
	m.written.Add(int64(len(s.Data)))
	if m.onPut != nil {
		m.onPut()
	}
	return m.Store.Put(ctx, s)
}

// longStore stores a snapshot of a long session without its last records.
func longStore(tb testing.TB, records, behind int) (longLog, *metered) {
	tb.Helper()
	st := &metered{Store: snapshot.NewFiles(tb.TempDir())}
	l := &projector.Loader{Source: longLog{records: records - behind, read: new(atomic.Int64)}, Snapshots: st}
	if _, err := l.Keep(tb.Context(), long, 0, ""); err != nil {
		tb.Fatal(err)
	}
	return longLog{records: records, read: new(atomic.Int64)}, st
}

// lastTurns opens the session like another process, and reads its last 50 turns.
func lastTurns(tb testing.TB, src longLog, st snapshot.Store) {
	tb.Helper()
	o, err := (&projector.Loader{Source: src, Snapshots: st}).Outline(tb.Context(), long, 0)
	if err != nil {
		tb.Fatal(err)
	}
	turns, err := o.Last(tb.Context(), events.MainThread, 50)
	if err != nil || len(turns) != 50 || o.Len(events.MainThread) != src.records-src.records/5 {
		tb.Fatalf("got %d of %d turns, %v, want 50", len(turns), o.Len(events.MainThread), err)
	}
	n := src.records
	for _, turn := range slices.Backward(turns) {
		if n%5 == 0 {
			n--
		}
		if string(turn.Raw) != string(longTurn(n)) || int(turn.Offset) != n {
			tb.Fatalf("turn at %v is %.20s, want the one at %d", turn.Offset, turn.Raw, n)
		}
		n--
	}
}

// The cost to read the last turns does not depend on the number of earlier turns.
func TestLastTurnsReadLittle(t *testing.T) {
	testkit.NotUnderRace(t)
	cost := func(records int) (read, allocated int64) {
		src, st := longStore(t, records, 150)
		lastTurns(t, src, st) // warms up the process-wide caches
		st.read.Store(0)
		src.read.Store(0)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		lastTurns(t, src, st)
		runtime.ReadMemStats(&after)
		if n := src.read.Load(); n != 150 {
			t.Errorf("read %d records, want the 150 after the snapshot", n)
		}
		return st.read.Load(), int64(after.TotalAlloc - before.TotalAlloc)
	}
	many := 100_000
	if !testkit.Full() {
		many = 37_500
	}
	small, _ := cost(12_500 + 150)
	large, allocated := cost(many + 150)
	t.Logf("%d bytes read of 12,500 records, %d of %d; %d allocated", small, large, many, allocated)
	if large > 400<<10 || large > 2*small+64<<10 {
		t.Errorf("read %d bytes of the snapshots of 12,500 records, and %d bytes of %d records", small, large, many)
	}
	if allocated > 8<<20 {
		t.Errorf("allocated %d bytes, want at most 8 MiB", allocated)
	}
}

// A snapshot after another one reads only new records. So does the load of a session that was rewound to its middle.
func TestSnapshotsReadWhatIsNew(t *testing.T) {
	testkit.NotUnderRace(t)
	src, st := longStore(t, 50_200, 200)
	st.read.Store(0)
	if _, err := (&projector.Loader{Source: src, Snapshots: st}).Keep(t.Context(), long, 0, ""); err != nil {
		t.Fatal(err)
	}
	if records, bytes := src.read.Load(), st.read.Load(); records != 200 || bytes > 256<<10 {
		t.Errorf("read %d records and %d bytes of snapshots to keep 200 more records", records, bytes)
	}
	src = longLog{records: 50_201, read: new(atomic.Int64), back: 25_003}
	st.read.Store(0)
	o, err := (&projector.Loader{Source: src, Snapshots: st}).Outline(t.Context(), long, 0)
	if err != nil {
		t.Fatal(err)
	}
	turns, err := o.Last(t.Context(), events.MainThread, 1)
	if err != nil || o.Len(events.MainThread) != 25_003-5000 || len(turns) != 1 || turns[0].Offset != 25_003 {
		t.Errorf("got %d turns, the last is %v, %v, want 20003 up to @25003", o.Len(events.MainThread), turns, err)
	}
	if records, bytes := src.read.Load(), st.read.Load(); records > 1+256 || bytes > 1<<20 {
		t.Errorf("read %d records and %d bytes of snapshots to rewind, want at most 257 and 1 MiB", records, bytes)
	}
}

// A session that was rewound many times opens like one that was not: the records behind its newest snapshot are read,
// and little of the snapshots. Keeping its snapshots up to date reads each record once.
func TestManyRewindsOpenFlat(t *testing.T) {
	testkit.NotUnderRace(t)
	records := 10_000 * testkit.Times(4)
	type cost struct{ kept, opened, read, written, back int64 }
	of := func(every int) (c cost) {
		log := func(n int) longLog { return longLog{records: n, read: new(atomic.Int64), every: every} }
		st := &metered{Store: &snapshot.Mem{}}
		for at := 200; at <= records; at += 200 { // as the snapshotter does
			src := log(at)
			if _, err := (&projector.Loader{Source: src, Snapshots: st}).Keep(t.Context(), long, 0, ""); err != nil {
				t.Fatal(err)
			}
			c.kept += src.read.Load()
			if err := projector.Prune(t.Context(), st, long, 3); err != nil {
				t.Fatal(err)
			}
		}
		c.written = st.written.Load()
		st.read.Store(0)
		src := log(records + 150)
		o, err := (&projector.Loader{Source: src, Snapshots: st}).Outline(t.Context(), long, 0)
		if err != nil {
			t.Fatal(err)
		}
		if turns, err := o.Last(t.Context(), events.MainThread, 1); err != nil || len(turns) != 1 {
			t.Fatalf("the last turn: got %v, %v", turns, err)
		}
		c.opened, c.read = src.read.Load(), st.read.Load()
		past, err := o.Back(t.Context(), events.Offset(records/2+30))
		if err != nil || src.read.Load() != c.opened {
			t.Fatalf("looking back read %d records, %v, want none", src.read.Load()-c.opened, err)
		}
		c.back = st.read.Load() - c.read
		leaves, returns := projector.Changes(&o.Past, past)
		if n := o.Len(events.MainThread) - past.Len(events.MainThread); leaves.Count != n+returns.Count || returns.Count > 15 || st.read.Load() != c.read+c.back {
			t.Errorf("%d turns leave and %d return, of threads that differ by %d; reading %d bytes", leaves.Count, returns.Count, n, st.read.Load()-c.read-c.back)
		}
		return c
	}
	never, often := of(0), of(40)
	t.Logf("%d records: never rewound %+v, rewound every 40 records %+v", records, never, often)
	if often.kept != never.kept || often.opened != never.opened {
		t.Errorf("read %d records to keep snapshots and %d to open, want %d and %d", often.kept, often.opened, never.kept, never.opened)
	}
	if never.back > 512<<10 || often.back > 512<<10 {
		t.Errorf("read %d bytes of snapshots to look back, and %d without a rewind, want at most 512 KiB", often.back, never.back)
	}
	if often.read > never.read+256<<10 || often.written > 2*never.written {
		t.Errorf("read %d bytes of snapshots to open and wrote %d, and %d and %d without a rewind", often.read, often.written, never.read, never.written)
	}
}

// After many rewinds, one to a branch that was left has the turns of that branch. The threads are too large for marks.
func TestBranchAmongManyRewinds(t *testing.T) {
	src := longLog{records: 4001, read: new(atomic.Int64), every: 40, back: 3995} // record 4000 rewinds to 3985
	o, err := (&projector.Loader{Source: src}).Outline(t.Context(), long, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Of 3995 records, every fifth is no turn, and each of the 99 rewinds before took out 12 turns.
	const want = 3995 - 799 - 99*12
	turns, err := o.Last(t.Context(), events.MainThread, 1)
	if n := o.Len(events.MainThread); err != nil || n != want || len(turns) != 1 || turns[0].Offset != 3994 {
		t.Errorf("got %d turns and %d of the last turn, %v, want %d up to @3994", n, len(turns), err, want)
	}
}

// A head for a rewind far back writes only itself, because its chunks exist.
func TestSnapshotFarBackWritesNoChunks(t *testing.T) {
	src, st := longStore(t, 20_000, 0)
	st.written.Store(0)
	l := &projector.Loader{Source: src, Snapshots: st}
	m, err := l.Keep(t.Context(), long, 10_005, "rewind target")
	if err != nil || m.Offset != 10_005 {
		t.Fatalf("keep: got %v, %v, want @10005", m, err)
	}
	if n := st.written.Load(); n > 256<<10 {
		t.Errorf("wrote %d bytes, want at most 256 KiB", n)
	}
}

// Chunks leave memory as soon as they are stored.
func TestSnapshotsTakeLittleMemory(t *testing.T) {
	testkit.NotUnderRace(t)
	var puts int
	var peak uint64
	st := &metered{Store: snapshot.NewFiles(t.TempDir())}
	st.onPut = func() {
		if puts++; puts%100 == 0 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
		}
	}
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	records := 100_000
	if !testkit.Full() {
		records = 50_000
	}
	l := &projector.Loader{Source: longLog{records: records, read: new(atomic.Int64)}, Snapshots: st}
	if _, err := l.Keep(t.Context(), long, 0, ""); err != nil {
		t.Fatal(err)
	}
	if used := int64(peak) - int64(before.HeapAlloc); puts < records/333 || used > 8<<20 {
		t.Errorf("used %d bytes of memory to store %d chunks of %d bytes", used, puts, st.written.Load())
	}
}

// Twice the turns take at most twice the bytes. The tolerance is for the indexes: a head lists up to 15 entries of each
// index level, and the number of levels grows with the logarithm of the session's length.
func TestSnapshotsAreLinear(t *testing.T) {
	testkit.NotUnderRace(t)
	written := func(records int) int64 {
		st := &metered{Store: &snapshot.Mem{}}
		l := &projector.Loader{Source: longLog{records: records, read: new(atomic.Int64)}, Snapshots: st}
		for at := 200; at <= records; at += 200 { // as the snapshotter does
			if _, err := l.Keep(t.Context(), long, events.Offset(at), ""); err != nil {
				t.Fatal(err)
			}
			if err := projector.Prune(t.Context(), st, long, 3); err != nil {
				t.Fatal(err)
			}
		}
		return st.written.Load()
	}
	half, whole := written(20_000), written(40_000)
	t.Logf("%d bytes for 20,000 records, %d for 40,000: %.3f times", half, whole, float64(whole)/float64(half))
	if whole > 2*half+half/50 {
		t.Errorf("stored %d bytes for 20,000 records, and %d for 40,000, want twice as many", half, whole)
	}
}

// BenchmarkLastTurns reads the last 50 turns of a session with a million records.
func BenchmarkLastTurns(b *testing.B) {
	src, st := longStore(b, 1_000_000, 150)
	st.read.Store(0)
	b.ReportAllocs()
	for b.Loop() {
		lastTurns(b, src, st)
	}
	b.ReportMetric(float64(st.read.Load())/float64(b.N)/(1<<20), "MB-read/op")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms/op")
}

// All reads of an outline equal those of the whole session, with altered snapshots and without snapshots.
func TestOutlineEqualsSession(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := testkit.History().Draw(t, "log")
		store := &rotting{}
		records := rapid.IntRange(1, 5).Draw(t, "records of a chunk")
		loader := func() *projector.Loader {
			return (&projector.Loader{Source: log, Snapshots: store}).SetChunks(records, 2)
		}
		for range rapid.IntRange(0, 3).Draw(t, "snapshots") {
			rec := drawRecord(t, log)
			if _, err := loader().Keep(t.Context(), rec.Subject, rec.Offset, ""); err != nil {
				t.Fatal(err)
			}
		}
		rec := drawRecord(t, log)
		want := mustLoad(t, &projector.Loader{Source: log}, rec.Subject, rec.Offset)
		got, err := loader().Outline(t.Context(), rec.Subject, rec.Offset)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "spoil") {
			spoilPart(t, store)
		}
		if !slices.Equal(want.Threads.Names(), got.Names()) || want.Offset() != got.Offset() || want.History.First() != got.First() || !slices.Equal(want.History.Stale(), got.Stale()) {
			t.Fatalf("got threads %v at %v, stale %v; want %v at %v, stale %v", got.Names(), got.Offset(), got.Stale(), want.Threads.Names(), want.Offset(), want.History.Stale())
		}
		for _, name := range want.Threads.Names() {
			all := want.Threads.Turns(name)
			from, to := rapid.IntRange(0, len(all)).Draw(t, "from"), rapid.IntRange(0, len(all)+1).Draw(t, "to")
			turns, err := got.Turns(t.Context(), name, from, to)
			if err != nil || fmt.Sprint(turns) != fmt.Sprint(append([]projector.Turn(nil), all[from:max(from, min(to, len(all)))]...)) || got.Len(name) != len(all) || string(got.Meta(name)) != string(want.Threads[name].Meta) {
				t.Fatalf("turns %d to %d of %s: got %v, %v; want those of %v; length %d", from, to, name, turns, err, all, got.Len(name))
			}
		}
		for _, text := range []string{"", "start", fmt.Sprintf("@%d", rapid.IntRange(1, 60).Draw(t, "at")), fmt.Sprintf("#%d", rapid.IntRange(1, 6).Draw(t, "turn")),
			fmt.Sprintf("gpt-5~%d", rapid.IntRange(0, 3).Draw(t, "without")), fmt.Sprintf("~%d", rapid.IntRange(1, 4).Draw(t, "last")), "2026-01-01T00:00:30Z", "-10s"} {
			p, err := projector.ParsePosition(text)
			if err != nil {
				t.Fatal(err)
			}
			a, aErr := (&projector.Loader{Source: log}).Resolve(t.Context(), want, p)
			b, bErr := got.Resolve(t.Context(), p)
			if a != b || fmt.Sprint(aErr) != fmt.Sprint(bErr) {
				t.Fatalf("%s: got %v, %v for the session, but %v, %v for the outline", text, a, aErr, b, bErr)
			}
		}
	})
}

// A missing position is not an error of the load, even if a part of the snapshots turns out to be lost meanwhile.
func TestOutlineMissingPosition(t *testing.T) {
	st := &story{t: t}
	st.add(s1, aTurn("a"))
	st.add(s1, &events.SessionRewound{To: 1})
	store := &snapshot.Mem{}
	loader := func() *projector.Loader {
		return (&projector.Loader{Source: st.records, Snapshots: store}).SetChunks(1, 2)
	}
	if _, err := loader().Keep(t.Context(), s1, 0, ""); err != nil {
		t.Fatal(err)
	}
	o, err := loader().Outline(t.Context(), s1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for m := range store.All(t.Context()) {
		if m.Fold != projector.SessionFold {
			if err := store.Delete(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
	}
	p, err := projector.ParsePosition("~1")
	if err != nil {
		t.Fatal(err)
	}
	const want = "session s1 has no position ~1: there is no record before these turns"
	if _, err := o.Resolve(t.Context(), p); !errors.Is(err, projector.ErrNotFound) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A missing session has no outline, and a missing thread has no turns.
func TestOutlineOfNothing(t *testing.T) {
	l := &projector.Loader{Source: tale(t)}
	if _, err := l.Outline(t.Context(), events.Session("", "nobody"), 0); !errors.Is(err, projector.ErrNotFound) {
		t.Errorf("outline of a missing session: got %v, want ErrNotFound", err)
	}
	o, err := l.Outline(t.Context(), s1, 0)
	if err != nil || o.Subject() != s1 || o.Ledger().Kind != events.KindConversation || len(o.Damaged()) > 0 {
		t.Fatalf("outline: got %v, %v, want session s1", o, err)
	}
	if turns, err := o.Last(t.Context(), "nothing", 3); err != nil || len(turns) > 0 || o.Len("nothing") != 0 || o.Meta("nothing") != nil {
		t.Errorf("last turns of a missing thread: got %v, %v, want none", turns, err)
	}
	if turns, err := o.Last(t.Context(), "main", 99); err != nil || len(turns) != 3 {
		t.Errorf("last 99 turns of main: got %v, %v, want 3", turns, err)
	}
}
