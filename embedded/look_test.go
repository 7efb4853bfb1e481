package embedded_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/nats/natsfile"
	"github.com/tallylog/tally/internal/storedir"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

// lookedAt is a log with or without a server.
type lookedAt interface {
	Read(ctx context.Context, r events.Range) iter.Seq2[events.Record, error]
	ReadBack(ctx context.Context, r events.Range) iter.Seq2[events.Record, error]
	Record(ctx context.Context, at events.Offset) (events.Record, error)
	Last(ctx context.Context, sub events.Subject) (events.Record, error)
	First(ctx context.Context, sub events.Subject) (events.Offset, error)
	Head(ctx context.Context) (events.Offset, error)
	Durable(ctx context.Context) (events.Offset, error)
}

// lookStore is a store of several segments that was closed in order.
type lookStore struct {
	dir      string
	subjects []events.Subject
	ids      []string         // by offset - 1
	of       []events.Subject // by offset - 1
}

// newLookStore fills a store with random appends to random subjects.
func newLookStore(t *testing.T, random *rand.Rand) *lookStore {
	t.Helper()
	ls := &lookStore{dir: t.TempDir()}
	for n := range 1 + random.IntN(12) {
		sub := events.Session([]string{"", "other"}[random.IntN(2)], fmt.Sprint("s", n))
		if random.IntN(3) == 0 {
			sub = events.Document("", "note", fmt.Sprint("d", n))
		}
		ls.subjects = append(ls.subjects, sub)
	}
	s := mustStart(t, smallSegments(ls.dir))
	made := 0
	event := func(sub events.Subject) events.Event {
		made++
		return ls.event(sub, fmt.Sprint("e", made), random.IntN(2000))
	}
	for range 40 + random.IntN(80) {
		sub := ls.subjects[random.IntN(len(ls.subjects))]
		switch other := ls.subjects[random.IntN(len(ls.subjects))]; {
		case random.IntN(4) == 0 && other != sub:
			parts := []log.Part{{Subject: sub, Events: []events.Event{event(sub)}}, {Subject: other, Events: []events.Event{event(other)}}}
			if _, err := s.Log().AppendAll(t.Context(), parts...); err != nil {
				t.Fatal(err)
			}
		case random.IntN(4) == 0:
			mustAppend(t, s.Log(), sub, event(sub), event(sub), event(sub))
		default:
			mustAppend(t, s.Log(), sub, event(sub))
		}
	}
	for rec, err := range s.Log().Read(t.Context(), events.Range{}) {
		if err != nil || int(rec.Offset) != len(ls.ids)+1 {
			t.Fatalf("record %v: %v", rec.Offset, err)
		}
		ls.ids, ls.of = append(ls.ids, rec.ID), append(ls.of, rec.Subject)
	}
	mustSettle(t, ls.dir)
	mustClose(t, s)
	return ls
}

