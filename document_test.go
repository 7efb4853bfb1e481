package tally_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/embedded"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/storetest"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/log/logtest"
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

// mustHold checks what a document holds now; "" is that it is not there.
func mustHold(t *testing.T, d *tally.Documents, kind, id, want string) {
	t.Helper()
	doc, err := d.Read(t.Context(), kind, id)
	if want == "" {
		if !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("%s/%s: %v, want not found", kind, id, err)
		}
		return
	}
	if err != nil || string(doc.Data) != want {
		t.Errorf("%s/%s: %v, %v, want %q", kind, id, doc, err, want)
	}
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// What stores of documents are asked for, on every backend.
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
		t.Run("bad input", func(t *testing.T) { badInput(t, st) })
		t.Run("large input", func(t *testing.T) { largeInput(t, d) })
	})
}

// The documents among the five roles: a spec, an agent's node, a workflow's template. Each
// is created, read and updated, and says so if it is there, not there, or has moved on.
func createReadUpdate(t *testing.T, d *tally.Documents) {
	for kind, content := range map[string]string{"doc": "# Spec\n", "agent": "---\nstate: idle\n---\n", "workflow": `{"states":["a","b"]}`} {
		if _, err := d.Read(t.Context(), kind, "one"); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("%s: read before it is there: %v", kind, err)
		}
		w := tally.Write{Data: []byte(content), ContentType: "text/x-test", Title: "One", Attributes: map[string]string{"a": "1"}, Owner: "me", Layer: "project",
			Links: []events.Link{{Rel: "see", To: "session/s"}}, ExpiresAt: time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)}
		rev := mustCreate(t, d, kind, "one", w)
		doc, err := d.Read(t.Context(), kind, "one")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(rev, doc.Revision); diff != "" {
			t.Errorf("%s: what was written and what is read (-wrote +read):\n%s", kind, diff)
		}
		want := events.DocMeta{Title: "One", Attributes: w.Attributes, Owner: "me", Layer: "project", Links: w.Links, ExpiresAt: "2999-01-01T00:00:00.000Z"}
		if diff := cmp.Diff(want, doc.Meta); diff != "" || doc.ContentType != "text/x-test" || string(doc.Data) != content || doc.Subject != events.Document("default", kind, "one") {
			t.Errorf("%s: %+v\n%s", kind, doc, diff)
		}
		next, err := d.Update(t.Context(), kind, "one", rev.Offset, text("next"))
		if err != nil || next.Meta.Base != rev.Offset || next.Offset <= rev.Offset {
			t.Errorf("%s: %+v, %v", kind, next, err)
		}
		mustHold(t, d, kind, "one", "next")
		if doc, err := d.Read(t.Context(), kind, "one"); err != nil || doc.Meta.Title != "" {
			t.Errorf("%s: a revision has what the one before said: %+v, %v", kind, doc, err)
		}
		if _, err := d.Create(t.Context(), kind, "one", w); !errors.Is(err, tally.ErrExists) {
			t.Errorf("%s: created twice: %v", kind, err)
		}
		mustConflict(t, kind, func() error { _, err := d.Update(t.Context(), kind, "one", rev.Offset, w); return err }, next.Offset, sum([]byte("next")))
	}
}

