package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/testkit"
	"github.com/tallylog/tally/projector"
)

// wanted returns the expected result of a query, by checking every document of a model.
func wanted(m testkit.DocumentModel, q projector.DocumentQuery, now time.Time) []projector.DocumentListed {
	var list []projector.DocumentListed
	for sub, d := range m {
		last := d.Newest()
		switch {
		case last == nil, sub.Namespace != q.Namespace,
			q.Kind == "" && sub.Kind == events.KindBlob, q.Kind != "" && sub.Kind != q.Kind,
			!strings.HasPrefix(sub.ID, q.Prefix), !q.Deleted && !d.Readable(now),
			q.Owner != "" && d.Meta.Owner != q.Owner, q.Layer != "" && d.Meta.Layer != q.Layer,
			q.Link != "" && !linksTo(m, d, sub.Namespace, q):
			continue
		}
		l := projector.DocumentListed{Subject: sub, Title: d.Meta.Title, Owner: d.Meta.Owner, Layer: d.Meta.Layer, Revisions: len(d.Revisions),
			Deleted: d.Deleted(), First: d.First, Last: d.Last, UpdatedAt: last.Recorded}
		if d.Deleted() {
			p, _ := events.DecodeAs[events.DocumentDeleted](last.Event)
			l.Reason, l.RenamedTo = p.Reason, p.To
		} else {
			l.ContentType, l.Bytes, l.SHA256 = last.ContentType, int64(len(last.Data)), sub.ID
			if sub.Kind != events.KindBlob {
				sum := sha256.Sum256(last.Data)
				l.SHA256 = hex.EncodeToString(sum[:])
			}
			l.ExpiresAt, _ = d.Meta.ExpiresAt.Time()
		}
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b projector.DocumentListed) int {
		if q.Newest {
			return int(b.Last) - int(a.Last)
		}
		return strings.Compare(a.Subject.Kind+"/"+a.Subject.ID, b.Subject.Kind+"/"+b.Subject.ID)
	})
	return list
}

// linksTo reports whether a document links to a subject, under its current or a former name.
func linksTo(m testkit.DocumentModel, d *testkit.ModelDocument, ns string, q projector.DocumentQuery) bool {
	links := d.Meta.Links
	if d.Deleted() {
		links = nil
		if to := d.RenamedTo; to != (events.Subject{}) {
			links = []events.Link{{Rel: renamedTo, To: to.String()}}
		}
	}
	return slices.ContainsFunc(links, func(l events.Link) bool {
		to, err := events.ParseSubject(ns, l.To)
		for step := 0; err == nil && (q.Rel == "" || l.Rel == q.Rel) && step <= len(m); step++ {
			if to.String() == q.Link {
				return true
			}
			next := m[to]
			if next == nil || !next.Deleted() || next.RenamedTo == (events.Subject{}) {
				break
			}
			to = next.RenamedTo
			to.Namespace = ns
		}
		return false
	})
}

// drawQuery draws a document query.
func drawQuery(t *rapid.T) projector.DocumentQuery {
	return projector.DocumentQuery{
		Namespace: rapid.SampledFrom([]string{"default", "default", "other"}).Draw(t, "namespace"),
		Kind:      rapid.SampledFrom([]string{"", "", "doc", "note", events.KindBlob, "none"}).Draw(t, "kind"),
		Prefix:    rapid.SampledFrom([]string{"", "", "a", "a/", "b\x00\xff", "\xff"}).Draw(t, "prefix"),
		Owner:     rapid.SampledFrom([]string{"", "", "me"}).Draw(t, "owner"),
		Layer:     rapid.SampledFrom([]string{"", "", "personal"}).Draw(t, "layer"),
		Link:      rapid.SampledFrom([]string{"", "", "document/doc/a", "document/doc/a=2F1", "document/note/a=2F1"}).Draw(t, "link"),
		Rel:       rapid.SampledFrom([]string{"", "cites"}).Draw(t, "rel"),
		Deleted:   rapid.Bool().Draw(t, "deleted"),
		Newest:    rapid.Bool().Draw(t, "newest"),
	}
}

// A list equals the result of checking every document, in pages of any size.
func TestDocumentsAgreeWithModel(t *testing.T) {
	testkit.NotUnderRace(t)
	rapid.Check(t, func(t *rapid.T) {
		records, dir := testkit.Documents().Draw(t, "log"), temporary(t)
		c := foldRecords(t, filepath.Join(dir, FileName), current, records, true)
		must(t, c.Close())
		r, err := Open(t.Context(), dir)
		must(t, err)
		defer r.Close()
		model, now := testkit.ModelOf(records), records[len(records)-1].Recorded
		for range 4 {
			q := drawQuery(t)
			want := wanted(model, q, now)
			have, next, err := r.Documents(t.Context(), q)
			must(t, err)
			if diff := cmp.Diff(want, have); diff != "" || next != "" {
				t.Fatalf("%+v (next %q, -want +got):\n%s", q, next, diff)
			}
			q.Limit = rapid.IntRange(1, 3).Draw(t, "limit")
			have = nil
			for pages := 0; pages == 0 || q.After != ""; pages++ {
				page, next, err := r.Documents(t.Context(), q)
				must(t, err)
				if pages > len(want) || next != "" && len(page) != q.Limit {
					t.Fatalf("%+v: page %d has %d documents and the token %q", q, pages, len(page), next)
				}
				have, q.After = append(have, page...), next
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Fatalf("the pages of %+v (-want +got):\n%s", q, diff)
			}
		}
	})
}