// Snapshots that an owner writes after a look was opened stay, and the look does not use them.
func TestLookLeavesLaterSnapshots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func(o embedded.Options) *tally.Store {
		o.ConfigDir, o.Store, o.Policy = dir, dir, projector.Policy{Records: 2, Keep: -1}
		st, err := embedded.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		return st
	}
	add := func(st *tally.Store, n int) {
		for i := range n {
			if _, err := st.Session("s").AppendTurns(t.Context(), "main", json.RawMessage(fmt.Sprintf(`{"role":"user","content":"%d %d"}`, n, i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	written := func() []string {
		files, err := filepath.Glob(filepath.Join(dir, "snapshots", "default", "session", "s", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	owner := open(embedded.Options{})
	add(owner, 30)
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	look := open(embedded.Options{Look: true})
	before := len(written())
	owner = open(embedded.Options{Own: true})
	add(owner, 40)
	eventually(t, func() error {
		if len(written()) <= before {
			return errors.New("the owner wrote no snapshot")
		}
		return nil
	})
	files := written()
	o, err := look.Session("s").Outline(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := o.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(s.Threads.Turns("main")); n != 30 {
		t.Errorf("got %d turns, want 30", n)
	}
	for _, f := range files {
		if _, err := os.Stat(f); err != nil {
			t.Error(err)
		}
	}
}

// event returns an event of a size for a subject.
func (ls *lookStore) event(sub events.Subject, id string, size int) events.Event {
	e := turn(id, strings.Repeat("x", size))
	if sub.Kind != events.KindSession {
		e.Type = "com.example.noted"
	}
	return e
}

// answers asks a log about its subjects, in a way that depends on the seed alone.
func (ls *lookStore) answers(t *testing.T, l lookedAt, seed uint64) (list []string) {
	random := rand.New(rand.NewPCG(seed, 7))
	ctx := log.NoteDamage(t.Context(), nil)
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	text := func(r events.Record) string {
		return fmt.Sprint(r.Offset, r.Subject, r.Source, r.ID, r.Type, r.Time, r.Recorded, r.Extensions, string(r.Data))
	}
	all := func(what string, r events.Range, records iter.Seq2[events.Record, error]) {
		say("%s %+v", what, r)
		for rec, err := range records {
			say("  %s %v", text(rec), err)
		}
	}
	at := func() events.Offset { return events.Offset(random.IntN(len(ls.ids) + 3)) }
	ranges := []events.Range{{}, {Kind: events.KindSession}, {Namespace: "other"}, {Namespace: "other", After: at()}}
	for _, sub := range append(ls.subjects, events.Session("", "missing")) {
		last, err := l.Last(ctx, sub)
		say("last of %s: %s %v", sub, text(last), err)
		first, err := l.First(ctx, sub)
		say("first of %s: %v %v", sub, first, err)
		ranges = append(ranges, events.Range{Subject: sub}, events.Range{Subject: sub, After: at(), Upto: at(), Limit: random.IntN(4)})
	}
	for _, r := range ranges {
		all("read", r, l.Read(ctx, r))
		all("read back", r, l.ReadBack(ctx, r))
	}
	for range 20 {
		at := at()
		rec, err := l.Record(ctx, at)
		say("record %v: %s %v", at, text(rec), err)
	}
	head, err := l.Head(ctx)
	durable, err2 := l.Durable(ctx)
	say("head %v %v, durable %v %v", head, err, durable, err2)
	return list
}

// mustLook opens a store for looking, and reports whether it did without a server.
func mustLook(t *testing.T, dir string) (st *tally.Store, without bool) {
	t.Helper()
	st, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: dir, Store: dir, Look: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	pid, _ := storedir.OwnerOf(dir)
	return st, pid == 0
}

// Without a server, a store answers as with one, also while an owner appends.
func TestLook(t *testing.T) {
	t.Parallel()
	first := testkit.Seed(t)
	for n := range testkit.Times(4) {
		seed := first + uint64(n)
		random := rand.New(rand.NewPCG(seed, 0))
		ls := newLookStore(t, random)
		before, sub := timesOf(t, ls.dir), ls.subjects[0]
		first, without := mustLook(t, ls.dir)
		second, both := mustLook(t, ls.dir)
		if !without || !both {
			t.Fatal("a store at rest was opened with its server")
		}
		got := ls.answers(t, first.Log, seed)
		if again := ls.answers(t, second.Log, seed); !slices.Equal(again, got) {
			t.Error("a second look gives other answers")
		}
		if _, err := first.Log.Append(t.Context(), sub, log.Any, ls.event(sub, "new", 1)); !errors.Is(err, log.ErrUnavailable) {
			t.Errorf("append: got %v, want ErrUnavailable", err)
		}
		if after := timesOf(t, ls.dir); !slices.Equal(after, before) {
			t.Errorf("looking changed files:\n%v\n%v", before, after)
		}
		s := mustStart(t, smallSegments(ls.dir))
		if want := ls.answers(t, s.Log(), seed); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %s", seed, firstDifference(got, want))
		}
		for n := range 80 {
			mustAppend(t, s.Log(), sub, ls.event(sub, fmt.Sprint("late", n), 900))
		}
		if later := ls.answers(t, first.Log, seed); !slices.Equal(later, got) {
			t.Errorf("while an owner appends: %s", firstDifference(later, got))
		}
		mustClose(t, s)
		if err := errors.Join(first.Close(), second.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A look takes no answer from a view that is behind the log, even by one record.
func TestLookAtALateView(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st, err := embedded.Open(t.Context(), embedded.Options{ConfigDir: dir, Store: dir})
	if err != nil {
		t.Fatal(err)
	}
	create := func(by appender, id string) {
		t.Helper()
		sub := st.Session(id).Subject()
		e, err := events.New("urn:t", sub, &events.SessionCreated{Kind: "chat", CreatedAt: "2026-01-02T03:04:05Z"})
		if err == nil {
			_, err = by.Append(t.Context(), sub, log.Any, e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	create(st.Log, "a")
	if shown, err := st.Shows(t.Context(), "catalog"); !shown || err != nil {
		t.Fatalf("the view is shown: %v, %v", shown, err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	s := mustStart(t, embedded.ServerOptions{Dir: dir}) // keeps no views
	create(s.Log(), "b")
	mustClose(t, s)
	look, without := mustLook(t, dir)
	list, err := look.Sessions(t.Context(), "chat")
	if !errors.Is(err, log.ErrNeedsServer) || !without {
		t.Errorf("got %d sessions, %v, want ErrNeedsServer; without a server: %v", len(list), err, without)
	}
}

// timesOf lists the files of a store with their times.
func timesOf(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		list = append(list, fmt.Sprint(path, info.Size(), info.ModTime()))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func firstDifference(got, want []string) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("line %d:\ngot  %.300s\nwant %.300s", i, got[i], want[i])
		}
	}
	return fmt.Sprintf("got %d lines, want %d", len(got), len(want))
}

// A store that is in use, was killed or is damaged is opened with its server.
func TestLookOpensTheServer(t *testing.T) {
	t.Parallel()
	ls := newLookStore(t, rand.New(rand.NewPCG(1, 2)))
	names := segments(t, ls.dir)
	slices.SortFunc(names, func(a, b string) int {
		return storedir.StreamNumber(filepath.Base(a)) - storedir.StreamNumber(filepath.Base(b))
	})
	newest, older := names[len(names)-1], names[len(names)-2]
	for name, change := range map[string]func(t *testing.T, dir string){
		"at rest": func(*testing.T, string) {},
		"open to other users": func(t *testing.T, dir string) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"killed": func(t *testing.T, dir string) {
			m, err := storedir.LoadMark(dir)
			if m.Clean = false; errors.Join(err, storedir.WriteMark(dir, m)) != nil {
				t.Fatal(err)
			}
		},
		"a damaged block":              func(t *testing.T, dir string) { flipIn(t, blockIn(t, dir, newest)) },
		"a damaged block of a segment": func(t *testing.T, dir string) { flipIn(t, blockIn(t, dir, older)) },
		"no index": func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "segments", filepath.Base(older)+".index")); err != nil {
				t.Fatal(err)
			}
		},
		"lost records": func(t *testing.T, dir string) {
			if err := storedir.AddHoles(dir, []log.Hole{{Offset: 2}}); err != nil {
				t.Fatal(err)
			}
		},
		"a higher watermark": func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, storedir.WatermarkFile), storedir.WatermarkText(events.Offset(len(ls.ids)+1)), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if !slices.Contains([]string{"at rest", "killed", "a damaged block of a segment"}, name) {
				testkit.OnlyFull(t, "the others have most of the checks")
			}
			dir := filepath.Join(t.TempDir(), "store")
			copyStore(t, dir, ls.dir)
			if err := os.Chmod(dir, 0o700); err != nil { // as its owner left it
				t.Fatal(err)
			}
			change(t, dir)
			st, without := mustLook(t, dir)
			if without != (name == "at rest") {
				t.Errorf("it was opened without its server: %t", without)
			}
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// blockIn returns a block of a stream in a copy of a store.
func blockIn(t *testing.T, dir, stream string) string {
	t.Helper()
	msgs := natsfile.Messages(dir, filepath.Base(stream))
	numbers, err := natsfile.Numbers(msgs)
	if err != nil {
		t.Fatal(err)
	}
	return natsfile.Path(msgs, numbers[len(numbers)-1])
}

// flipIn flips a bit in the middle of a file.
func flipIn(t *testing.T, path string) {
	t.Helper()
	data := mustReadFile(t, path)
	data[len(data)/2] ^= 4
	rewriteInPlace(t, path, data)
}

// Damage that was not found when the files were opened is named by each read that it concerns, and by no other.
func TestLookNamesDamage(t *testing.T) {
	t.Parallel()
	random := testkit.Random(t)
	ls := newLookStore(t, random)
	streams, err := storedir.StreamFolders(ls.dir)
	if err != nil {
		t.Fatal(err)
	}
	for range testkit.Times(12) {
		dir := filepath.Join(t.TempDir(), "store")
		copyStore(t, dir, ls.dir)
		lost := ls.damage(t, random, dir, streams[random.IntN(len(streams)-1)])
		l, err := log.OpenFiles(t.Context(), streams, events.Offset(len(ls.ids)), 0, log.Config{Host: log.Host{
			Segments: log.Segments{Dir: storedir.SegmentsDir(dir), Blocks: natsfile.Streams(dir)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		for _, sub := range append(ls.subjects, events.Subject{}) {
			ls.checkNamed(t, l, sub, lost)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// damage damages some bytes of a stream, and returns which records cannot be read any more.
func (ls *lookStore) damage(t *testing.T, random *rand.Rand, dir, stream string) map[events.Offset]bool {
	t.Helper()
	numbers, err := natsfile.Numbers(natsfile.Messages(dir, stream))
	if err != nil {
		t.Fatal(err)
	}
	number := numbers[random.IntN(len(numbers))]
	path := natsfile.Path(natsfile.Messages(dir, stream), number)
	data := mustReadFile(t, path)
	lost := make(map[events.Offset]bool)
	records, _ := natsfile.Scan(stream, number, data)
	for _, r := range records {
		lost[events.Offset(r.Seq)] = true
	}
	if at := random.IntN(len(data)); random.IntN(4) == 0 {
		data = data[:at]
	} else {
		for i := range 1 + random.IntN(40) {
			data[min(at+i, len(data)-1)] ^= byte(1 + random.IntN(255))
		}
	}
	rewriteInPlace(t, path, data)
	records, _ = natsfile.Scan(stream, number, data)
	for _, r := range records {
		delete(lost, events.Offset(r.Seq))
	}
	return lost
}

// checkNamed reads a subject, or everything, forwards and backwards.
func (ls *lookStore) checkNamed(t *testing.T, l *log.Log, sub events.Subject, lost map[events.Offset]bool) {
	t.Helper()
	ctx := log.NoteDamage(t.Context(), nil)
	concerned, last := false, events.Offset(0)
	for i, of := range ls.of {
		if at := events.Offset(i + 1); of == sub || sub == (events.Subject{}) {
			last = at
			concerned = concerned || lost[at]
		}
	}
	for way, read := range map[string]func(context.Context, events.Range) iter.Seq2[events.Record, error]{"read": l.Read, "read back": l.ReadBack} {
		have, named := make(map[events.Offset]string), make(map[events.Offset]bool)
		for rec, err := range read(ctx, events.Range{Subject: sub}) {
			if damage, is := errors.AsType[*events.DamageError](err); is {
				named[damage.Offset] = true
				if !lost[damage.Offset] || !concerned {
					t.Errorf("%s of %v: %v is called damaged", way, sub, damage.Offset)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			have[rec.Offset] = rec.ID
		}
		for i, of := range ls.of {
			at := events.Offset(i + 1)
			if of != sub && sub != (events.Subject{}) {
				continue
			}
			if lost[at] && !named[at] || !lost[at] && have[at] != ls.ids[i] {
				t.Errorf("%s of %v: record %v is missing: damaged %t, named %t", way, sub, at, lost[at], named[at])
			}
		}
	}
	if sub == (events.Subject{}) || last == 0 {
		return
	}
	if rec, err := l.Last(ctx, sub); lost[last] != events.IsDamage(err) || err == nil && rec.Offset != last {
		t.Errorf("last of %v: got %v, %v; want %v, damaged %t", sub, rec.Offset, err, last, lost[last])
	}
}
