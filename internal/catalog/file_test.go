package catalog

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// putAll applies records to a catalog and commits them. It returns the first error.
func putAll(t testing.TB, c *Catalog, records testkit.Records) error {
	t.Helper()
	if err := applyAll(t, c, records); err != nil {
		return err
	}
	return commitAll(t, c, records)
}

func applyAll(t testing.TB, c *Catalog, records testkit.Records) error {
	t.Helper()
	for _, rec := range records {
		if err := c.Apply(t.Context(), projector.Decode(rec)); err != nil {
			return err
		}
	}
	return nil
}

func commitAll(t testing.TB, c *Catalog, records testkit.Records) error {
	t.Helper()
	last := records[len(records)-1]
	return c.Commit(t.Context(), projector.Cursor{Offset: last.Offset, EventID: last.ID, Recorded: time.Unix(1, 0)})
}

func beginAt(t testing.TB, c *Catalog, want events.Offset) {
	t.Helper()
	cursor, _, err := c.Begin(t.Context())
	must(t, err)
	if cursor.Offset != want {
		t.Fatalf("the view is at %v, want %v", cursor.Offset, want)
	}
}

// Of two writers of a view, one gets an error at its next commit and begins again: nothing is counted twice.
func TestTwoWriters(t *testing.T) {
	dir, sub := t.TempDir(), events.Session("", "s")
	records := turnsOf(t, sub, "a", "b", "c")
	one, two := New(dir, openingOf, nullLogger), New(dir, openingOf, nullLogger)
	defer one.Close()
	defer two.Close()
	beginAt(t, one, 0)
	beginAt(t, two, 0)
	must(t, putAll(t, one, records[:2]))
	if err := putAll(t, two, records[:1]); !errors.Is(err, projector.ErrMoved) {
		t.Fatalf("the commit of the second writer: %v", err)
	}
	beginAt(t, two, 2)
	must(t, putAll(t, two, records[2:]))
	if err := putAll(t, one, records[2:]); !errors.Is(err, projector.ErrMoved) {
		t.Fatalf("the commit of the first writer: %v", err)
	}
	mustHaveTurns(t, dir, 3)
}

// Two writers fold a session that is not in the file yet, then both commit.
func TestTwoWritersOfOneNewSession(t *testing.T) {
	dir, sub := t.TempDir(), events.Session("", "s")
	records := turnsOf(t, sub, "a", "b")
	one, two := New(dir, openingOf, nullLogger), New(dir, openingOf, nullLogger)
	defer one.Close()
	defer two.Close()
	for _, c := range []*Catalog{one, two} {
		beginAt(t, c, 0)
		must(t, applyAll(t, c, records))
	}
	must(t, commitAll(t, one, records))
	if err := commitAll(t, two, records); !errors.Is(err, projector.ErrMoved) {
		t.Fatalf("the commit of the second writer: %v", err)
	}
	beginAt(t, two, 2)
	mustHaveTurns(t, dir, 2)
}

func mustHaveTurns(t *testing.T, dir string, want int) {
	t.Helper()
	r, err := Open(t.Context(), dir)
	must(t, err)
	defer r.Close()
	s, found, err := r.Session(t.Context(), "default", "s")
	must(t, err)
	if !found || s.Turns != want {
		t.Errorf("the session has %d turns, want %d", s.Turns, want)
	}
}

// A writer whose file was removed or replaced notices that, and begins again.
func TestFileIsReplaced(t *testing.T) {
	dir, sub := t.TempDir(), events.Session("", "s")
	records := turnsOf(t, sub, "a", "b")
	c := New(dir, openingOf, nullLogger)
	defer c.Close()
	beginAt(t, c, 0)
	must(t, putAll(t, c, records[:1]))
	must(t, Remove(filepath.Join(dir, FileName)))
	if err := putAll(t, c, records[1:]); !errors.Is(err, projector.ErrMoved) {
		t.Fatalf("commit to a file that was removed: %v", err)
	}
	beginAt(t, c, 0)
	must(t, putAll(t, c, records))
	mustHaveTurns(t, dir, 2)
}

// Readers see the old edition until the new one replaces it. The writer of the old one continues from the new one.
func TestReplace(t *testing.T) {
	dir, sub := t.TempDir(), events.Session("", "s")
	records := turnsOf(t, sub, "a", "b", "c")
	live, fresh := New(dir, openingOf, nullLogger), Views(openingOf, textOf)[0].Next(dir, nullLogger).(*Catalog)
	defer live.Close()
	defer fresh.Close()
	beginAt(t, live, 0)
	must(t, putAll(t, live, records[:2]))
	beginAt(t, fresh, 0)
	must(t, putAll(t, fresh, records[:1]))
	mustHaveTurns(t, dir, 2)
	if err := fresh.Replace(t.Context()); !errors.Is(err, ErrBehind) {
		t.Fatalf("replace by an edition that is behind: %v", err)
	}
	must(t, putAll(t, fresh, records[1:]))
	mustHaveTurns(t, dir, 2)
	must(t, fresh.Replace(t.Context()))
	mustHaveTurns(t, dir, 3)
	if err := putAll(t, live, records[2:]); !errors.Is(err, projector.ErrMoved) {
		t.Fatalf("a commit to the old edition: %v", err)
	}
	beginAt(t, live, 3)
	again := Views(openingOf, textOf)[0].Next(dir, nullLogger).(*Catalog) // the second set's names are free
	beginAt(t, again, 0)
	must(t, again.Close())
}

