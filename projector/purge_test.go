package projector_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/log"
	"github.com/tallylog/tally/projector"
	"github.com/tallylog/tally/snapshot"
)

func (st *story) purge(doc events.Subject) {
	st.add(doc, &events.DocumentDeleted{Reason: events.ReasonPurged})
}

// shownOf lists the records as a reader of the whole log sees them.
func shownOf(t *testing.T, l *projector.Loader, records testkit.Records) (list []string) {
	t.Helper()
	for rec, err := range l.Shown(t.Context(), records.Read(t.Context(), events.Range{})) {
		if err != nil {
			t.Fatal(err)
		}
		one, err := l.Record(t.Context(), rec.Offset)
		if err != nil || fmt.Sprint(one) != fmt.Sprint(rec) {
			t.Errorf("one record: got %v, %v, but %v in a list", one, err, rec)
		}
		text := string(rec.Data)
		if rec.Purged {
			text = "purged" + text + rec.ContentType + rec.Extensions[events.ExtDoc] + rec.Extensions[events.ExtDataRef]
		}
		list = append(list, text)
	}
	return list
}

// A reader sees no content that was purged later, regardless of newer writes. Of a batch it sees only names.
func TestShown(t *testing.T) {
	st := &story{t: t}
	content := strings.Repeat("large", 10)
	blob := events.Document("", events.KindBlob, sumOf(content))
	note := events.Document("", "doc", "note")
	st.write(blob, content)
	byReference := func(doc events.Subject) {
		st.event(events.Event{Source: "urn:test", Type: events.TypeDocumentWritten, Subject: doc, ContentType: "text/plain"}.
			WithExtension(events.ExtDataRef, events.BlobRef(blob.ID)).WithExtension(events.ExtDoc, events.DocMeta{Title: "a secret"}.String()))
	}
	byReference(recipe)
	st.write(recipe, "secret", events.DocMeta{Title: "a secret"}.String())
	st.event(events.Event{Source: "urn:test", Type: events.TypeUnitAppended, Subject: events.Document("", events.KindUnit, "u"), ContentType: "application/json",
		Data: []byte(`{"events":[{"subject":"document/recipe/r1","event":{"id":"e","type":"t","data":"secret"}}],"x":"secret"}`)})
	st.write(note, "kept")
	batch := `{"events":[{"subject":"document/recipe/r1","type":"t","id":"e"}]}`
	for _, src := range []func() projector.Source{func() projector.Source { return st.records }, func() projector.Source { return &tail{Records: st.records} }} {
		l := &projector.Loader{Source: src()}
		if got, want := fmt.Sprint(shownOf(t, l, st.records)), fmt.Sprint([]string{content, content, "secret", batch, "kept"}); got != want {
			t.Errorf("before the purge: got %s, want %s", got, want)
		}
	}
	st.purge(recipe)
	st.purge(blob)
	st.write(recipe, "new")
	for _, src := range []projector.Source{st.records, &tail{Records: st.records}} {
		got := shownOf(t, &projector.Loader{Source: src, Snapshots: new(snapshot.Mem)}, st.records)
		if want := fmt.Sprint([]string{"purged", "purged", "purged", batch, "kept", `{"reason":"purged"}`, `{"reason":"purged"}`, "new"}); fmt.Sprint(got) != want {
			t.Errorf("after the purge: got %s, want %s", got, want)
		}
	}
	v, err := (&projector.Loader{Source: st.records}).Verify(t.Context(), nil)
	if err != nil || len(v.Findings) > 0 {
		t.Errorf("verify reports purged data: %v, %v", v.Findings, err)
	}
}