// Rows and links equal those of a fold in one go, for any split into batches and any crash between them. A document
// that is folded again keeps no former rows.
func TestDocumentBatchesChangeNothing(t *testing.T) {
	testkit.NotUnderRace(t)
	rapid.Check(t, func(t *rapid.T) {
		records, dir := testkit.Documents().Draw(t, "log"), temporary(t)
		whole := foldRecords(t, filepath.Join(dir, "whole.db"), current, records, false)
		defer whole.Close()
		split := foldRecords(t, filepath.Join(dir, "split.db"), current, records, true)
		defer split.Close()
		mustEqual(t, split, whole)
		last := records[len(records)-1]
		for sub := range testkit.ModelOf(records) {
			must(t, split.Forget(t.Context(), sub))
			for _, rec := range records.Of(sub) {
				must(t, split.Apply(t.Context(), projector.Decode(rec)))
			}
		}
		must(t, split.Commit(t.Context(), projector.Cursor{Offset: last.Offset, EventID: last.ID, Recorded: last.Recorded}))
		mustEqual(t, split, whole)
	})
}

// A reader of pages, during writes, renames and deletions, gets each document that exists all the time exactly once.
func TestDocumentPagesWhileWritten(t *testing.T) {
	dir := t.TempDir()
	c := New(dir, openingOf, nullLogger)
	defer c.Close()
	beginAt(t, c, 0)
	at := events.Offset(0)
	write := func(id string) {
		at++
		rec := written(events.Document("", "doc", id), at, "text")
		must(t, c.Apply(t.Context(), projector.Decode(rec)))
		must(t, c.Commit(t.Context(), projector.Cursor{Offset: at, EventID: rec.ID}))
	}
	for i := range 20 {
		write(fmt.Sprintf("kept/%02d", i))
	}
	r, err := Open(t.Context(), dir)
	must(t, err)
	defer r.Close()
	q := projector.DocumentQuery{Prefix: "kept/", Limit: 3}
	var ids []string
	for page := 0; page == 0 || q.After != ""; page++ {
		list, next, err := r.Documents(t.Context(), q)
		must(t, err)
		for _, d := range list {
			if len(d.Subject.ID) == len("kept/00") {
				ids = append(ids, d.Subject.ID)
			}
		}
		q.After = next
		write(fmt.Sprintf("kept/%02d.new", page)) // before the position of the next page, and behind it
		write(fmt.Sprintf("kept/%02d", 19-page))
		write("kept/19.new")
	}
	if len(ids) != 20 || !slices.IsSorted(ids) || len(slices.Compact(ids)) != 20 {
		t.Errorf("got %d documents: %v", len(ids), ids)
	}
}

// An invalid query is refused with the name of its field.
func TestDocumentsRefused(t *testing.T) {
	dir := t.TempDir()
	c := New(dir, openingOf, nullLogger)
	beginAt(t, c, 0)
	must(t, putAll(t, c, testkit.Records{written(events.Document("", "doc", "a"), 1, "text")}))
	must(t, c.Close())
	r, err := Open(t.Context(), dir)
	must(t, err)
	defer r.Close()
	for field, q := range map[string]projector.DocumentQuery{
		"after":   {After: "x"},
		"after@":  {After: "@1"},                           // a token of the other order
		"after/":  {After: "document/doc/a", Newest: true}, // likewise
		"subject": {Link: "not a subject"},
	} {
		_, _, err := r.Documents(t.Context(), q)
		if invalid, ok := errors.AsType[*events.InvalidError](err); !ok || invalid.Field != strings.TrimRight(field, "@/") {
			t.Errorf("%+v: got the error %v", q, err)
		}
	}
}

// BenchmarkDocuments lists the first page of 100,000 documents, by a prefix, and by conditions without a kind.
func BenchmarkDocuments(b *testing.B) {
	const count = 100_000
	dir := b.TempDir()
	c := New(dir, openingOf, nullLogger)
	_, _, err := c.Begin(b.Context())
	must(b, err)
	for i := range count {
		meta := events.DocMeta{Owner: fmt.Sprint("agent-", i%50), Links: []events.Link{{Rel: "cites", To: fmt.Sprint("document/doc/", i%1000)}}}
		rec := written(events.Document("", "doc", fmt.Sprintf("specs/%03d/%05d", i%100, i)), events.Offset(i+1), "text")
		rec.Event = rec.Event.WithExtension(events.ExtDoc, meta.String())
		must(b, c.Apply(b.Context(), projector.Decode(rec)))
		if c.Held() > 8<<20 || i == count-1 {
			must(b, c.Commit(b.Context(), projector.Cursor{Offset: rec.Offset, EventID: rec.ID}))
		}
	}
	must(b, c.Close())
	r, err := Open(b.Context(), dir)
	must(b, err)
	defer r.Close()
	for name, q := range map[string]projector.DocumentQuery{
		"prefix": {Kind: "doc", Prefix: "specs/05"}, "all": {}, "newest": {Newest: true}, "owner": {Owner: "agent-7"},
		"link": {Link: "document/doc/7"}, "rare prefix, newest": {Prefix: "specs/050/099", Newest: true},
	} {
		b.Run(name, func(b *testing.B) {
			q.Limit = 100
			for b.Loop() {
				list, _, err := r.Documents(b.Context(), q)
				must(b, err)
				if len(list) == 0 {
					b.Fatal("got an empty list")
				}
			}
		})
	}
}