func mustConflict(t *testing.T, what string, do func() error, have events.Offset, sha string) {
	t.Helper()
	err := do()
	conflict, ok := errors.AsType[*tally.DocumentConflictError](err)
	if !ok || !errors.Is(err, log.ErrConflict) || conflict.Have != have || conflict.SHA256 != sha {
		t.Errorf("%s: %v (%+v), want a conflict with %v, %s", what, err, conflict, have, sha)
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
	missing := func(what string) {
		t.Helper()
		_, read := d.Read(ctx, "doc", "d06")
		_, update := d.Update(ctx, "doc", "d06", 1, text("x"))
		_, based := d.Save(ctx, "doc", "d06", tally.Write{Base: 1})
		_, deleted := d.Delete(ctx, "doc", "d06", 0, "")
		_, renamed := d.Rename(ctx, "doc", "d06", 0, "other")
		_, links := d.Links(ctx, "doc", "d06")
		for i, err := range []error{read, update, based, deleted, renamed, links} {
			if !errors.Is(err, tally.ErrNotFound) {
				t.Errorf("%s, call %d: %v", what, i, err)
			}
		}
	}
	missing("never written")
	if _, err := d.History(ctx, "doc", "d06", 0, 0); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("history of nothing: %v", err)
	}
	if err := d.Purge(ctx, "doc", "d06"); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("purge of nothing: %v", err)
	}
	rev := mustCreate(t, d, "doc", "d06", text("x"))
	if _, err := d.Create(ctx, "doc", "d06", text("y")); !errors.Is(err, tally.ErrExists) {
		t.Errorf("twice: %v", err)
	}
	ack, err := d.Delete(ctx, "doc", "d06", rev.Offset, "done")
	if err != nil {
		t.Fatal(err)
	}
	missing("deleted")
	if _, err := d.Update(ctx, "doc", "d06", ack.Last, text("y")); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("update of a deletion: %v", err)
	}
	mustCreate(t, d, "doc", "d06", text("again"))
	mustHold(t, d, "doc", "d06", "again")
	if err := d.Purge(ctx, "doc", "d06"); err != nil {
		t.Fatal(err)
	}
	missing("purged")
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
		t.Errorf("a refused write left something: %v, %v", list, err)
	}
	stale.Base = second.Offset
	if rev := mustSave(t, d, "doc", "d07", stale); rev.Meta.Base != second.Offset {
		t.Errorf("%+v", rev)
	}
	mustHold(t, d, "doc", "d07", "3")
}

// Bytes come back as they were, whatever they are, and the mark says what is stored.
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
			t.Errorf("%s: %d bytes, %v", name, len(doc.Data), err)
			continue
		}
		typ := c.typ
		if typ == "" {
			typ = "application/octet-stream"
		}
		if doc.ContentType != typ || doc.Size != len(c.data) {
			t.Errorf("%s: %+v", name, doc.Revision)
		}
		if want := (tally.Direct{Offset: rev.Offset, SHA256: sum(c.data)}); doc.Direct != want {
			t.Errorf("%s: %+v, want %+v", name, doc.Direct, want)
		}
		rec, err := st.Log.Record(t.Context(), doc.Direct.Offset)
		if err == nil {
			rec, err = projector.Resolve(t.Context(), st.Log, rec, 1<<30)
		}
		if err != nil || sum(rec.Data) != doc.Direct.SHA256 {
			t.Errorf("%s: the record has other bytes, %v", name, err)
		}
		again, err := d.ReadAt(t.Context(), "file", id, "#1")
		if err != nil || !bytes.Equal(again.Data, c.data) || again.Direct != doc.Direct {
			t.Errorf("%s, as of #1: %v", name, err)
		}
	}
}