// A missing file, a file of another version, and a damaged file are not views.
func TestNoView(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	for name, content := range map[string][]byte{"none": nil, "empty": {}, "text": []byte("this is no database, and it is longer than a header of one would be, to be sure of it, by far")} {
		if content != nil {
			must(t, os.WriteFile(path, content, 0o600))
		}
		if _, err := Open(t.Context(), dir); !errors.Is(err, ErrNoView) {
			t.Errorf("%s: got the error %v", name, err)
		}
		must(t, Remove(path))
	}
}

// When many writers find one damaged file, each removes it, perhaps one that another writer has just created. In the
// end all have a view.
func TestDamageIsFoundByMany(t *testing.T) {
	dir := t.TempDir()
	for range 15 {
		must(t, os.WriteFile(filepath.Join(dir, FileName), []byte("this is no database, and it is longer than a header of one would be, to be sure of it, by far"), 0o600))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				c := New(dir, openingOf, nullLogger)
				defer c.Close()
				if cursor, _, err := c.Begin(t.Context()); err != nil || cursor.Offset != 0 {
					t.Errorf("the view is at %v, error %v", cursor.Offset, err)
				}
			})
		}
		all.Wait()
	}
}

func TestIntervals(t *testing.T) {
	var l Intervals
	must(t, l.Scan("1-40,57-57,60-80"))
	if l.String() != "1-40,57-57,60-80" {
		t.Errorf("read back: %s", l)
	}
	for at, want := range map[events.Offset]bool{0: false, 1: true, 40: true, 41: false, 57: true, 58: false, 80: true, 81: false} {
		if l.Contains(at) != want {
			t.Errorf("Contains(%v) = %v", at, !want)
		}
	}
	for _, text := range []any{"x", "4", "5-4", "1-2,", 7} {
		if err := new(Intervals).Scan(text); err == nil {
			t.Errorf("%v was read, want an error", text)
		}
	}
}

// A new file is not synced before its first checkpoint. Whatever a power failure leaves of it and its write-ahead log,
// the view continues from a commit or is rebuilt.
func TestPowerCutInNewFile(t *testing.T) {
	dir, sub := t.TempDir(), events.Session("", "s")
	records := turnsOf(t, sub, "a", "b", "c")
	c := New(dir, openingOf, nullLogger)
	defer c.Close()
	beginAt(t, c, 0)
	must(t, putAll(t, c, records))
	fates := map[string]func([]byte) []byte{
		"whole": func(b []byte) []byte { return b },
		"empty": func([]byte) []byte { return nil },
		"zeros": func(b []byte) []byte { return make([]byte, len(b)) },
		"half":  func(b []byte) []byte { return b[:len(b)/2] },
		"torn":  func(b []byte) []byte { return append(b[:len(b)/2:len(b)/2], make([]byte, len(b)-len(b)/2)...) },
	}
	for file, fileFate := range fates {
		for wal, walFate := range fates {
			cut := t.TempDir()
			for suffix, fate := range map[string]func([]byte) []byte{"": fileFate, "-wal": walFate} {
				b, err := os.ReadFile(filepath.Join(dir, FileName+suffix))
				must(t, err)
				if len(b) == 0 {
					t.Fatalf("the file %s%s is empty", FileName, suffix)
				}
				must(t, os.WriteFile(filepath.Join(cut, FileName+suffix), fate(b), 0o600))
			}
			again := New(cut, openingOf, nullLogger)
			cursor, _, err := again.Begin(t.Context())
			if err != nil || cursor.Offset != 0 && cursor.Offset != 3 {
				t.Errorf("%s file, %s log: the view is at %v, error %v", file, wal, cursor.Offset, err)
				again.Close()
				continue
			}
			if file == "whole" && wal == "whole" && cursor.Offset != 3 {
				t.Error("an intact file was rebuilt")
			}
			if cursor.Offset == 0 {
				must(t, putAll(t, again, records))
			}
			must(t, again.Close())
			mustHaveTurns(t, cut, 3)
		}
	}
}

// A view that lacks records says so until it is built from another log.
func TestLacksUntilReset(t *testing.T) {
	for _, v := range Views(openingOf, textOf) {
		t.Run(v.Name, func(t *testing.T) {
			dir := t.TempDir()
			e := v.New(dir, nullLogger)
			lacks := func(want bool) {
				t.Helper()
				s, err := StandingOf(t.Context(), dir, v.Name)
				must(t, err)
				if s.Lacks != want {
					t.Errorf("got lacks %v, want %v", s.Lacks, want)
				}
			}
			begin := func() {
				t.Helper()
				_, _, err := e.Begin(t.Context())
				must(t, err)
			}
			begin()
			lacks(false)
			must(t, e.(interface{ Lacks(context.Context) error }).Lacks(t.Context()))
			must(t, e.Close())
			lacks(true)
			begin()
			must(t, e.Commit(t.Context(), projector.Cursor{Offset: 1, EventID: "event-1"}))
			lacks(true)
			must(t, e.Reset(t.Context()))
			lacks(false)
			must(t, e.Close())
			lacks(false)
		})
	}
}

