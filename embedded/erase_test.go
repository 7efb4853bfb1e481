package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/erasure"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
)

// erasable is a store with a word in each record.
type erasable struct {
	dir     string
	s       *embedded.Server
	records []events.Record
}

// word returns the word in the record with an id.
func word(id string) string { return "canary-" + id + "." }

// newErasable returns a store of three segments, in which the records of five sessions alternate.
func newErasable(t *testing.T) *erasable { return newErasableOf(t, 3) }

// newErasableOf returns a store of so many segments, each with 40 records.
func newErasableOf(t *testing.T, n int) *erasable {
	t.Helper()
	e := &erasable{dir: filepath.Join(t.TempDir(), "store")}
	e.s = mustStart(t, smallSegments(e.dir))
	last := n
	for n := 1; n <= last; n++ {
		for i := range 40 {
			id := fmt.Sprintf("%d%02d", n, i)
			mustAppend(t, e.s.Log(), events.Session("", fmt.Sprint("s", i%5)), turn(id, word(id)+strings.Repeat("x", 800)))
		}
		if n < last {
			eventually(t, func() error {
				if have := len(segments(t, e.dir)); have <= n {
					return fmt.Errorf("waiting for segment %d: there are %d", n+1, have)
				}
				return nil
			})
		}
	}
	mustSettle(t, e.dir)
	e.read(t)
	return e
}

func (e *erasable) read(t *testing.T) {
	t.Helper()
	e.records = nil
	for rec, err := range e.s.Log().Read(t.Context(), events.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		e.records = append(e.records, rec)
	}
}

// plan returns a plan for some of the store's records.
func (e *erasable) plan(receipt string, goes func(i int, rec events.Record) bool) erasure.Plan {
	p := erasure.Plan{Receipt: receipt, Namespace: "default", By: "anna", Scope: "test", At: time.Unix(1_800_000_000, 0).UTC()}
	for i, rec := range e.records {
		if !goes(i, rec) {
			continue
		}
		p.Records = append(p.Records, erasure.Record{Offset: rec.Offset, Subject: rec.Subject, Bytes: len(rec.Data)})
		if !slices.Contains(p.Subjects, rec.Subject) {
			p.Subjects = append(p.Subjects, rec.Subject)
		}
	}
	return p
}

func noFold(context.Context, []events.Subject) error { return nil }