func historyAndAsOf(t *testing.T, d *tally.Documents) {
	ctx := t.Context()
	var revs []projector.Revision
	for i := range 5 {
		revs = append(revs, mustSave(t, d, "doc", "d33", text(fmt.Sprint("text ", i+1))))
	}
	ack, err := d.Delete(ctx, "doc", "d33", 0, "done")
	if err != nil {
		t.Fatal(err)
	}
	last := mustCreate(t, d, "doc", "d33", text("text 7"))
	for position, want := range map[string]string{
		"": "text 7", "head": "text 7", "#1": "text 1", "#5": "text 5", "#6": "", "#7": "text 7", "#8": "", "~0": "text 7", "~1": "", "~2": "text 5", "~7": "", "start": "",
		revs[0].Offset.String(): "text 1", (revs[1].Offset - 1).String(): "text 1", ack.Last.String(): "", last.Offset.String(): "text 7", "@9007199254740991": "text 7",
		(revs[0].Offset - 1).String(): "", "e:" + revs[2].ID: "text 3", "2000-01-01": "", "2999-01-01": "text 7", "-1000h": "",
	} {
		doc, err := d.ReadAt(ctx, "doc", "d33", position)
		if want == "" && !errors.Is(err, tally.ErrNotFound) || want != "" && (err != nil || string(doc.Data) != want) {
			t.Errorf("at %q: %v, %v, want %q", position, doc, err, want)
		}
	}
	for _, position := range []string{"main#1", "#0", "nonsense", "@x"} {
		if _, err := d.ReadAt(ctx, "doc", "d33", position); !invalid(err) {
			t.Errorf("at %q: %v", position, err)
		}
	}
	all, err := d.History(ctx, "doc", "d33", 0, 0)
	if err != nil || len(all) != 7 || all[0].Offset != last.Offset || !all[1].Deleted || all[1].Reason != "done" || all[6].Offset != revs[0].Offset {
		t.Fatalf("%+v, %v", all, err)
	}
	var paged []tally.Change
	for below := events.Offset(0); ; below = paged[len(paged)-1].Offset {
		page, err := d.History(ctx, "doc", "d33", below, 2)
		if err != nil {
			t.Fatal(err)
		}
		if paged = append(paged, page...); len(page) < 2 {
			break
		}
	}
	if len(paged) != len(all) {
		t.Errorf("%d revisions by pages, %d at once", len(paged), len(all))
	}
	for i, c := range all {
		doc, err := c.Read(ctx)
		if c.Deleted != errors.Is(err, tally.ErrNotFound) || err == nil && string(doc.Data) != fmt.Sprint("text ", 7-i) {
			t.Errorf("%d: %v, %v", i, doc, err)
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
				t.Errorf("%s, call %d: %v", name, i, err)
			}
		}
	}
	bad("media type", tally.Write{ContentType: "text/plain\r\nX: y"})
	bad("link", tally.Write{Links: []events.Link{{Rel: "see", To: "nowhere"}}})
	bad("link to a session by the wrong door", tally.Write{Links: []events.Link{{Rel: "see", To: "document/session/s"}}})
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
			t.Errorf("%d: %v", i, err)
		}
	}
	mustHold(t, d, "doc", "d35", "x")
	mustHold(t, d, "doc", "d35 new", "")
	if list, err := d.History(ctx, "doc", "d35", 0, 0); err != nil || len(list) != 1 {
		t.Errorf("a refused write left something: %v, %v", list, err)
	}
}

// Of writers on one base exactly one is first, and each other is told what there is now.
func oneOfTwoWriters(t *testing.T, d *tally.Documents) {
	ctx := t.Context()
	rev := mustCreate(t, d, "doc", "d49", text("base"))
	if _, err := d.Lease(ctx, "doc", "d49", "agent-2", time.Minute); err != nil {
		t.Fatal(err)
	}
	const writers = 8
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() { _, errs[i] = d.Update(ctx, "doc", "d49", rev.Offset, text(fmt.Sprint("writer ", i))) })
	}
	wg.Wait()
	now, err := d.Read(ctx, "doc", "d49")
	if err != nil {
		t.Fatal(err)
	}
	won := 0
	for i, err := range errs {
		if err == nil {
			won++
			mustHold(t, d, "doc", "d49", fmt.Sprint("writer ", i))
			continue
		}
		want := &tally.DocumentConflictError{Subject: now.Subject, Base: rev.Offset, Have: now.Offset, SHA256: now.Direct.SHA256, Holder: "agent-2"}
		have, _ := errors.AsType[*tally.DocumentConflictError](err)
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("writer %d: %v\n%s", i, err, diff)
		}
	}
	if won != 1 {
		t.Errorf("%d of %d writers were first", won, writers)
	}
	_, held := d.Lease(ctx, "doc", "d49", "agent-1", time.Minute)
	if lease, ok := errors.AsType[*tally.LeaseError](held); !ok || lease.Lease.Holder != "agent-2" || !errors.Is(held, log.ErrConflict) {
		t.Errorf("somebody else's lease: %v", held)
	}
	if err := d.Release(ctx, "doc", "d49", "agent-1"); !errors.Is(err, log.ErrConflict) {
		t.Errorf("release of somebody else's: %v", err)
	}
	if err := d.Release(ctx, "doc", "d49", "agent-2"); err != nil {
		t.Fatal(err)
	}
	if lease, err := d.Holder(ctx, "doc", "d49"); err != nil || lease != (tally.Lease{}) {
		t.Errorf("released: %+v, %v", lease, err)
	}
	if _, err := d.Lease(ctx, "doc", "d49", "agent-1", time.Nanosecond); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Millisecond)
	if _, err := d.Lease(ctx, "doc", "d49", "agent-2", time.Minute); err != nil {
		t.Errorf("a lease that is over: %v", err)
	}
	// The loser goes on from what the conflict says.
	conflict, _ := errors.AsType[*tally.DocumentConflictError](errs[slices.IndexFunc(errs, func(err error) bool { return err != nil })])
	if _, err := d.Update(ctx, "doc", "d49", conflict.Have, text("merged")); err != nil {
		t.Error(err)
	}
}

