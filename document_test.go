package tally_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/internal/testkit/storetest"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
)

func text(s string) tally.Write { return tally.Write{Data: []byte(s), ContentType: "text/plain"} }

func mustCreate(t *testing.T, d *tally.Documents, kind, id string, w tally.Write) projector.Revision {
	t.Helper()
	rev, err := d.Create(t.Context(), kind, id, w)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func mustSave(t *testing.T, d *tally.Documents, kind, id string, w tally.Write) projector.Revision {
	t.Helper()
	rev, err := d.Save(t.Context(), kind, id, w)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// mustHold checks the current content of a document; "" means that it does not exist.
func mustHold(t *testing.T, d *tally.Documents, kind, id, want string) {
	t.Helper()
	doc, err := d.Read(t.Context(), kind, id)
	if want == "" {
		if !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("%s/%s: got %v, want ErrNotFound", kind, id, err)
		}
		return
	}
	if err != nil || string(doc.Data) != want {
		t.Errorf("%s/%s: got %v, %v, want %q", kind, id, doc, err, want)
	}
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// The acceptance lines of documents hold on every backend.
func TestDocuments(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		d := st.Documents()
		t.Run("D-04 a document is created, read and updated", func(t *testing.T) { createReadUpdate(t, d) })
		t.Run("D-05 one id in two kinds is two documents", func(t *testing.T) { sameIDTwoKinds(t, d) })
		t.Run("D-06 what exists is not created, what is missing not updated, read or deleted", func(t *testing.T) { existsAndNotFound(t, d) })
		t.Run("D-07 save writes in any case, and a stale base changes nothing", func(t *testing.T) { saveIsUpsert(t, d) })
		t.Run("D-11 bytes are stored and shown as they were", func(t *testing.T) { bytesAsTheyWere(t, st) })
		t.Run("D-33 history, and reading as of then", func(t *testing.T) { historyAndAsOf(t, d) })
		t.Run("D-35 no refusal is silent", func(t *testing.T) { nothingFailsSilently(t, d) })
		t.Run("D-49 of two writers one succeeds, and a lease is shown", func(t *testing.T) { oneOfTwoWriters(t, d) })
		t.Run("D-51 links and parents are checked, backlinks listed", func(t *testing.T) { linksAndParents(t, d) })
		t.Run("D-55 a transaction is all or nothing", func(t *testing.T) { transactions(t, st) })
		t.Run("D-56 a rename is atomic and keeps history, links and lease", func(t *testing.T) { renames(t, st) })
		t.Run("D-57 pages by prefix have no gaps and no repeats", func(t *testing.T) { listsByPrefix(t, d) })
		t.Run("D-58 a watch has every change once and in order", func(t *testing.T) { watches(t, st) })
		t.Run("D-65 a purge reaches every reader", func(t *testing.T) { purges(t, st) })
		t.Run("D-65 a purge reaches blobs", func(t *testing.T) { purgesBlobs(t, st) })
		t.Run("bad input", func(t *testing.T) { badInput(t, st) })
		t.Run("large input", func(t *testing.T) { largeInput(t, d) })
	})
}

// Documents of three kinds are created, read and updated. Each call reports whether the document exists already, is
// missing, or has another revision than expected.
func createReadUpdate(t *testing.T, d *tally.Documents) {
	for kind, content := range map[string]string{"doc": "# Spec\n", "agent": "---\nstate: idle\n---\n", "workflow": `{"states":["a","b"]}`} {
		if _, err := d.Read(t.Context(), kind, "one"); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("%s: read before it exists: got %v, want ErrNotFound", kind, err)
		}
		w := tally.Write{Data: []byte(content), ContentType: "text/x-test", Title: "One", Attributes: map[string]string{"a": "1"}, Owner: "me", Layer: "project",
			Links: []events.Link{{Rel: "see", To: "session/s"}}, ExpiresAt: time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)}
		rev := mustCreate(t, d, kind, "one", w)
		doc, err := d.Read(t.Context(), kind, "one")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(rev, doc.Revision); diff != "" {
			t.Errorf("%s: revision (-written +read):\n%s", kind, diff)
		}
		want := events.DocMeta{Title: "One", Attributes: w.Attributes, Owner: "me", Layer: "project", Links: w.Links, ExpiresAt: "2999-01-01T00:00:00.000Z"}
		if diff := cmp.Diff(want, doc.Meta); diff != "" || doc.ContentType != "text/x-test" || string(doc.Data) != content || doc.Subject != events.Document("default", kind, "one") {
			t.Errorf("%s: got %+v; meta (-want +got):\n%s", kind, doc, diff)
		}
		next, err := d.Update(t.Context(), kind, "one", rev.Offset, text("next"))
		if err != nil || next.Meta.Base != rev.Offset || next.Offset <= rev.Offset {
			t.Errorf("%s: update: got %+v, %v, want base %v", kind, next, err, rev.Offset)
		}
		mustHold(t, d, kind, "one", "next")
		if doc, err := d.Read(t.Context(), kind, "one"); err != nil || doc.Meta.Title != "" {
			t.Errorf("%s: got %+v, %v, want no title of the revision before", kind, doc, err)
		}
		if _, err := d.Create(t.Context(), kind, "one", w); !errors.Is(err, tally.ErrExists) {
			t.Errorf("%s: created twice: got %v, want ErrExists", kind, err)
		}
		mustConflict(t, kind, func() error { _, err := d.Update(t.Context(), kind, "one", rev.Offset, w); return err }, next.Offset, sum([]byte("next")))
	}
}