// Showing very many documents reads the log twice, instead of each document.
func TestShownOfManyDocuments(t *testing.T) {
	const count = 2000
	st := &story{t: t}
	doc := func(i int) events.Subject { return events.Document("", "doc", fmt.Sprint(i)) }
	for i := range count {
		st.write(doc(i), "first")
	}
	for i := range count {
		if st.write(doc(i), "second"); i%3 == 0 {
			st.purge(doc(i))
			st.write(doc(i), "third")
		}
	}
	src := &tail{Records: st.records}
	l := &projector.Loader{Source: src}
	for rec, err := range l.Shown(t.Context(), st.records.Read(t.Context(), events.Range{})) {
		var n int
		if _, scan := fmt.Sscan(rec.Subject.ID, &n); err != nil || scan != nil {
			t.Fatal(err, scan)
		}
		if text := string(rec.Data); rec.Purged != (n%3 == 0 && (text == "" || text == "first" || text == "second")) || rec.Purged && text != "" {
			t.Fatalf("%s at %v: got %q, purged %v", rec.Subject, rec.Offset, text, rec.Purged)
		}
	}
	if limit := 2 * len(st.records); src.read > limit {
		t.Errorf("read %d records for the %d shown, want at most %d", src.read, len(st.records), limit)
	}
}

// A blob is purged with the last document that refers to it, and not before.
func TestUnreferenced(t *testing.T) {
	sums := make(map[string]string)
	for _, name := range []string{"own", "turn", "checkpoint", "document", "piece", "linked", "purged", "once"} {
		sums[name] = sumOf(name)
	}
	ref := func(name string) string { return events.BlobRef(sums[name]) }
	doc, other, gone := events.Document("", "doc", "a"), events.Document("", "doc", "b"), events.Document("", "doc", "c")
	st := &story{t: t}
	large := func(sub events.Subject, typ, name string) {
		st.event(events.Event{Source: "urn:test", Type: typ, Subject: sub}.WithExtension(events.ExtDataRef, ref(name)))
	}
	for name := range sums {
		st.write(events.Document("", events.KindBlob, sums[name]), name)
	}
	for _, name := range []string{"own", "turn", "checkpoint", "document", "purged", "once", "once"} {
		large(doc, events.TypeDocumentWritten, name)
	}
	st.event(events.Event{Source: "urn:test", Type: events.TypeDocumentWritten, Subject: doc, ContentType: projector.PiecesType, Data: fmt.Appendf(nil, `{"pieces":[%q]}`, ref("piece"))})
	st.write(doc, "a mention of "+sumOf("elsewhere"), events.DocMeta{Links: []events.Link{{Rel: "shows", To: "document/blob/" + sums["linked"]}}}.String())
	large(s1, "com.example.x", "turn")
	st.add(s1, &events.CheckpointSaved{ID: "c", Kind: "rewind", At: 1, Files: []events.SavedFile{{Path: "f", Blob: events.DocRef(`document/blob/` + sums["checkpoint"])}}})
	large(other, events.TypeDocumentWritten, "document")
	st.add(other, &events.DocumentDeleted{Reason: "done"}) // it is still readable at an earlier position
	large(gone, events.TypeDocumentWritten, "purged")
	st.purge(gone)
	st.event(events.Event{Source: "urn:test", Type: events.TypeUnitAppended, Subject: events.Document("", events.KindUnit, "u"), Data: []byte(sums["own"])})
	want := make(map[string]bool)
	for _, name := range []string{"own", "piece", "linked", "purged", "once"} {
		want[sums[name]] = true
	}
	for _, when := range []string{"before the purge", "after it"} {
		list, err := unreferenced(t, st, doc)
		if err != nil || len(list) != len(want) {
			t.Errorf("%s: got %d blobs, %v, want %d", when, len(list), err, len(want))
		}
		for _, sum := range list {
			if !want[sum] {
				t.Errorf("%s: blob %s is listed, but another session refers to it", when, sum)
			}
		}
		st.purge(doc)
	}
	if list, err := unreferenced(t, st, recipe); len(list) > 0 || err != nil {
		t.Errorf("blobs of a document without any: got %v, %v", list, err)
	}
	t.Run("net T3 a purge leaves a blob to which another document links", func(t *testing.T) {
		st.write(other, "x", events.DocMeta{Links: []events.Link{{Rel: "shows", To: "document/blob/" + sums["own"]}}}.String())
		list, err := unreferenced(t, st, doc)
		if slices.Contains(list, sums["own"]) || err != nil {
			t.Errorf("the blob is listed: %v, %v", list, err)
		}
	})
}