// Ids are bytes: they come back whole, or are refused.
func badInput(t *testing.T, st *tally.Store) {
	ctx, d := t.Context(), st.Documents()
	for _, id := range []string{"..", "a/../b", "/", "a//b", strings.Repeat("x", 512), "line\nbreak", "\u202egnp.exe", "\u200f", " ", "\x00", "\xff\xfe", "é", "e\u0301", "=2E", "@5", "#1", "*", ">"} {
		mustCreate(t, d, "odd", id, text(id))
		mustHold(t, d, "odd", id, id)
	}
	list, _, err := d.List(ctx, projector.DocumentQuery{Kind: "odd"})
	if err != nil || len(list) != 18 {
		t.Errorf("%d are listed, %v", len(list), err)
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
				t.Errorf("%q, call %d: %v", c, i, err)
			}
		}
	}
}

func largeInput(t *testing.T, d *tally.Documents) {
	testkit.NotUnderRace(t) // the large content of D-11 and D-65 is written there
	large := bytes.Repeat([]byte{0xfe}, 64<<20)
	rev := mustCreate(t, d, "odd", "large", tally.Write{Data: large})
	doc, err := d.Read(t.Context(), "odd", "large")
	if err != nil || !bytes.Equal(doc.Data, large) || doc.Offset != rev.Offset {
		t.Errorf("64 MiB: %v", err)
	}
}

// What somebody published who knows no rules is not what a write is based on, and does not
// keep it from being written.
func TestDocumentWithStrangeRecords(t *testing.T) {
	st := storetest.Memory(t, tally.Config{})
	d, ctx := st.Documents(), t.Context()
	doc := events.Document("default", "doc", "x")
	strange := func(e events.Event) {
		t.Helper()
		if _, err := st.Append(ctx, doc, log.Any, e); err != nil {
			t.Fatal(err)
		}
	}
	strange(events.Event{Type: "com.example.x"})
	rev := mustCreate(t, d, "doc", "x", text("one"))
	strange(events.Event{Type: "com.example.x"})
	mustHold(t, d, "doc", "x", "one")
	next, err := d.Update(ctx, "doc", "x", rev.Offset, text("two"))
	if err != nil {
		t.Fatal(err)
	}
	strange(events.Event{Type: "com.example.x"})
	if err := d.Tx(ctx, func(tx *tally.Tx) error { return tx.Update(ctx, "doc", "x", text("three")) }); err != nil {
		t.Error(err)
	}
	strange(events.Event{Type: "com.example.x"})
	mustConflict(t, "stale", func() error { _, err := d.Delete(ctx, "doc", "x", next.Offset, ""); return err }, next.Offset+2, sum([]byte("three")))
	if _, err := d.Delete(ctx, "doc", "x", 0, ""); err != nil {
		t.Error(err)
	}
	mustHold(t, d, "doc", "x", "")
}