// wordsIn returns which words of ids the files of a folder have.
func wordsIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for rest := text; ; {
			_, after, ok := bytes.Cut(rest, []byte("canary-"))
			if !ok {
				return err
			}
			id, _, _ := bytes.Cut(after[:min(len(after), 8)], []byte("."))
			found[string(id)], rest = true, after
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// check compares the store with the plan: what went is in no file, and everything else is as before (L-4, L-5).
func (e *erasable) check(t *testing.T, p erasure.Plan) {
	t.Helper()
	words := wordsIn(t, e.dir)
	before, holes := e.records, e.s.Log().Holes()
	e.read(t)
	records := e.records
	e.records = before
	if len(records) < len(before) {
		t.Fatalf("the store has %d records, want %d: lost %v", len(records), len(before), holes)
	}
	for i, was := range before {
		have := records[i]
		_, goes := p.Find(was.Offset)
		if goes == words[was.ID] {
			t.Errorf("@%d of the plan: %v, its word is in a file: %v", was.Offset, goes, words[was.ID])
		}
		if have.Offset != was.Offset || have.ID != was.ID || have.Subject != was.Subject || !have.Recorded.Equal(was.Recorded) || have.Type != was.Type {
			t.Errorf("@%d is %+v, was %+v", was.Offset, have, was)
		}
		if goes != (have.Erased() == p.Receipt) || !goes && !have.Equal(was.Event) {
			t.Errorf("@%d of the plan: %v, got %v %s", was.Offset, goes, have.Extensions, have.Data)
		}
	}
	if erasure.Pending(e.dir) {
		t.Error("the plan is still in the store")
	}
	receipts := 0
	for _, rec := range records[len(before):] {
		if rec.Subject == p.Document() {
			receipts++
		}
	}
	if receipts != 1 {
		t.Errorf("there are %d receipts", receipts)
	}
}

// again closes the store and opens it, as it is or as after a kill.
func (e *erasable) again(t *testing.T, killed bool) {
	t.Helper()
	if killed {
		next := filepath.Join(t.TempDir(), "store")
		copyStore(t, next, e.dir)
		mustClose(t, e.s)
		e.dir = next
		_ = os.Remove(filepath.Join(next, "owner.json"))
	} else {
		mustClose(t, e.s)
	}
	e.s = mustStart(t, smallSegments(e.dir))
}

func of(sessions ...string) func(int, events.Record) bool {
	return func(_ int, rec events.Record) bool { return slices.Contains(sessions, rec.Subject.ID) }
}

func mustErase(t *testing.T, e *erasable, p erasure.Plan) {
	t.Helper()
	if err := embedded.Erase(t.Context(), e.s, p, noFold); err != nil {
		t.Fatal(err)
	}
}

func TestErase(t *testing.T) {
	t.Parallel()
	t.Run("X-12 block over several sessions, sealed, active and newest record", func(t *testing.T) {
		e := newErasable(t)
		last := len(e.records) - 1
		p := e.plan("r1", func(i int, rec events.Record) bool { return rec.Subject.ID == "s2" || i == last })
		mustErase(t, e, p)
		e.check(t, p)
		repeated := p
		repeated.Receipt = "r9" // another receipt for the same records
		mustErase(t, e, repeated)
		e.check(t, p)
		mustAppend(t, e.s.Log(), events.Session("", "s2"), turn("after", "after"))
		mustAppend(t, e.s.Log(), events.Session("", "s2"), turn("202", "another text")) // the identity of an erased event
		e.again(t, false)
		e.check(t, p)
		e.again(t, true)
		e.check(t, p)
		next := e.plan("r2", of("s3"))
		mustErase(t, e, next)
		if words := wordsIn(t, e.dir); words["203"] || words["202"] || !words["204"] {
			t.Errorf("after the second erasure: %v", words)
		}
		mustErase(t, e, next)
	})
	t.Run("X-12 damaged block, set-aside block", func(t *testing.T) {
		e := newErasable(t)
		mustClose(t, e.s)
		path, data, records := firstBlock(t, e.dir)
		hit := records[7] // of s2
		data[hit.End-40] ^= 6
		data[hit.End-90] ^= 9
		rewriteInPlace(t, path, data)
		aside := filepath.Join(e.dir, "damaged", "TALLY_1-1.blk")
		if err := os.WriteFile(aside, data, 0o600); err != nil {
			t.Fatal(err)
		}
		e.s = mustStart(t, smallSegments(e.dir))
		lost := events.Offset(hit.Seq)
		if _, err := e.s.Log().Record(t.Context(), lost); err == nil {
			t.Fatal("the record is not damaged")
		}
		p := e.plan("r1", of("s2"))
		if _, ok := p.Find(lost); !ok {
			t.Fatal("the damaged record is not of the plan")
		}
		mustErase(t, e, p)
		words := wordsIn(t, e.dir)
		for _, rec := range e.records {
			if words[rec.ID] == (rec.Subject.ID == "s2") {
				t.Errorf("%s of %s: found %v", rec.ID, rec.Subject, words[rec.ID])
			}
		}
		kept := mustReadFile(t, aside)
		if sound, gaps := natsfile.Scan("TALLY_1", 1, kept); len(sound) != len(records)-1 || len(gaps) != 1 {
			t.Errorf("the copy has %d records, gaps %v", len(sound), gaps)
		}
		for range 2 {
			for _, rec := range e.records {
				have, err := e.s.Log().Record(t.Context(), rec.Offset)
				if (err != nil) != (rec.Offset == lost) || err == nil && (have.Erased() != "") != (rec.Subject.ID == "s2") {
					t.Errorf("@%d of %s: %v, %v", rec.Offset, rec.Subject, have.Extensions, err)
				}
			}
			e.again(t, false)
		}
	})
	t.Run("a single turn and a redo record", func(t *testing.T) {
		e := newErasable(t)
		two := events.Event{ID: "901", Source: "test://embedded", Type: events.TypeTurnAppended, Data: []byte(`{"entries":[{"thread":"main","turn":"canary-901."},{"thread":"main","turn":"canary-902."}]}`)}
		acks, err := e.s.Log().AppendAll(t.Context(), log.Part{Subject: events.Session("", "a"), Expect: log.Any, Events: []events.Event{two}},
			log.Part{Subject: events.Session("", "b"), Expect: log.Any, Events: []events.Event{turn("903", word("903"))}})
		if err != nil {
			t.Fatal(err)
		}
		unit, err := e.s.Log().Record(t.Context(), acks[0].First-1)
		if err != nil || unit.Type != events.TypeUnitAppended {
			t.Fatalf("%+v, %v", unit, err)
		}
		a := events.Session("", "a")
		p := erasure.Plan{Receipt: "r1", Namespace: "default", At: time.Now(), Subjects: []events.Subject{a}, Records: []erasure.Record{
			{Offset: unit.Offset, Subject: unit.Subject, Copies: []erasure.Copy{{Index: 0, Turns: []int{1}}}},
			{Offset: acks[0].First, Subject: a, Turns: []int{1}},
		}}
		mustErase(t, e, p)
		if words := wordsIn(t, e.dir); !words["901"] || words["902"] || !words["903"] {
			t.Errorf("one turn is erased: found %v", words)
		}
		p.Receipt, p.Records[0].Copies, p.Records[1].Turns, p.Records = "r2", nil, nil, p.Records[:1]
		mustErase(t, e, p)
		if n := strings.Count(string(mustReadAll(t, e.dir)), word("903")); n != 1 {
			t.Errorf("the event of the other session occurs %d times, want once, without the redo record", n)
		}
		e.again(t, true)
		if words := wordsIn(t, e.dir); !words["901"] || words["902"] || !words["903"] {
			t.Errorf("opened again: found %v", words)
		}
	})
}

// A process that ends before any step leaves what the next owner completes, and nothing is in its way (L-4).
func TestEraseCut(t *testing.T) {
	errCut := errors.New("the process ends")
	e := newErasable(t)
	p := e.plan("r1", of("s1", "s4"))
	mustClose(t, e.s)
	began := e.dir
	for _, cut := range []string{"begun", "block block", "folds", "receipt", "end"} {
		e.dir = filepath.Join(t.TempDir(), "store")
		copyStore(t, e.dir, began)
		e.s = mustStart(t, smallSegments(e.dir))
		var steps []string
		embedded.SetEraseStep(t, func(name string) error {
			if steps = append(steps, name); strings.HasSuffix(strings.Join(steps, " "), cut) {
				return errCut
			}
			return nil
		})
		folds := 0
		fold := func(context.Context, []events.Subject) error { folds++; return nil }
		if err := embedded.Erase(t.Context(), e.s, p, fold); !errors.Is(err, errCut) {
			t.Fatalf("before %s: %v after %v", cut, err, steps)
		}
		embedded.SetEraseStep(t, func(string) error { return nil })
		if !erasure.Pending(e.dir) {
			t.Errorf("before %s: the plan is gone", cut)
		}
		e.again(t, true)
		if words := wordsIn(t, e.dir); words["101"] || words["304"] || !words["102"] {
			t.Errorf("before %s: the next owner found %v", cut, words)
		}
		if err := embedded.FinishErasure(t.Context(), e.s); err != nil {
			t.Fatal(err)
		}
		e.check(t, p)
		mustClose(t, e.s)
	}
}

// What cannot be erased is refused, and nothing is changed.
func TestEraseRefuses(t *testing.T) {
	e := newErasable(t)
	p := e.plan("r1", of("s1"))
	before := string(mustReadAll(t, e.dir))
	refused := func(what string, p erasure.Plan, want error) {
		t.Helper()
		err := embedded.Erase(t.Context(), e.s, p, noFold)
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
		if erasure.Pending(e.dir) || string(mustReadAll(t, e.dir)) != before {
			t.Errorf("%s: something changed", what)
		}
	}
	t.Run("X-19 full disk", func(t *testing.T) {
		embedded.SetReserve(e.s, 1<<62)
		refused("no room", p, log.ErrFull)
		embedded.SetReserve(e.s, 1)
	})
	t.Run("a plan of another log", func(t *testing.T) {
		other := e.plan("r1", of("s1"))
		other.Records[0].Subject = events.Session("", "s2")
		other.Subjects = append(other.Subjects, events.Session("", "s2"))
		refused("another subject", other, log.ErrConflict)
		other = p
		other.Receipt = "R"
		refused("no receipt", other, nil)
		other = e.plan("r1", of("s1"))
		other.Records[0].Turns = []int{7}
		refused("no such turn", other, nil)
	})
	t.Run("X-19 unknown nats-server version", func(t *testing.T) {
		mustClose(t, e.s)
		embedded.SetServerVersion(t, "2.99.0")
		e.s = mustStart(t, smallSegments(e.dir))
		refused("another server", p, log.ErrNewer)
	})
}

// Appends wait for a portion of the blocks, and none fails.
func TestEraseBesideAppends(t *testing.T) {
	t.Run("X-20 appends of 64 producers", func(t *testing.T) { eraseBesideAppends(t, newErasable(t)) })
	t.Run("X-20 many blocks", func(t *testing.T) {
		testkit.OnlyFull(t, "the other subtest has three blocks")
		n := 40
		if testkit.Soak() {
			n = 300
		}
		eraseBesideAppends(t, newErasableOf(t, n))
	})
}

func eraseBesideAppends(t *testing.T, e *erasable) {
	t.Helper()
	var producers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	var longest atomic.Int64
	for n := range 64 {
		producers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				began := time.Now()
				if _, err := e.s.Log().Append(t.Context(), events.Session("", fmt.Sprint("p", n)), log.Any, turn(fmt.Sprintf("p%d-%d", n, i), "x")); err != nil {
					t.Errorf("producer %d: %v", n, err)
					return
				}
				if took := int64(time.Since(began)); took > longest.Load() {
					longest.Store(took)
				}
			}
		})
	}
	p := e.plan("r1", of("s0", "s3"))
	mustErase(t, e, p)
	stop()
	producers.Wait()
	t.Logf("%d records were erased, the longest append took %v", len(p.Records), time.Duration(longest.Load()).Round(time.Millisecond))
	e.check(t, p)
}

