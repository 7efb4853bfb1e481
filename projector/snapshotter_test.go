package projector_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/logtest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/memlog"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

var _ projector.Follower = (*log.Log)(nil)

// bench is a snapshotter with a log in memory. Its clock advances only while the test sleeps.
type bench struct {
	t     *testing.T
	log   *log.Log
	mem   *memlog.Backend
	store *counted
	warn  warnings
	dir   string
	now   func() time.Time // of snapshotters; nil: time.Now
	pace  projector.Pace
}

// counted counts calls of Put, and refuses them if err is set.
type counted struct {
	snapshot.Mem
	puts int
	err  error
}

// Since implements snapshot.Eraser: writes after it are calls of Put, too.
func (c *counted) Since() snapshot.Store { return c }

func (c *counted) Put(ctx context.Context, s snapshot.Snapshot) error {
	if c.err != nil {
		return c.err
	}
	c.puts++
	return c.Mem.Put(ctx, s)
}

// onBench runs a test in a bubble of its own.
func onBench(t *testing.T, run func(*bench)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, mem: memlog.New(memlog.Config{}), store: &counted{}, dir: dir}
		b.log = logtest.OpenOn(t, b.mem, log.Config{})
		run(b)
	})
}

// keep starts a snapshotter. stop ends it like the exit of a process.
func (b *bench) keep(p projector.Policy) (stop func()) {
	b.t.Helper()
	k := &projector.Snapshotter{Log: b.log, Snapshots: b.store, Policy: p, Cursor: filepath.Join(b.dir, "state", "cursor"), Logger: b.warn.logger(), Now: b.now, Pace: b.pace}
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	synctest.Wait()
	return func() {
		b.t.Helper()
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("run: %v", err)
		}
	}
}

// add appends one event and lets the snapshotter read it.
func (b *bench) add(sub events.Subject, p events.Payload) events.Offset {
	b.t.Helper()
	e, err := events.New("urn:test", sub, p)
	if err != nil {
		b.t.Fatal(err)
	}
	expect := log.Any
	if last, err := b.log.Last(b.t.Context(), sub); err == nil && p.EventType() != events.TypeTurnAppended {
		expect = log.At(last.Offset)
	}
	ack, err := b.log.Append(b.t.Context(), sub, expect, e)
	if err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
	return ack.Last
}

func (b *bench) turns(sub events.Subject, n int) {
	b.t.Helper()
	for range n {
		b.add(sub, aTurn("a turn"))
	}
}

// must checks the offsets of the snapshots. Those that are kept for a reason are negative.
func (b *bench) must(sub events.Subject, want ...int) {
	b.t.Helper()
	if got := snapshotOffsets(b.t, b.store, sub); !slices.Equal(got, want) {
		b.t.Errorf("%s has snapshots at %v, want %v", sub, got, want)
	}
}

var off = projector.Policy{Records: -1, Bytes: -1, Age: -1}

// stopping is a store whose first write calls stop and fails.
type stopping struct {
	*counted
	stop func()
}

// Since implements snapshot.Eraser: writes after it are calls of Put, too.
func (i *stopping) Since() snapshot.Store { return i }

func (i *stopping) Put(ctx context.Context, s snapshot.Snapshot) error {
	if stop := i.stop; stop != nil {
		i.stop = nil
		stop()
		return ctx.Err()
	}
	return i.counted.Put(ctx, s)
}

// A session whose write was interrupted by the stop is written before the end.
func TestSnapshotterStopsDuringAWrite(t *testing.T) {
	onBench(t, func(b *bench) {
		ctx, stop := context.WithCancel(b.t.Context())
		k := &projector.Snapshotter{Log: b.log, Snapshots: &stopping{b.store, stop}, Policy: projector.Policy{Records: 3}, Logger: b.warn.logger()}
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		synctest.Wait()
		b.turns(s1, 3)
		if err := <-done; err != nil {
			b.t.Error(err)
		}
		b.must(s1, 3)
		if said := b.warn.all(); len(said) > 0 {
			b.t.Errorf("got warnings %v", said)
		}
	})
}