// A write that got no answer is one revision, sent again by the store or, with its id, by
// the program.
func TestDocumentOutcomeUnknown(t *testing.T) {
	storetest.EachFault(t, func(t *testing.T, st *tally.Store, call storetest.Call) {
		d, ctx := st.Documents(), t.Context()
		var rev projector.Revision
		call("Create", 1, func() (err error) { rev, err = d.Create(ctx, "doc", "x", text("1")); return err })
		call("Update", 1, func() (err error) { rev, err = d.Update(ctx, "doc", "x", rev.Offset, text("2")); return err })
		call("Save", 1, func() (err error) {
			w := text("3")
			w.ID = "an id"
			rev, err = d.Save(ctx, "doc", "x", w)
			return err
		})
		call("Lease", 1, func() error { _, err := d.Lease(ctx, "doc", "x", "me", time.Minute); return err })
		call("Delete", 1, func() error { _, err := d.Delete(ctx, "doc", "x", rev.Offset, ""); return err })
	})
	var leave context.CancelFunc // the program has no time to hear of it
	tries := 0
	st := storetest.Faulty(t, func() logtest.Fault {
		if tries++; leave == nil {
			return logtest.None
		}
		if tries > 1 {
			leave()
			return logtest.Dropped
		}
		return logtest.AckLost
	})
	d, ctx := st.Documents(), t.Context()
	try := func(name string, do func(ctx context.Context) (projector.Revision, error)) projector.Revision {
		t.Helper()
		var brief context.Context
		brief, leave = context.WithCancel(ctx)
		tries = 0
		_, _ = do(brief) // whatever it heard
		leave = nil
		rev, err := do(ctx)
		if err != nil {
			t.Errorf("%s again: %v", name, err)
		}
		if tries == 0 {
			t.Errorf("%s: nothing failed", name)
		}
		if n := len(mustHistory(t, d, "doc", "x")); events.Offset(n) != rev.Offset {
			t.Errorf("%s is %d revisions", name, n)
		}
		return rev
	}
	named := func(id, s string) tally.Write { w := text(s); w.ID = id; return w }
	rev := try("create", func(ctx context.Context) (projector.Revision, error) {
		return d.Create(ctx, "doc", "x", named("a", "1"))
	})
	try("update", func(ctx context.Context) (projector.Revision, error) {
		return d.Update(ctx, "doc", "x", rev.Offset, named("b", "2"))
	})
	try("save", func(ctx context.Context) (projector.Revision, error) { return d.Save(ctx, "doc", "x", named("c", "3")) })
	if again, err := d.Update(ctx, "doc", "x", rev.Offset, named("b", "2")); err != nil || again.Offset != 2 {
		t.Errorf("much later: %+v, %v", again, err)
	}
	if _, err := d.Update(ctx, "doc", "x", rev.Offset, named("b", "another text")); err == nil {
		t.Error("another write with the same id was taken for it")
	}
	if _, err := d.Save(ctx, "doc", "x", named("c", "another text")); !invalid(err) {
		t.Errorf("another write with the same id: %v", err)
	}
}