func sameIDTwoKinds(t *testing.T, d *tally.Documents) {
	mustCreate(t, d, "note", "same", text("a note"))
	mustCreate(t, d, "recipe", "same", text("a recipe"))
	mustHold(t, d, "note", "same", "a note")
	if _, err := d.Delete(t.Context(), "note", "same", 0, ""); err != nil {
		t.Fatal(err)
	}
	mustHold(t, d, "note", "same", "")
	mustHold(t, d, "recipe", "same", "a recipe")
}

func existsAndNotFound(t *testing.T, d *tally.Documents) {
	ctx := t.Context()
	mustMiss := func(what string) {
		t.Helper()
		_, read := d.Read(ctx, "doc", "d06")
		_, update := d.Update(ctx, "doc", "d06", 1, text("x"))
		_, based := d.Save(ctx, "doc", "d06", tally.Write{Base: 1})
		_, deleted := d.Delete(ctx, "doc", "d06", 0, "")
		_, renamed := d.Rename(ctx, "doc", "d06", 0, "other")
		_, links := d.Links(ctx, "doc", "d06")
		for i, err := range []error{read, update, based, deleted, renamed, links} {
			if !errors.Is(err, tally.ErrNotFound) {
				t.Errorf("%s, call %d: got %v, want ErrNotFound", what, i, err)
			}
		}
	}
	mustMiss("never written")
	if _, err := d.History(ctx, "doc", "d06", 0, 0); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("history of a missing document: got %v, want ErrNotFound", err)
	}
	if err := d.Purge(ctx, "doc", "d06"); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("purge of a missing document: got %v, want ErrNotFound", err)
	}
	rev := mustCreate(t, d, "doc", "d06", text("x"))
	if _, err := d.Create(ctx, "doc", "d06", text("y")); !errors.Is(err, tally.ErrExists) {
		t.Errorf("created twice: got %v, want ErrExists", err)
	}
	ack, err := d.Delete(ctx, "doc", "d06", rev.Offset, "done")
	if err != nil {
		t.Fatal(err)
	}
	mustMiss("deleted")
	if _, err := d.Update(ctx, "doc", "d06", ack.Last, text("y")); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("update of a deletion: got %v, want ErrNotFound", err)
	}
	mustCreate(t, d, "doc", "d06", text("again"))
	mustHold(t, d, "doc", "d06", "again")
	if err := d.Purge(ctx, "doc", "d06"); err != nil {
		t.Fatal(err)
	}
	mustMiss("purged")
	mustCreate(t, d, "doc", "d06", text("once more"))
	mustHold(t, d, "doc", "d06", "once more")
}

func saveIsUpsert(t *testing.T, d *tally.Documents) {
	first := mustSave(t, d, "doc", "d07", text("1"))
	second := mustSave(t, d, "doc", "d07", text("2"))
	stale := text("3")
	stale.Base = first.Offset
	mustConflict(t, "stale", func() error { _, err := d.Save(t.Context(), "doc", "d07", stale); return err }, second.Offset, sum([]byte("2")))
	mustConflict(t, "stale delete", func() error { _, err := d.Delete(t.Context(), "doc", "d07", first.Offset, ""); return err }, second.Offset, sum([]byte("2")))
	mustHold(t, d, "doc", "d07", "2")
	if list, err := d.History(t.Context(), "doc", "d07", 0, 0); err != nil || len(list) != 2 {
		t.Errorf("history after refused writes: got %v, %v, want 2 revisions", list, err)
	}
	stale.Base = second.Offset
	if rev := mustSave(t, d, "doc", "d07", stale); rev.Meta.Base != second.Offset {
		t.Errorf("got %+v, want base %v", rev, second.Offset)
	}
	mustHold(t, d, "doc", "d07", "3")
}

