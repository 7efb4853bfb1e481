package tree

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/projector"
)

// A manifest returns the saved state, with names of any bytes, and no unsaved changes. An invalid or damaged file is an
// empty manifest.
func TestManifest(t *testing.T) {
	ctx := context.Background()
	name := filepath.Join(t.TempDir(), "a%b?c#", "book.db")
	open := func() manifest { return need(openManifest(name, "ns", slog.New(slog.DiscardHandler))) }
	sub := events.Document("ns", "doc", "\xff/x")
	s := newState()
	s.cursor = projector.Cursor{Offset: 7, EventID: "e", Recorded: time.Unix(1_700_000_000, 5).UTC(), Head: 9}
	s.files["docs/\xfe"] = &fileRecord{entry: sub, at: 5, sum: "ab", size: 3, mode: 0o600, version: "v"}
	s.files["gone"] = &fileRecord{entry: sub, at: 1}
	s.entries[sub] = &entry{first: 2, at: 5, path: "p\xfd", want: "w", apart: "a", folder: true, within: []string{"x", "y.md"}}
	s.entries[events.Session("ns", "s")] = &entry{first: events.MaxOffset}
	s.intents["docs/\xfe"] = intent{sub, 6, "cd"}
	s.out[".t\xfc"] = &displaced{path: ".t\xfc", from: "t\xfc", entry: sub, base: 4, sums: []string{"a", "b"}}
	s.met = true
	var c changes
	c.cursor, c.met = &s.cursor, true
	for p := range s.files {
		c.file(p)
	}
	for u := range s.entries {
		c.entry(u)
	}
	c.intent("docs/\xfe")
	c.displaced(".t\xfc")
	b := open()
	must(t, b.save(ctx, &s, c))
	delete(s.files, "gone")
	c = changes{clean: true}
	c.file("gone")
	must(t, b.save(ctx, &s, c))
	must(t, b.close())
	b = open()
	s.clean = true
	if got := need(b.load(ctx)); !reflect.DeepEqual(got, s) {
		t.Errorf("the manifest has\n%+v, want the saved state\n%+v", got, s)
	}
	must(t, b.close())
	for what, content := range map[string][]byte{"empty": {}, "no book": []byte("SQLite format 3\x00 and nothing else"), "of another version": nil} {
		t.Run(what, func(t *testing.T) {
			if content != nil {
				must(t, os.WriteFile(name, content, 0o600))
			} else {
				b := open().(*sqliteManifest)
				need(b.db.Exec("UPDATE tree SET version=99"))
				must(t, b.close())
			}
			b := open()
			defer b.close()
			if got := need(b.load(ctx)); !reflect.DeepEqual(got, newState()) {
				t.Errorf("the manifest has %+v, want nothing", got)
			}
			must(t, b.save(ctx, &s, changes{cursor: &s.cursor}))
			if got := need(b.load(ctx)); got.cursor != s.cursor {
				t.Errorf("the manifest is at %v", got.cursor)
			}
		})
	}
}