// A process of the same user asks the owner.
func TestEraseAttached(t *testing.T) {
	t.Run("X-19 attached", func(t *testing.T) {
		dir := t.TempDir()
		owner, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: dir, Store: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer owner.Close()
		attached, err := embedded.Attach(t.Context(), embedded.ServerOptions{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer attached.Close()
		s, other := events.Session("", "s"), events.Session("", "other")
		ack := mustAppend(t, owner, s, turn("1", word("1")))
		last := mustAppend(t, owner, s, turn("2", word("2"))).Last
		for _, view := range []string{"catalog", "search"} {
			if err := owner.Wait(t.Context(), view, last); err != nil {
				t.Fatal(err)
			}
		}
		p := erasure.Plan{Receipt: "r1", Namespace: "default", At: time.Now().UTC(), Subjects: []events.Subject{s, other}, Records: []erasure.Record{{Offset: ack.First, Subject: s}}}
		if err := embedded.EraseThrough(t.Context(), attached, dir, p); err != nil {
			t.Fatal(err)
		}
		p.Receipt, p.Records[0] = "r2", erasure.Record{Offset: ack.First + 1, Subject: other}
		if err := embedded.EraseThrough(t.Context(), attached, dir, p); !errors.Is(err, log.ErrConflict) {
			t.Errorf("a wrong plan: %v", err)
		}
		if words := wordsIn(t, dir); words["1"] || !words["2"] {
			t.Errorf("found %v", words)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "eras*")); len(left) > 0 || err != nil {
			t.Errorf("left are %v, %v", left, err)
		}
	})
	t.Run("X-19 serve --listen user", func(t *testing.T) {
		if embedded.MayErase("guest") || !embedded.MayErase("attached") {
			t.Error("the services of a user are wrong")
		}
	})
}

// mustReadAll returns the content of all blocks.
func mustReadAll(t *testing.T, dir string) (all []byte) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*", "msgs", "*.blk"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		all = append(all, mustReadFile(t, path)...)
	}
	return all
}