// Any bytes come back unchanged, and Direct identifies the stored content.
func bytesAsTheyWere(t *testing.T, st *tally.Store) {
	d := st.Documents()
	large := bytes.Repeat([]byte("0123456789abcdef\x00\xff"), 9<<20/18)
	for name, c := range map[string]struct {
		data []byte
		typ  string
	}{
		"not UTF-8":        {[]byte("a\xff\xfe\x00b"), "text/plain"},
		"white space":      {[]byte(" \t\r\n\r  no end of line \t"), "text/markdown; charset=utf-8"},
		"byte order mark":  {[]byte("\xef\xbb\xbftext"), "text/plain"},
		"nothing":          {nil, ""},
		"JSON":             {[]byte("{ \"b\":1.0,\n\"a\" : \"\\u0041\" }\n"), "application/json"},
		"not JSON at all":  {[]byte("{nonsense"), "application/json"},
		"lone surrogate":   {[]byte(`{"a":"\ud800"}`), "application/json"},
		"no media type":    {[]byte("x"), ""},
		"an odd type":      {[]byte("x"), "application/x-odd; a=\"b c\""},
		"more than events": {large, "application/octet-stream"},
	} {
		id := "d11/" + name
		w := tally.Write{Data: c.data, ContentType: c.typ}
		rev := mustCreate(t, d, "file", id, w)
		doc, err := d.Read(t.Context(), "file", id)
		if err != nil || !bytes.Equal(doc.Data, c.data) || doc.Data == nil {
			t.Errorf("%s: read %d bytes, %v, want the %d written", name, len(doc.Data), err, len(c.data))
			continue
		}
		typ := c.typ
		if typ == "" {
			typ = "application/octet-stream"
		}
		if doc.ContentType != typ || doc.Size != len(c.data) {
			t.Errorf("%s: got %+v, want type %q and size %d", name, doc.Revision, typ, len(c.data))
		}
		if want := (tally.Direct{Offset: rev.Offset, SHA256: sum(c.data)}); doc.Direct != want {
			t.Errorf("%s: got Direct %+v, want %+v", name, doc.Direct, want)
		}
		rec, err := st.Log.Record(t.Context(), doc.Direct.Offset)
		if err == nil {
			rec, err = projector.Resolve(t.Context(), st.Log, rec, 1<<30)
		}
		if err != nil || sum(rec.Data) != doc.Direct.SHA256 {
			t.Errorf("%s: the record at Direct.Offset has other bytes, %v", name, err)
		}
		again, err := d.ReadAt(t.Context(), "file", id, "#1")
		if err != nil || !bytes.Equal(again.Data, c.data) || again.Direct != doc.Direct {
			t.Errorf("%s, as of #1: got other content or Direct, %v", name, err)
		}
	}
}

// Every refusal is an error that a program can tell from others, and nothing is written.
func nothingFailsSilently(t *testing.T, d *tally.Documents) {
	ctx := t.Context()
	rev := mustCreate(t, d, "doc", "d35", text("x"))
	bad := func(name string, w tally.Write) {
		t.Helper()
		_, create := d.Create(ctx, "doc", "d35 new", w)
		_, update := d.Update(ctx, "doc", "d35", rev.Offset, w)
		_, save := d.Save(ctx, "doc", "d35", w)
		tx := d.Tx(ctx, func(tx *tally.Tx) error { return tx.Save(ctx, "doc", "d35", w) })
		for i, err := range []error{create, update, save, tx} {
			if !invalid(err) && !errors.Is(err, log.ErrTooLarge) {
				t.Errorf("%s, call %d: got %v, want an *InvalidError or ErrTooLarge", name, i, err)
			}
		}
	}
	bad("media type", tally.Write{ContentType: "text/plain\r\nX: y"})
	bad("link", tally.Write{Links: []events.Link{{Rel: "see", To: "nowhere"}}})
	bad("link to a session as a document", tally.Write{Links: []events.Link{{Rel: "see", To: "document/session/s"}}})
	bad("owner", tally.Write{Owner: "\xff"})
	bad("title", tally.Write{Title: "\xff"})
	bad("attribute", tally.Write{Attributes: map[string]string{"a": "\xff"}})
	bad("attributes", tally.Write{Attributes: map[string]string{"a": strings.Repeat("x", 1<<20)}})
	bad("links", tally.Write{Links: slices.Repeat([]events.Link{{Rel: "see", To: "document/doc/x"}}, 100_000)})
	bad("size", tally.Write{Data: make([]byte, 64<<20+1)})
	_, base := d.Update(ctx, "doc", "d35", 0, text("y"))
	_, reason := d.Delete(ctx, "doc", "d35", 0, "purged")
	_, same := d.Rename(ctx, "doc", "d35", 0, "d35")
	_, longer := d.Rename(ctx, "doc", "d35", 0, strings.Repeat("x", 513))
	for i, err := range []error{base, reason, same, longer} {
		if !invalid(err) {
			t.Errorf("call %d: got %v, want an *InvalidError", i, err)
		}
	}
	mustHold(t, d, "doc", "d35", "x")
	mustHold(t, d, "doc", "d35 new", "")
	if list, err := d.History(ctx, "doc", "d35", 0, 0); err != nil || len(list) != 1 {
		t.Errorf("history after refused writes: got %v, %v, want 1 revision", list, err)
	}
}

