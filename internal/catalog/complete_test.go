package catalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// begun returns a log in which sessions begin in the given order.
func begun(t testing.TB, ids ...string) testkit.Records {
	t.Helper()
	var list testkit.Records
	for i, id := range ids {
		e, err := events.New("urn:test", events.Session("n", id), &events.SessionCreated{Kind: events.KindConversation, CreatedAt: "2026-01-01T00:00:00Z", Title: "about " + events.EscapeID(id)})
		if err != nil {
			t.Fatal(err)
		}
		e.ID = fmt.Sprint("e", i)
		list = append(list, events.Record{Event: e, Offset: events.Offset(i + 1), Recorded: time.Unix(int64(i), 0)})
	}
	return list
}

// glanced returns a catalog of a log, opened with Glance.
func glanced(t testing.TB, records testkit.Records) Reader {
	t.Helper()
	dir := t.TempDir()
	c := New(dir, openingOf, nullLogger)
	if _, _, err := c.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, rec := range records {
		if err := c.Apply(t.Context(), projector.Decode(rec)); err != nil {
			t.Fatal(err)
		}
		if c.Held() >= 16<<20 || i == len(records)-1 {
			if err := c.Commit(t.Context(), projector.Cursor{Offset: rec.Offset, EventID: rec.ID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Glance(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func idsOf(list []Session) []string {
	var ids []string
	for _, s := range list {
		ids = append(ids, s.ID)
	}
	return ids
}

// Beginning returns the newest sessions whose ids start with a text, and the first and the last one by id. No character
// of the text is a wildcard.
func TestBeginning(t *testing.T) {
	r := glanced(t, begun(t, "order", "order-2", "b%", "b_x", "O", "\xff\xffz", "\xff", "é", "orde", "order-1"))
	for _, c := range []struct {
		text  string
		limit int
		want  []string
	}{
		{"order", 9, []string{"order-1", "order-2", "order"}},
		{"order-2", 9, []string{"order-2"}},
		{"order-3", 9, nil},
		{"b%", 9, []string{"b%"}}, // % is not a wildcard
		{"b_", 9, []string{"b_x"}},
		{"\xff", 9, []string{"\xff", "\xff\xffz"}},
		{"\xff\xff", 9, []string{"\xff\xffz"}},
		{"\xc3", 9, []string{"é"}},
		{"", 2, []string{"order-1", "orde", "\xff\xffz", "O"}}, // the two newest, the last and the first
		{"o", 1, []string{"order-1", "orde", "order-2"}},       // so that the common prefix is "orde"
		{"", 20, []string{"order-1", "orde", "é", "\xff", "\xff\xffz", "O", "b_x", "b%", "order-2", "order"}},
	} {
		got, err := r.Beginning(t.Context(), "n", c.text, c.limit)
		if err != nil || !slices.Equal(idsOf(got), c.want) {
			t.Errorf("%q, at most %d: %q, want %q, %v", c.text, c.limit, idsOf(got), c.want, err)
		}
	}
	if got, err := r.Beginning(t.Context(), "other", "", 9); len(got) > 0 || err != nil {
		t.Errorf("of another namespace: %q, %v", idsOf(got), err)
	}
}

// If thousands of ids match, recently written sessions come first, and the common prefix of the results is that of all
// matches.
func TestBeginningOfThousands(t *testing.T) {
	testkit.NotUnderRace(t)
	var ids []string
	for i := range 3 * window {
		ids = append(ids, fmt.Sprintf("run-%05d", 3*window-i)) // newest first
	}
	ids = append(ids, "run-99999", "other")
	for i := range window / 2 {
		ids = append(ids, fmt.Sprintf("run-5%05d", i))
	}
	got, err := glanced(t, begun(t, ids...)).Beginning(t.Context(), "n", "run-", 50)
	if err != nil || len(got) != 52 {
		t.Fatalf("%d sessions, %v", len(got), err)
	}
	if got[0].ID != fmt.Sprintf("run-5%05d", window/2-1) || got[49].ID != fmt.Sprintf("run-5%05d", window/2-50) {
		t.Errorf("the newest sessions are %s to %s", got[0].ID, got[49].ID)
	}
	if ends := idsOf(got[50:]); !slices.Equal(ends, []string{"run-99999", "run-00001"}) {
		t.Errorf("the ends are %s", ends)
	}
}

// Roots returns the first elements of ids that contain a slash, sorted, at most limit of them.
func TestRoots(t *testing.T) {
	r := glanced(t, begun(t, "b/x", "a", "a/1", "a/2", "a0", "a/1/2", "c", "é/1", "b0/z"))
	got, err := r.Roots(t.Context(), "n", 9)
	if want := []string{"a/", "b/", "b0/", "é/"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, want %q, %v", got, want, err)
	}
	if got, err := r.Roots(t.Context(), "n", 2); len(got) != 2 || err != nil {
		t.Errorf("at most 2: %q, %v", got, err)
	}
}

func TestNamed(t *testing.T) {
	r := glanced(t, begun(t, "travel", "travel-2", "a b", "x\x1b[2J", "r/deep", "r/deeper", "q/deeper", "tr/1"))
	for name, want := range map[string]string{"travel": "travel", "travel-": "travel-2", "trave": "", "a=20b": "a b", "a ": "a b", "x=1B=5B2J": "x\x1b[2J", "last": "tr/1", "tr": "", "deep": "r/deep", "dee": "", "deeper": "", "1": "tr/1", "": "", "no": ""} {
		s, ok, err := r.Named(t.Context(), "n", name)
		if err != nil || ok != (want != "") || ok && s.ID != want {
			t.Errorf("%q is %q, %v, %v", name, s.ID, ok, err)
		}
	}
}

// Glance creates no files and never waits: not in an empty directory, not during a writer's transaction, and not after
// a writer was killed.
func TestGlanceLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	look := func() ([]string, error) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		r, err := Glance(ctx, dir)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		list, err := r.Beginning(ctx, "n", "", 5)
		return idsOf(list), err
	}
	if _, err := look(); !errors.Is(err, ErrNoView) || files(t, dir) != "" {
		t.Errorf("of nothing: %v, %s", err, files(t, dir))
	}
	c := New(dir, openingOf, nullLogger)
	defer c.Close()
	_, _, err := c.Begin(t.Context())
	must(t, err)
	records := begun(t, "a", "b")
	must(t, c.Apply(t.Context(), projector.Decode(records[0])))
	must(t, c.Commit(t.Context(), projector.Cursor{Offset: 1, EventID: "e0"}))
	must(t, c.exec(t.Context(), "BEGIN EXCLUSIVE"))
	before := files(t, dir)
	if ids, err := look(); err != nil || !slices.Equal(ids, []string{"a"}) || files(t, dir) != before {
		t.Errorf("beside a writer: %v, %v, %s", ids, err, files(t, dir))
	}
	must(t, c.exec(t.Context(), "ROLLBACK"))
	killed := t.TempDir() // the files as they are, without their index
	for _, name := range []string{FileName, FileName + "-wal"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(killed, name), data, 0o600))
	}
	dir = killed
	if _, err := look(); !errors.Is(err, ErrNoView) || files(t, dir) != "views.db views.db-wal" {
		t.Errorf("after a kill: %v, %s", err, files(t, dir))
	}
}

func files(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// BenchmarkBeginning completes an id among 100,000 sessions, like a shell, including the opening of the file.
func BenchmarkBeginning(b *testing.B) {
	var ids []string
	for i := range 100_000 {
		ids = append(ids, fmt.Sprintf("%s-%06x", []string{"travel", "order", "panel"}[i%3], i*2654435761%(1<<24)))
	}
	dir := filepath.Dir(glanced(b, begun(b, ids...)).path)
	for _, text := range []string{"", "t", "travel-a1b", "none"} {
		b.Run("text="+text, func(b *testing.B) {
			for b.Loop() {
				r, err := Glance(b.Context(), dir)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := r.Beginning(b.Context(), "n", text, 50); err != nil {
					b.Fatal(err)
				}
				r.Close()
			}
		})
	}
}