func mustHistory(t *testing.T, d *tally.Documents, kind, id string) []tally.Change {
	t.Helper()
	list, err := d.History(t.Context(), kind, id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// A validator refuses with field and reason, and nothing is written. A kind without one
// takes anything.
func TestDocumentKinds(t *testing.T) {
	storetest.EachWith(t, embedded.Options{Kinds: map[string]tally.Kind{
		"workflow": {Layer: "project", Validate: func(data []byte, contentType string) error {
			var w struct{ States []string }
			switch {
			case contentType != "application/json":
				return &events.InvalidError{Field: "contentType", Reason: "a workflow is JSON"}
			case json.Unmarshal(data, &w) != nil:
				return errors.New("not JSON")
			case len(w.States) == 0:
				return &events.InvalidError{Field: "states", Reason: "there is none"}
			}
			return nil
		}},
		"diary": {Layer: "personal"},
	}}, func(t *testing.T, st *tally.Store) {
		t.Run("D-50 a validator refuses with field and reason", func(t *testing.T) { validators(t, st.Documents()) })
		t.Run("layers", func(t *testing.T) { layers(t, st) })
	})
}

func validators(t *testing.T, d *tally.Documents) {
	ctx := t.Context()
	good := tally.Write{Data: []byte(`{"states":["a"]}`), ContentType: "application/json"}
	rev := mustCreate(t, d, "workflow", "w", good)
	if rev.Meta.Layer != "project" {
		t.Errorf("%+v", rev)
	}
	for want, w := range map[string]tally.Write{
		"invalid contentType: a workflow is JSON": text("x"),
		"invalid data: not JSON":                  {Data: []byte("{"), ContentType: "application/json"},
		"invalid states: there is none":           {Data: []byte("{}"), ContentType: "application/json"},
	} {
		_, create := d.Create(ctx, "workflow", "new", w)
		_, update := d.Update(ctx, "workflow", "w", rev.Offset, w)
		_, save := d.Save(ctx, "workflow", "w", w)
		tx := d.Tx(ctx, func(tx *tally.Tx) error {
			if err := tx.Save(ctx, "other", "beside it", text("x")); err != nil {
				return err
			}
			return tx.Update(ctx, "workflow", "w", w)
		})
		for i, err := range []error{create, update, save, tx} {
			if !invalid(err) || err.Error() != want {
				t.Errorf("call %d: %v, want %s", i, err, want)
			}
		}
	}
	mustHold(t, d, "workflow", "w", `{"states":["a"]}`)
	mustHold(t, d, "workflow", "new", "")
	mustHold(t, d, "other", "beside it", "")
	mustCreate(t, d, "anything", "goes", text("{"))
}

// A document of the project does not link into the personal layer.
func layers(t *testing.T, st *tally.Store) {
	d, ctx := st.Documents(), t.Context()
	mustCreate(t, d, "diary", "today", text("mine"))
	if _, err := st.Session("private").Create(ctx, events.SessionCreated{Kind: "conversation", CreatedAt: "2026-01-01T00:00:00Z", Layer: "personal"}); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"document/diary/today", "session/private"} {
		links := []events.Link{{Rel: "see", To: to}}
		if _, err := d.Create(ctx, "doc", "x", tally.Write{Layer: "project", Links: links}); !invalid(err) || !strings.Contains(err.Error(), "personal") {
			t.Errorf("%s: %v", to, err)
		}
		if _, err := d.Create(ctx, "diary", "to "+to, tally.Write{Links: links}); err != nil {
			t.Errorf("%s: personal to personal: %v", to, err)
		}
	}
	err := d.Tx(ctx, func(tx *tally.Tx) error {
		if err := tx.Create(ctx, "diary", "new", text("mine")); err != nil {
			return err
		}
		return tx.Create(ctx, "doc", "x", tally.Write{Layer: "project", Links: []events.Link{{Rel: "see", To: "document/diary/new"}}})
	})
	if !invalid(err) {
		t.Errorf("within a transaction: %v", err)
	}
	if _, err := d.Rename(ctx, "diary", "today", 0, "yesterday"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(ctx, "doc", "x", tally.Write{Layer: "project", Links: []events.Link{{Rel: "see", To: "document/diary/today"}}}); !invalid(err) {
		t.Errorf("by a name of old: %v", err)
	}
	mustHold(t, d, "doc", "x", "")
}

// A document is there until the log's time says that it expired, whatever the clock of this
// machine says.
func TestDocumentExpires(t *testing.T) {
	now := time.Date(2026, 8, 22, 10, 0, 0, 0, time.UTC)
	l := logtest.OpenOn(t, logtest.NewMem(logtest.MemConfig{Now: func() time.Time { return now }}), log.Config{})
	st, err := tally.Open(t.Context(), l, tally.Config{})
	if err != nil {
		t.Fatal(err)
	}
	d, ctx := st.Documents(), t.Context()
	w := text("soon gone")
	w.ExpiresAt = now.Add(time.Hour)
	rev := mustCreate(t, d, "doc", "x", w)
	now = now.Add(365 * 24 * time.Hour) // a clock that is set takes nothing away
	mustHold(t, d, "doc", "x", "soon gone")
	if list, _, err := d.List(ctx, projector.DocumentQuery{}); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	now = rev2time(rev).Add(59 * time.Minute)
	mustSave(t, d, "doc", "y", text("before"))
	mustHold(t, d, "doc", "x", "soon gone")
	now = now.Add(time.Minute)
	mustSave(t, d, "doc", "y", text("then"))
	mustHold(t, d, "doc", "x", "")
	if list, _, err := d.List(ctx, projector.DocumentQuery{}); err != nil || len(list) != 1 || list[0].Subject.ID != "y" {
		t.Errorf("%v, %v", list, err)
	}
	_, update := d.Update(ctx, "doc", "x", rev.Offset, text("late"))
	_, deletion := d.Delete(ctx, "doc", "x", rev.Offset, "")
	tx := d.Tx(ctx, func(tx *tally.Tx) error { _, err := tx.Read(ctx, "doc", "x"); return err })
	for i, err := range []error{update, deletion, tx} {
		if !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if doc, err := d.ReadAt(ctx, "doc", "x", rev.Offset.String()); err != nil || string(doc.Data) != "soon gone" {
		t.Errorf("as it was: %v, %v", doc, err)
	}
	mustCreate(t, d, "doc", "x", text("again"))
	mustHold(t, d, "doc", "x", "again")
}

func rev2time(rev projector.Revision) time.Time {
	at, _ := rev.Meta.ExpiresAt.Time()
	return at.Add(-time.Hour)
}

func purges(t *testing.T, st *tally.Store) {
	if !strings.Contains(t.Name(), "/memory/") {
		testkit.NotUnderRace(t) // its nine megabytes take half a minute there
	}
	ctx, d := t.Context(), st.Documents()
	first := mustCreate(t, d, "doc", "secret", text("the password"))
	if _, err := d.Rename(ctx, "doc", "secret", 0, "harmless"); err != nil {
		t.Fatal(err)
	}
	old := mustHistory(t, d, "doc", "harmless")
	if err := d.Purge(ctx, "doc", "harmless"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"secret", "harmless"} {
		mustHold(t, d, "doc", id, "")
		if list, err := d.History(ctx, "doc", id, 0, 0); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("%s: %v, %v", id, list, err)
		}
		if doc, err := d.ReadAt(ctx, "doc", id, first.Offset.String()); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("%s: %v, %v", id, doc, err)
		}
	}
	for _, c := range old {
		if doc, err := c.Read(ctx); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("a change that was at hand: %v, %v", doc, err)
		}
	}
	if err := d.Purge(ctx, "doc", "harmless"); !errors.Is(err, tally.ErrNotFound) {
		t.Errorf("twice: %v", err)
	}
	mustCreate(t, d, "doc", "a", text("1"))
	if _, err := d.Rename(ctx, "doc", "a", 0, "b"); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, d, "doc", "a", text("somebody else's"))
	if err := d.Purge(ctx, "doc", "b"); !errors.Is(err, tally.ErrExists) {
		t.Errorf("a name in use again: %v", err)
	}
	mustHold(t, d, "doc", "a", "somebody else's")
	mustHold(t, d, "doc", "b", "1")

	large := bytes.Repeat([]byte("large "), 9<<20/6)
	for _, id := range []string{"large", "the same"} {
		mustCreate(t, d, "doc", id, tally.Write{Data: large})
	}
	for i, id := range []string{"large", "the same"} {
		if err := d.Purge(ctx, "doc", id); err != nil {
			t.Fatal(err)
		}
		_, err := st.Blob(ctx, sum(large))
		if _, gone := errors.AsType[*projector.BlobError](err); gone != (i == 1) || !gone && err != nil {
			t.Errorf("large content after %q was purged: %v", id, err)
		}
		if err := d.Purge(ctx, "doc", id); !errors.Is(err, tally.ErrNotFound) {
			t.Errorf("%s twice: %v", id, err)
		}
	}
	mustCreate(t, d, "doc", "before", tally.Write{Data: large})
	mustSave(t, d, "doc", "before", text("small"))
	if _, err := d.Rename(ctx, "doc", "before", 0, "after"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"before", "after"} { // and here the purge was cut short
		erase(t, st, "doc", id, events.ReasonPurged)
	}
	if err := d.Purge(ctx, "doc", "after"); err != nil {
		t.Errorf("what was cut short: %v", err)
	}
	if _, err := st.Blob(ctx, sum(large)); err == nil {
		t.Error("large content under an earlier name can be read")
	}
	mustCreate(t, d, "doc", "large", tally.Write{Data: large})
	if doc, err := d.Read(ctx, "doc", "large"); err != nil || !bytes.Equal(doc.Data, large) {
		t.Errorf("written again: %v", err)
	}
}