func TestSnapshotterCountsRecords(t *testing.T) {
	onBench(t, func(b *bench) {
		stop := b.keep(projector.Policy{Records: 3, Keep: 2})
		b.turns(s1, 2)
		b.must(s1)
		b.turns(s2, 2) // each session has its own count
		b.must(s1)
		b.turns(s1, 1)
		b.must(s1, 5)
		b.turns(s1, 3)
		b.must(s1, 5, 8)
		b.turns(s1, 3)
		b.must(s1, 8, 11) // the newest two
		b.must(s2)
		stop()
		b.must(s2, 4)
		b.must(s1, 8, 11) // nothing had changed
		if b.store.puts != 4 {
			b.t.Errorf("%d snapshots were written, want 4", b.store.puts)
		}
	})
}

// An item's session has few records and is final when the item ends: it gets no snapshots.
func TestSnapshotterLeavesItemsAlone(t *testing.T) {
	onBench(t, func(b *bench) {
		stop := b.keep(projector.Policy{Records: 2})
		item := events.Session("", "item/q/1")
		for _, sub := range []events.Subject{item, s1} {
			b.turns(sub, 3)
		}
		stop()
		b.must(item)
		b.must(s1, 3+2, 3+3)
	})
}

// A snapshotter bounds its tracked sessions by forgetting those that changed the longest ago. Later records of a
// forgotten session count as usual.
func TestSnapshotterForgetsSessions(t *testing.T) {
	onBench(t, func(b *bench) {
		k := (&projector.Snapshotter{Log: b.log, Snapshots: b.store, Policy: projector.Policy{Records: 3}, Logger: b.warn.logger()}).SetMost(16)
		ctx, cancel := context.WithCancel(b.t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		synctest.Wait()
		b.turns(s1, 2)
		for n := range 14 {
			b.turns(events.Session("", fmt.Sprint("other", n)), 1)
		}
		b.turns(s2, 2)
		b.turns(events.Session("", "last"), 1) // s1 and one more are forgotten
		b.turns(s1, 2)
		b.must(s1)
		b.turns(s2, 1)
		b.must(s2, 22)
		b.turns(s1, 1)
		b.must(s1, 23)
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("run: %v", err)
		}
		b.must(events.Session("", "other0"))
		b.must(events.Session("", "other13"), 16)
		b.must(events.Session("", "last"), 19)
	})
}

func TestSnapshotterCountsBytes(t *testing.T) {
	onBench(t, func(b *bench) {
		stop := b.keep(projector.Policy{Records: -1, Bytes: 1000, Age: -1})
		b.turns(s1, 3)
		b.must(s1)
		b.add(s1, aTurn(strings.Repeat("x", 1000)))
		b.must(s1, 4)
		stop()
	})
}

func TestSnapshotterLooksAtAges(t *testing.T) {
	onBench(t, func(b *bench) {
		stop := b.keep(projector.Policy{Age: time.Minute})
		b.turns(s1, 11)
		time.Sleep(50 * time.Second)
		b.turns(s1, 1)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		b.must(s1) // the last record is younger than a minute
		time.Sleep(2 * time.Second)
		synctest.Wait()
		b.must(s1, 12)
		time.Sleep(time.Hour)
		synctest.Wait()
		if b.store.puts != 1 {
			b.t.Errorf("%d snapshots were written of an unchanged session, want 1", b.store.puts)
		}
		stop()
	})
}