// unreferenced returns the blobs to which only a document refers.
func unreferenced(t *testing.T, st *story, doc events.Subject) (sums []string, err error) {
	t.Helper()
	list, err := (&projector.Loader{Source: st.records}).Unreferenced(t.Context(), doc.Namespace, []events.Subject{doc}, func(rec events.Record) events.Record {
		if rec.Subject == doc {
			rec.Event = events.Event{}
		}
		return rec
	})
	for _, sub := range list {
		sums = append(sums, sub.ID)
	}
	return sums, err
}

// When a document is purged, the snapshotter removes its stored chunks.
func TestSnapshotterForgetsPurged(t *testing.T) {
	onBench(t, func(b *bench) {
		t := b.t
		stop := b.keep(projector.Policy{})
		defer stop()
		add := func(e events.Event) {
			e.Source, e.Subject = "urn:test", recipe
			if _, err := b.log.Append(t.Context(), recipe, log.Any, e); err != nil {
				t.Fatal(err)
			}
		}
		for range 300 {
			add(events.Event{Type: events.TypeDocumentWritten, Data: []byte("x")}.WithExtension(events.ExtDoc, events.DocMeta{Title: "a secret"}.String()))
		}
		firstRevisions(t, &projector.Loader{Source: b.log, Snapshots: b.store}, 0)
		if n := len(chunksOf(t, b.store)); n != 1 {
			t.Fatalf("got %d chunks, want 1", n)
		}
		b.add(recipe, &events.DocumentDeleted{Reason: events.ReasonPurged})
		if n := len(chunksOf(t, b.store)); n != 0 {
			t.Errorf("%d chunks are left, want none", n)
		}
	})
	t.Run("net T3 a purge that a snapshotter meets when it stops", func(t *testing.T) {
		onBench(t, func(b *bench) {
			t := b.t
			for i := range 300 {
				b.add(recipe, &events.DocumentDeleted{Reason: fmt.Sprint(i)})
			}
			firstRevisions(t, &projector.Loader{Source: b.log, Snapshots: b.store}, 0)
			if n := len(chunksOf(t, b.store)); n != 1 {
				t.Fatalf("got %d chunks, want 1", n)
			}
			b.pace = projector.Pace(time.Hour)
			stop := b.keep(projector.Policy{})
			b.add(recipe, &events.DocumentDeleted{Reason: events.ReasonPurged})
			stop()
			if n := len(chunksOf(t, b.store)); n != 0 {
				t.Errorf("%d chunks are left, want none", n)
			}
		})
	})
}

// Verify finds stored revisions that do not match the log, or were purged.
func TestVerifyRevisions(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, store *snapshot.Mem, st *story)
		found bool
	}{
		"sound": {func(*testing.T, *snapshot.Mem, *story) {}, false},
		"not all of them": {func(t *testing.T, store *snapshot.Mem, _ *story) {
			spoilt(t, store.Delete(t.Context(), chunksOf(t, store)[0]))
		}, false},
		"others": {func(t *testing.T, store *snapshot.Mem, _ *story) {
			rewrite(t, store, chunksOf(t, store)[0], func(s *snapshot.Snapshot) { s.Data = []byte("{}") })
		}, true},
		"purged": {func(_ *testing.T, _ *snapshot.Mem, st *story) { st.purge(recipe) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			st, store := &story{t: t, records: longDocument(t, 600)}, new(snapshot.Mem)
			firstRevisions(t, &projector.Loader{Source: st.records, Snapshots: store}, 0)
			c.spoil(t, store, st)
			v, err := (&projector.Loader{Source: st.records, Snapshots: store}).Verify(t.Context(), nil)
			if err != nil || (len(v.Findings) > 0) != c.found {
				t.Errorf("verify: got findings %v, %v, want some: %v", v.Findings, err, c.found)
			}
		})
	}
}