// Ids may be any bytes: each is stored unchanged or refused.
func badInput(t *testing.T, st *tally.Store) {
	ctx, d := t.Context(), st.Documents()
	for _, id := range []string{"..", "a/../b", "/", "a//b", strings.Repeat("x", 512), "line\nbreak", "\u202egnp.exe", "\u200f", " ", "\x00", "\xff\xfe", "é", "e\u0301", "=2E", "@5", "#1", "*", ">"} {
		mustCreate(t, d, "odd", id, text(id))
		mustHold(t, d, "odd", id, id)
	}
	list, _, err := d.List(ctx, projector.DocumentQuery{Kind: "odd"})
	if err != nil || len(list) != 18 {
		t.Errorf("%d documents are listed, %v, want 18", len(list), err)
	}
	for _, l := range list {
		mustHold(t, d, "odd", l.Subject.ID, l.Subject.ID)
	}
	for _, c := range [][2]string{{"doc", ""}, {"doc", strings.Repeat("x", 513)}, {"", "x"}, {"a.b", "x"}, {"a b", "x"}, {"session", "x"}, {"blob", sum(nil)}, {"unit", "x"}, {strings.Repeat("k", 65), "x"}} {
		_, create := d.Create(ctx, c[0], c[1], text("x"))
		_, read := d.Read(ctx, c[0], c[1])
		_, history := d.History(ctx, c[0], c[1], 0, 0)
		_, lease := d.Lease(ctx, c[0], c[1], "me", time.Minute)
		tx := d.Tx(ctx, func(tx *tally.Tx) error { return tx.Save(ctx, c[0], c[1], text("x")) })
		for i, err := range []error{create, read, history, lease, tx, d.Purge(ctx, c[0], c[1])} {
			if !invalid(err) {
				t.Errorf("%q, call %d: got %v, want an *InvalidError", c, i, err)
			}
		}
	}
}

func largeInput(t *testing.T, d *tally.Documents) {
	testkit.NotUnderRace(t) // D-11 and D-65 write large content under the detector
	testkit.OnlyFull(t, "D-11 and D-65 write content that is larger than an event")
	const size = 64 << 20
	large := bytes.Repeat([]byte{0xfe}, size)
	rev := mustCreate(t, d, "odd", "large", tally.Write{Data: large})
	doc, err := d.Read(t.Context(), "odd", "large")
	if err != nil || !bytes.Equal(doc.Data, large) || doc.Offset != rev.Offset {
		t.Errorf("%d bytes: got other content, %v", size, err)
	}
}

// D-47: a document that was read matches its Direct; changed content does not.
func TestDirect(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *tally.Store) {
		t.Run("D-47 the mark", func(t *testing.T) {
			data := []byte("a\r\n\xff\x00 b  ")
			sum := sha256.Sum256(data)
			rev, err := st.Documents().Create(t.Context(), "doc", "x", tally.Write{Data: data})
			if err != nil {
				t.Fatal(err)
			}
			d, err := st.Documents().Read(t.Context(), "doc", "x")
			if err != nil || d.Direct != (tally.Direct{Offset: rev.Offset, SHA256: hex.EncodeToString(sum[:])}) || !bytes.Equal(d.Data, data) {
				t.Fatalf("got %+v, %v, want the written content with its Direct", d, err)
			}
			for shown, want := range map[string]bool{string(data): true, "a\n\xff\x00 b  ": false, strings.ToValidUTF8(string(data), "?"): false, "": false} {
				if d.Direct.Is([]byte(shown)) != want {
					t.Errorf("Is(%q) is %v, want %v", shown, !want, want)
				}
			}
			past, err := st.Documents().ReadAt(t.Context(), "doc", "x", rev.Offset.String())
			if err != nil || past.Direct != d.Direct {
				t.Errorf("as of its offset: got %+v, %v, want the same Direct", past, err)
			}
			err = st.Documents().Tx(t.Context(), func(tx *tally.Tx) error {
				if err := tx.Save(t.Context(), "doc", "x", tally.Write{Data: []byte("new")}); err != nil {
					return err
				}
				d, err := tx.Read(t.Context(), "doc", "x")
				if err == nil && d.Direct.Is(d.Data) {
					t.Error("Is is true for content that is not stored yet")
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	})
}