// A snapshotter does not check idle sessions before one is of age. It then handles sessions that age at about the same
// time together.
func TestSnapshotterRests(t *testing.T) {
	onBench(t, func(b *bench) {
		var looks atomic.Int64
		b.now = func() time.Time { looks.Add(1); return time.Now() }
		defer b.keep(projector.Policy{Age: time.Minute})()
		b.turns(s1, 12)
		time.Sleep(500 * time.Millisecond)
		b.turns(s2, 12)
		looks.Store(0)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if n := looks.Load(); n > 0 {
			t.Errorf("the clock was read %d times while no session was due", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		b.must(s1, 12)
		b.must(s2, 24)
		looks.Store(0)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := looks.Load(); n > 0 {
			t.Errorf("the clock was read %d times while no session had changed", n)
		}
	})
}

// With everything disabled, nothing is written before the end.
func TestSnapshotterSwitchedOff(t *testing.T) {
	onBench(t, func(b *bench) {
		p := off
		p.Leave = -1
		stop := b.keep(p)
		b.turns(s1, 300)
		time.Sleep(time.Hour)
		stop()
		b.must(s1)
	})
}

// The targets of forks are kept, regardless of later records. Those of rewinds are not: a head has what they need.
func TestSnapshotterKeepsTargets(t *testing.T) {
	onBench(t, func(b *bench) {
		stop := b.keep(projector.Policy{Records: 2, Keep: 1})
		b.add(s1, created())
		b.turns(s1, 4)
		b.must(s1, 4)
		b.add(s1, &events.SessionRewound{To: 3}) // sixth record
		b.must(s1, 6)
		fork := events.Session("", "fork")
		b.add(fork, &events.SessionCreated{Kind: "conversation", CreatedAt: "2026-01-01T00:00:00Z", Fork: &events.Fork{Session: "s1", Offset: 6}})
		b.must(s1, -6)
		b.turns(s1, 1)                                                                                                                             // 8
		b.add(fork, &events.SessionCreated{Kind: "conversation", CreatedAt: "2026-01-01T00:00:00Z", Fork: &events.Fork{Session: "s1", Offset: 8}}) // rejected
		stop()
		b.must(s1, -6, -8)
		b.must(fork, 9)
		for _, m := range snapshotsIn(b.t, b.store, s1) {
			if want := map[events.Offset]string{6: "fork target", 8: "fork target"}[m.Offset]; m.Kept != want {
				b.t.Errorf("snapshot at %v is kept as %q, want %q", m.Offset, m.Kept, want)
			}
		}
	})
}

// A fork of the head, then a stop: when the same state is written again, its reason remains.
func TestSnapshotterKeepsReasons(t *testing.T) {
	onBench(t, func(b *bench) {
		stop := b.keep(projector.Policy{Keep: 1})
		b.turns(s1, 12)
		b.add(events.Session("", "fork"), &events.SessionCreated{Kind: "conversation", CreatedAt: "2026-01-01T00:00:00Z", Fork: &events.Fork{Session: "s1", Offset: 12}})
		b.must(s1, -12)
		stop()
		b.must(s1, -12)
	})
}

// An impossible rewind has no target.
func TestSnapshotterIgnoresVoidMoves(t *testing.T) {
	onBench(t, func(b *bench) {
		stop := b.keep(off)
		b.turns(s1, 2)
		b.add(s1, &events.SessionRewound{To: 3})
		b.add(s1, &events.SessionRewound{To: 1 << 40})
		b.must(s1)
		stop()
	})
}

// A stopping snapshotter writes as much as it can in time. It also counts records that arrived after its last read,
// including targets of forks.
func TestSnapshotterLeaves(t *testing.T) {
	onBench(t, func(b *bench) {
		k := &projector.Snapshotter{Log: b.log, Snapshots: b.store, Cursor: filepath.Join(b.dir, "cursor")}
		b.turns(s1, 3)
		b.add(s2, &events.SessionCreated{Kind: "conversation", CreatedAt: "2026-01-01T00:00:00Z", Fork: &events.Fork{Session: "s1", Offset: 2}})
		b.turns(s1, 9)
		ctx, cancel := context.WithCancel(b.t.Context())
		cancel()
		if err := k.Run(ctx); err != nil {
			b.t.Fatal(err)
		}
		b.must(s1, -2, 13)
		b.must(s2) // a single record
	})
}

// Each snapshotter continues at the cursor of the last one, with its counts.
func TestSnapshotterResumes(t *testing.T) {
	onBench(t, func(b *bench) {
		p := projector.Policy{Records: 5, Leave: -1} // time for the cursor only
		stop := b.keep(p)
		b.turns(s1, 3)
		stop()
		b.must(s1)
		b.turns(s1, 1)
		stop = b.keep(p)
		b.must(s1)
		b.turns(s1, 1)
		b.must(s1, 5)
		stop()
		stop = b.keep(p)
		b.turns(s1, 4)
		b.must(s1, 5)
		b.turns(s1, 1)
		b.must(s1, 5, 10)
		stop()
		if list := b.warn.all(); len(list) > 0 {
			b.t.Errorf("got warnings %q, want none", list)
		}
	})
}

// A stopping snapshotter ignores sessions that an earlier one left. So a process that shows one of many sessions ends
// at once.
func TestSnapshotterLeavesOthersAlone(t *testing.T) {
	onBench(t, func(b *bench) {
		stop := b.keep(projector.Policy{Leave: -1})
		sub := func(i int) events.Subject { return events.Session("", fmt.Sprint("many-", i)) }
		for i := range 10 {
			b.turns(sub(i), 12)
		}
		stop()
		cursor := filepath.Join(b.dir, "state", "cursor")
		before, err := os.Stat(cursor)
		if err != nil {
			b.t.Fatal(err)
		}
		b.keep(projector.Policy{})()
		after, err := os.Stat(cursor)
		if err != nil || !os.SameFile(before, after) || b.store.puts != 0 {
			b.t.Errorf("without changes: wrote %d snapshots, another cursor file: %v, %v", b.store.puts, !os.SameFile(before, after), err)
		}
		stop = b.keep(projector.Policy{})
		b.turns(sub(7), 1)
		stop()
		b.must(sub(7), 121)
		if b.store.puts != 1 {
			b.t.Errorf("after one change: wrote %d snapshots, want 1", b.store.puts)
		}
		stop = b.keep(projector.Policy{})
		time.Sleep(11 * time.Minute) // of age
		b.must(sub(8), 108)
		stop()
	})
}

// If the cursor is missing, unreadable or of another log, records are counted again. That does not write additional
// snapshots.
func TestSnapshotterWithoutCursor(t *testing.T) {
	for name, c := range map[string]struct {
		cursor string
		warns  int
	}{
		"killed before it wrote one": {"", 0},
		"no JSON":                    {"{", 1},
		"of another log":             {`{"offset":2,"eventId":"another"}`, 1},
		"beyond the end":             {`{"offset":99,"eventId":"another"}`, 1},
		"of an empty log":            {`{"offset":0,"eventId":""}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				b.turns(s1, 20)
				if c.cursor != "" {
					if err := os.MkdirAll(filepath.Join(b.dir, "state"), 0o700); err != nil {
						b.t.Fatal(err)
					}
					if err := os.WriteFile(filepath.Join(b.dir, "state", "cursor"), []byte(c.cursor), 0o600); err != nil {
						b.t.Fatal(err)
					}
				}
				stop := b.keep(projector.Policy{Records: 3})
				b.must(s1, 20)
				b.turns(s1, 2)
				b.must(s1, 20)
				b.turns(s1, 1)
				b.must(s1, 20, 23)
				stop()
				if list := b.warn.all(); len(list) != c.warns {
					b.t.Errorf("got warnings %q, want %d", list, c.warns)
				}
				if b.store.puts != 2 {
					b.t.Errorf("%d snapshots were written, want 2", b.store.puts)
				}
			})
		})
	}
}

// Without a cursor file, a snapshotter starts at the head.
func TestSnapshotterAtHead(t *testing.T) {
	onBench(t, func(b *bench) {
		b.turns(s1, 5)
		k := &projector.Snapshotter{Log: b.log, Snapshots: b.store, Policy: projector.Policy{Records: 2, Leave: -1}}
		ctx, cancel := context.WithCancel(b.t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		synctest.Wait()
		b.turns(s1, 1)
		b.must(s1)
		b.turns(s1, 1)
		b.must(s1, 7)
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	})
}

// A session that cannot be folded is logged once. The others and the cursor continue.
func TestSnapshotterQuarantines(t *testing.T) {
	onBench(t, func(b *bench) {
		b.turns(s1, 1)
		b.mem.Damage(1)
		stop := b.keep(projector.Policy{Records: 2})
		b.turns(s1, 5)
		b.turns(s2, 4)
		b.must(s1)
		b.must(s2, 8, 10)
		b.mem.Damage(11) // the last record: the cursor stays at a recognisable one
		b.turns(s2, 1)
		stop()
		if list := b.warn.all(); len(list) != 1 || !strings.Contains(list[0], "session s1") {
			b.t.Errorf("got warnings %q, want one about session s1", list)
		}
		stop = b.keep(projector.Policy{Records: 2})
		b.turns(s1, 1)
		stop()
		if list := b.warn.all(); len(list) != 2 || strings.Contains(list[1], "cursor") {
			b.t.Errorf("got warnings %q, want two without a lost cursor", list)
		}
	})
}

// If the store cannot be written for a while, the snapshotter logs that and uses the store again later.
func TestSnapshotterOutlivesFullStore(t *testing.T) {
	onBench(t, func(b *bench) {
		stop := b.keep(projector.Policy{Records: 2})
		b.store.err = errors.New("no space left")
		b.turns(s1, 2)
		b.store.err = nil
		b.turns(s1, 2)
		b.must(s1, 4)
		stop()
		if list := b.warn.all(); len(list) != 1 || !strings.Contains(list[0], "no space left") {
			b.t.Errorf("got warnings %q, want one about the full disk", list)
		}
	})
}

// A head that is large because of its ledger is not written for a few records, but at the end.
func TestSnapshotterSparesLargeHeads(t *testing.T) {
	onBench(t, func(b *bench) {
		stop := b.keep(projector.Policy{Records: 2})
		title := events.Raw(`"` + strings.Repeat("x", 300<<10) + `"`)
		b.add(s1, &events.SessionUpdated{Set: events.Fields{{Name: "title", Value: title}}})
		b.turns(s1, 1)
		b.must(s1, 2)
		b.turns(s1, 20)
		b.must(s1, 2)
		b.add(s1, aTurn(strings.Repeat("y", 80<<10)))
		b.must(s1, 2, 23)
		b.turns(s1, 3)
		b.must(s1, 2, 23)
		stop()
		b.must(s1, 2, 23, 26)
	})
}

// The end of the log is an error of the run, and leaves nothing behind.
func TestSnapshotterOfClosedLog(t *testing.T) {
	onBench(t, func(b *bench) {
		k := &projector.Snapshotter{Log: b.log, Snapshots: b.store}
		done := make(chan error, 1)
		go func() { done <- k.Run(b.t.Context()) }()
		synctest.Wait()
		if err := b.log.Close(); err != nil {
			b.t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, log.ErrUnavailable) {
			b.t.Errorf("run: got %v, want ErrUnavailable", err)
		}
	})
}

// Twice the turns write at most twice the bytes. The exceptions are the indexes that each head lists (see
// TestSnapshotsAreLinear), and the record by which the log may be ahead when a head is written. A session of any length
// gets a snapshot.
func TestSnapshotterWritesInProportion(t *testing.T) {
	testkit.OnlyFull(t, "TestSnapshotsAreLinear measures what is written")
	testkit.NotUnderRace(t)
	written := func(turns int) int64 {
		var records testkit.Records
		sub := events.Session("", "large")
		text := events.Raw(`"` + strings.Repeat("x", 8<<10) + `"`)
		for i := range turns {
			e, err := events.New("urn:t", sub, &events.TurnAppended{Entries: []events.Entry{{Thread: "main", Turn: text}}})
			if err != nil {
				t.Fatal(err)
			}
			e.ID = fmt.Sprint(i)
			records = append(records, events.Record{Event: e, Offset: events.Offset(i + 1)})
		}
		st := &metered{Store: &snapshot.Mem{}}
		ctx, stop := context.WithCancel(t.Context())
		k := &projector.Snapshotter{Log: &endless{Records: records, done: stop}, Snapshots: st, Cursor: filepath.Join(t.TempDir(), "cursor"), Policy: projector.Policy{Records: 10}}
		if err := k.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if list := snapshotsIn(t, st, sub); len(list) == 0 || list[len(list)-1].Offset < events.Offset(turns)-200 {
			t.Errorf("session of %d turns: got snapshots %v, want one of its last 200", turns, list)
		}
		return st.written.Load()
	}
	half, whole := written(2000), written(4000)
	t.Logf("%d bytes for 2000 turns, %d for 4000: %.3f times", half, whole, float64(whole)/float64(half))
	if whole > 2*half+half/10 {
		t.Errorf("wrote %d bytes for 2000 turns and %d for 4000, want twice as many", half, whole)
	}
}

// endless is a log that grows while it is followed: each record appears when the one before it was read. After the last
// record it calls done and waits.
type endless struct {
	testkit.Records
	there atomic.Uint64 // offset of the last readable record
	done  func()
}

func (l *endless) Follow(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for rec, err := range l.Records.Read(ctx, r) {
			l.there.Store(uint64(rec.Offset))
			if !yield(rec, err) {
				return
			}
		}
		l.done()
		<-ctx.Done()
	}
}

func (l *endless) Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error] {
	there := events.Offset(l.there.Load())
	if r.Upto == 0 || r.Upto > there {
		r.Upto = there
	}
	if r.After >= r.Upto {
		return func(func(events.Record, error) bool) {}
	}
	return l.Records[r.After:r.Upto].Read(ctx, r) // one session, from offset 1 on
}

func (l *endless) Record(_ context.Context, at events.Offset) (events.Record, error) {
	return l.Records[at-1], nil
}

func (l *endless) Head(context.Context) (events.Offset, error) {
	return events.Offset(l.there.Load()), nil
}