// A writer does not continue in an edition that replaced its own, also if both are at the same record.
func TestReplaceAtOnePlace(t *testing.T) {
	dir, sub := t.TempDir(), events.Session("", "s")
	records := turnsOf(t, sub, "a", "b", "c")
	live, fresh := New(dir, openingOf, nullLogger), Views(openingOf, textOf)[0].Next(dir, nullLogger).(*Catalog)
	defer live.Close()
	defer fresh.Close()
	beginAt(t, live, 0)
	must(t, putAll(t, live, records[:2]))
	beginAt(t, fresh, 0)
	must(t, putAll(t, fresh, records[:2]))
	must(t, fresh.Replace(t.Context()))
	if err := putAll(t, live, records[2:]); !errors.Is(err, projector.ErrMoved) {
		t.Fatalf("a commit to the old edition: %v", err)
	}
	beginAt(t, live, 2)
	must(t, putAll(t, live, records[2:]))
	mustHaveTurns(t, dir, 3)
}

// Purged data leave the write-ahead log as soon as no reader needs it.
func TestScrubWaitsForReaders(t *testing.T) {
	dir := t.TempDir()
	records := turnsOf(t, events.Session("", "s"), "a", "b", "c")
	c := New(dir, openingOf, nullLogger)
	defer c.Close()
	beginAt(t, c, 0)
	must(t, putAll(t, c, records[:1]))
	r, err := openAny(t.Context(), catalogForm, c.path)
	must(t, err)
	defer r.Close()
	tx, err := r.db.BeginTx(t.Context(), nil)
	must(t, err)
	var n int
	must(t, tx.QueryRowContext(t.Context(), "SELECT count(*) FROM sessions").Scan(&n))
	c.purged = true
	must(t, putAll(t, c, records[1:2]))
	ahead := func() int64 {
		info, err := os.Stat(c.path + "-wal")
		must(t, err)
		return info.Size()
	}
	if ahead() == 0 {
		t.Fatal("the log was emptied beside a reader: the test shows nothing")
	}
	must(t, tx.Rollback())
	must(t, putAll(t, c, records[2:]))
	if n := ahead(); n > 0 {
		t.Errorf("the log has %d bytes, and no reader needs them", n)
	}
}

// The start that a session reports itself counts, whichever record comes first.
func TestStartBeforeCreation(t *testing.T) {
	sub := events.Session("", "s")
	said := &events.SessionUpdated{Set: events.Fields{{Name: "startedAt", Value: events.Raw(`"2026-01-01T00:00:00Z"`)}}}
	created := &events.SessionCreated{Kind: events.KindConversation, CreatedAt: "2026-02-02T00:00:00Z"}
	for _, order := range [][]events.Payload{{said, created}, {created, said}} {
		c := New(t.TempDir(), openingOf, nullLogger)
		beginAt(t, c, 0)
		for i, p := range order {
			must(t, c.Apply(t.Context(), projector.Decode(record(t, sub, events.Offset(i+1), p))))
		}
		s, err := c.session(t.Context(), sub)
		must(t, err)
		if s.CreatedAt != "2026-01-01T00:00:00Z" {
			t.Errorf("%T first: got %v, want the reported start", order[0], s.CreatedAt)
		}
		must(t, c.Close())
	}
}

// A fork of a session that is folded again is folded, too.
func TestForkOfAMendedSession(t *testing.T) {
	parent, fork := events.Session("", "p"), events.Session("", "f")
	c := New(t.TempDir(), openingOf, nullLogger)
	defer c.Close()
	beginAt(t, c, 0)
	made := projector.Decode(record(t, parent, 1, &events.SessionCreated{Kind: events.KindConversation, CreatedAt: "2026-01-01T00:00:00Z"}))
	forked := projector.Decode(record(t, fork, 2, &events.SessionCreated{Kind: events.KindConversation, CreatedAt: "2026-01-01T00:00:00Z", Fork: &events.Fork{Session: "p", Offset: 1}}))
	must(t, c.Apply(t.Context(), made))
	c.Quarantine(projector.Quarantine{Subject: parent, Offset: 1, Reason: "a test"})
	if err := c.Apply(t.Context(), forked); err == nil {
		t.Error("a fork of a session in quarantine was folded")
	}
	c.Quarantine(projector.Quarantine{Subject: fork, Offset: 2, Reason: "a test"})
	must(t, c.Commit(t.Context(), projector.Cursor{Offset: 2, EventID: "event-2"}))
	must(t, c.Forget(t.Context(), parent))
	must(t, c.Apply(t.Context(), made))
	must(t, c.Forget(t.Context(), fork))
	must(t, c.Apply(t.Context(), forked))
	must(t, c.Commit(t.Context(), projector.Cursor{Offset: 2, EventID: "event-2"}))
}
